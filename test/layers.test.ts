// The folders are the architecture: each file imports only from its own layer or from lower ones. Files beside the
// folders are layers of their own. The sources are read, not the build, since types leave no trace there.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const PROJECT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const SOURCES = join(PROJECT, 'src')

/** From the lowest to the highest; layers of one row do not know each other. */
const ROWS: readonly (readonly string[])[] = [
  ['base'],
  ['heap', 'driver'],
  ['order'],
  ['kernel'],
  ['pool'],
  ['trace'],
  ['report'],
  ['device.ts'],
  ['keeper-thread.ts'],
  ['index.ts'],
  ['cli'],
]
const VAGUE_NAMES = ['utils', 'util', 'helpers', 'helper', 'common', 'misc', 'types']

const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.ts'))
  .map(path => path.split(sep).join('/'))

/** The folder below src that a file lies in, or the file itself; a test belongs to the file it tests. */
function layerOf(path: string): string {
  return path.includes('/') ? path.slice(0, path.indexOf('/')) : path.replace(/(\.gpu)?\.test\.ts$/, '.ts')
}

function rowOf(path: string): number {
  return ROWS.findIndex(row => row.includes(layerOf(path)))
}

/** Files below src that a file imports or re-exports from, types and dynamic imports among them. */
function importsOf(path: string): string[] {
  const text = readFileSync(join(SOURCES, path), 'utf8')
  const specifiers = [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*['"](\.[^'"]+)['"]/g)].map(match => match[1])
  return specifiers.map(specifier => {
    const target = relative(SOURCES, join(SOURCES, dirname(path), specifier))
      .split(sep)
      .join('/')
    return target.replace(/\.js$/, '.ts')
  })
}

test('every file lies in a layer', () => {
  assert.ok(files.length > 50, `${files.length} files below ${SOURCES}`)
  const strays = files.filter(path => rowOf(path) === -1)
  assert.deepEqual(strays, [])
})

test('every import names a file that there is', () => {
  const known = new Set(files)
  const missing = files.flatMap(path =>
    importsOf(path)
      .filter(target => !target.startsWith('..') && target.endsWith('.ts') && !known.has(target))
      .map(target => `${path} imports ${target}`),
  )
  assert.deepEqual(missing, [])
})

test('imports go down, or stay within a layer', () => {
  const seen = new Set<string>()
  const upward = files.flatMap(path =>
    importsOf(path)
      .filter(target => {
        const [from, to] = [rowOf(path), rowOf(target)]
        seen.add(`${layerOf(path)} ${layerOf(target)}`)
        if (target.startsWith('..')) return false
        return to > from || (to === from && layerOf(path) !== layerOf(target))
      })
      .map(target => `${path} imports ${target}`),
  )
  assert.deepEqual(upward, [])
  assert.ok(seen.has('pool heap') && seen.has('device.ts pool'), 'imports were found at all')
})

test('the simulated and the native driver do not know each other', () => {
  const crossings = files.flatMap(path => {
    const other = path.startsWith('driver/native/') ? 'driver/simulated/' : 'driver/native/'
    if (!/^driver\/(native|simulated)\//.test(path)) return []
    return importsOf(path)
      .filter(target => target.startsWith(other))
      .map(target => `${path} imports ${target}`)
  })
  assert.deepEqual(crossings, [])
})

test('no file of the package imports a test or a suite', () => {
  const isTest = (path: string) => /\.(test|suite)\.ts$/.test(path)
  const leaks = files.filter(path => !isTest(path)).filter(path => importsOf(path).some(isTest))
  assert.deepEqual(leaks, [])
})

test('nothing is called by a name that says nothing', () => {
  const vague = files.filter(path =>
    path.split('/').some(part =>
      VAGUE_NAMES.includes(
        basename(part)
          .replace(/(\.test|\.suite)?\.ts$/, '')
          .toLowerCase(),
      ),
    ),
  )
  assert.deepEqual(vague, [])
})
