// The folders are the architecture: each file imports, types included, only from its own layer or from lower ones. A
// layer is a folder with its subfolders, unless these are layers themselves; each file beside the folders is a layer,
// too. The test reads the sources, since imports of types leave no trace in the build.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const PROJECT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const SOURCES = join(PROJECT, 'src')

/**
 * From the lowest to the highest; layers of one row do not import each other. The pages of the
 * source list them in this order.
 */
const ROWS: readonly (readonly string[])[] = [
  ['core/base'],
  ['core/libraries'],
  ['core/keeper'],
  ['core/threads'],
  ['core/heap', 'core/driver'],
  ['core/order'],
  ['core/kernel'],
  ['core/pool'],
  ['core/pool/backing'],
  ['core/pool/sleep'],
  ['core/pool/caching'],
  ['core/pool/debug', 'core/pool/shared'],
  ['core/pool/arena', 'core/pool/blocks', 'core/pool/host', 'core/pool/mapped'],
  ['core/pool/driver-owned'],
  ['core/pool/wrappers'],
  ['core/pool/shelf'],
  ['core/device'],
  ['kernel-memory', 'keep'],
  ['recordings/trace'],
  ['recordings/picture'],
  ['recordings/report'],
  ['live'],
  ['onnxruntime', 'nccl'],
  ['entries', 'index.ts'],
  ['cli'],
]
const LAYERS = new Set(ROWS.flat())
const MOST_FILES = 20
/** Of the glossary: a reader must not learn more before reading the code. */
const MOST_TERMS = 25
const VAGUE_NAMES = ['utils', 'util', 'helpers', 'helper', 'common', 'misc', 'types']

/**
 * The two drivers behind the contract of `core/driver/`. Outside `core/driver/`, only code that opens a device or tells
 * its kind may import them.
 */
const DRIVERS = /^core\/driver\/(native|simulated)\//
const KNOW_A_DRIVER: Readonly<Record<string, string>> = {
  'core/device/open.ts': 'opens devices',
  'core/device/warm-up.ts': 'runs pools on a library without a device',
  'entries/simulated.ts': 'exports the simulated GPU',
  'nccl/nccl-for.ts': 'chooses between NCCL and its simulation',
  'nccl/simulated/rank-device.ts': 'plays NCCL on simulated devices',
  'recordings/trace/replay-devices.ts': 'opens a simulated device of the size that a replay needs',
  'recordings/trace/replay-device.ts': 'asks a device which kind it is',
  'recordings/trace/pytorch/model/driver-tally.ts': 'adds up costs of calls that a model of an allocator would make',
}

const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.ts'))
  .map(path => path.split(sep).join('/'))
const isTest = (path: string) => /\.(test|suite|fixture|worker)\.ts$/.test(path)

/** The layer that a file lies in; a test beside the folders belongs to the file it tests. */
function layerOf(path: string): string {
  if (!path.includes('/')) return path.replace(/(\.gpu)?\.test\.ts$/, '.ts')
  let folder = dirname(path)
  while (!LAYERS.has(folder) && folder.includes('/')) folder = dirname(folder)
  return folder
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

test('the source has eight houses, and the entry points before the command line', () => {
  const houses = ROWS.flat().map(layer => layer.split('/')[0])
  const inOrder = houses.filter((house, index) => house !== houses[index - 1])
  assert.deepEqual(inOrder, [
    'core',
    'kernel-memory',
    'keep',
    'recordings',
    'live',
    'onnxruntime',
    'nccl',
    'entries',
    'index.ts',
    'cli',
  ])
})

/** The programs that show users how to use the package import it as users do. */
const USE_AN_ENTRY = ['cli/demo.ts']

test('entry points only export, and the package itself imports none', () => {
  const entries = files.filter(path => ['entries', 'index.ts'].includes(layerOf(path)) && !isTest(path))
  assert.ok(entries.length > 5)
  for (const path of entries) {
    const code = readFileSync(join(SOURCES, path), 'utf8').replace(
      /^\/\/.*$|^export (type )?\{[^}]*\} from '.*'$/gm,
      '',
    )
    const startsServing = path === 'index.ts' ? /^import \{ serveIfAsked \} from '.*'\s+serveIfAsked\(\)$/ : /^$/
    assert.match(code.trim(), startsServing, path)
  }
  const users = files.filter(path => !isTest(path) && importsOf(path).some(target => entries.includes(target)))
  assert.deepEqual(users, USE_AN_ENTRY)
})

test('the entry points of package.json are these files, in the order of their page', () => {
  const { exports, typesVersions } = JSON.parse(readFileSync(join(PROJECT, 'package.json'), 'utf8')) as {
    readonly exports: Readonly<Record<string, unknown>>
    readonly typesVersions: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  }
  const page = readFileSync(join(SOURCES, 'entries', 'README.md'), 'utf8')
  const names = [...page.matchAll(/^\| `(\w+)\.ts` /gm)].map(([, name]) => name)
  const beside = files.filter(path => layerOf(path) === 'entries').map(path => basename(path, '.ts'))
  assert.deepEqual(beside.sort(), [...names].sort())
  const file = (name: string) => ({ types: `./dist/src/${name}.d.ts`, default: `./dist/lib/${name}.js` })
  const expected = names.map(name => [`./${name}`, file(`entries/${name}`)])
  assert.deepEqual(exports, {
    '.': file('index'),
    ...Object.fromEntries(expected),
    './package.json': './package.json',
  })
  assert.deepEqual(
    Object.keys(exports).slice(1, -1),
    expected.map(([subpath]) => subpath),
  )
  assert.deepEqual(typesVersions['*'], Object.fromEntries(names.map(name => [name, [file(`entries/${name}`).types]])))
})

test('every layer has a file', () => {
  const filled = new Set(files.map(layerOf))
  assert.deepEqual(
    [...LAYERS].filter(layer => !filled.has(layer)),
    [],
  )
})

test(`no folder has more than ${MOST_FILES} source files`, () => {
  const counts = new Map<string, number>()
  for (const path of files.filter(file => !isTest(file))) {
    counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1)
  }
  const crowded = [...counts].filter(([, count]) => count > MOST_FILES)
  assert.deepEqual(crowded, [])
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
        if (target.startsWith('..') || isTest(path)) return false
        return to > from || (to === from && layerOf(path) !== layerOf(target))
      })
      .map(target => `${path} imports ${target}`),
  )
  assert.deepEqual(upward, [])
  assert.ok(
    seen.has('core/pool/caching core/heap') && seen.has('core/device core/pool/arena'),
    'imports were found at all',
  )
})

/** Other folders import of the central heap its face, and the parts that other kinds of pools take. */
const CENTRAL = 'core/pool/caching/central/'
const DOORS = ['central-heap.ts', 'cross-stream.ts', 'deferred.ts', 'free-memory.ts', 'parts.ts']

test('of the central heap other folders import only its face and a few parts', () => {
  const outside = files.filter(path => !path.startsWith(CENTRAL) && !isTest(path))
  const doors = new Set(outside.flatMap(importsOf).filter(target => target.startsWith(CENTRAL)))
  assert.deepEqual(
    [...doors].sort(),
    DOORS.map(door => CENTRAL + door),
  )
})

/** Files that refer to each other, types included, and why. */
const KNOWN_CYCLES: Readonly<Record<string, string>> = {
  'core/pool/allocation.ts core/pool/array.ts core/pool/buffer.ts':
    'a buffer has its allocation, whose pool takes the buffer back, and an array its buffer, which copies from arrays',
  'core/pool/host/host-array.ts core/pool/host/host-buffer.ts core/pool/host/host-pool.ts':
    'a host buffer names its pool, which takes the buffer back, and makes arrays of buffers',
}

/**
 * Strongly connected components of the imports among source files, by Tarjan's algorithm; those of one file left out.
 */
function cycles(): string[] {
  const [order, lowest] = [new Map<string, number>(), new Map<string, number>()]
  const path: string[] = []
  const found: string[] = []
  const visit = (file: string): number => {
    order.set(file, order.size)
    lowest.set(file, order.get(file)!)
    path.push(file)
    for (const target of importsOf(file)) {
      if (target.startsWith('..') || !target.endsWith('.ts')) continue
      const reached = !order.has(target) ? visit(target) : path.includes(target) ? order.get(target)! : Infinity
      lowest.set(file, Math.min(lowest.get(file)!, reached))
    }
    if (lowest.get(file) === order.get(file)) {
      const component = path.splice(path.indexOf(file))
      if (component.length > 1) found.push(component.sort().join(' '))
    }
    return lowest.get(file)!
  }
  for (const file of files.filter(each => !isTest(each))) if (!order.has(file)) visit(file)
  return found.sort()
}

test('imports, types included, have no cycles but those that are explained', () => {
  assert.deepEqual(cycles(), Object.keys(KNOWN_CYCLES).sort())
})

test('a test imports from its own room or from lower ones', () => {
  const rowOfTop = (path: string) => {
    const [house, room] = path.split('/')
    const top = [house, `${house}/${room}`].find(each => LAYERS.has(each)) ?? layerOf(path)
    return ROWS.findIndex(row => row.includes(top))
  }
  const upward = files.filter(isTest).flatMap(path =>
    importsOf(path)
      .filter(target => !target.startsWith('..') && rowOfTop(target) > rowOfTop(path))
      .map(target => `${path} imports ${target}`),
  )
  assert.deepEqual(upward, [])
})

test('only what opens a device, or says which kind it is, imports a driver of one kind', () => {
  const knowing = files.filter(
    path => !path.startsWith('core/driver/') && !isTest(path) && importsOf(path).some(target => DRIVERS.test(target)),
  )
  assert.deepEqual(knowing.sort(), Object.keys(KNOW_A_DRIVER).sort())
})

test('the simulated and the native driver do not know each other', () => {
  const crossings = files.flatMap(path => {
    const other = path.startsWith('core/driver/native/') ? 'core/driver/simulated/' : 'core/driver/native/'
    if (!DRIVERS.test(path)) return []
    return importsOf(path)
      .filter(target => target.startsWith(other))
      .map(target => `${path} imports ${target}`)
  })
  assert.deepEqual(crossings, [])
})

/** The page without data is left out: it runs code of Node in a browser, with stand-ins for what that needs. */
test('the viewer of pages imports nothing that needs Node, and nothing of the package imports the viewer', () => {
  const viewer = join(PROJECT, 'viewer')
  const sources = readdirSync(viewer, { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.ts') && path !== 'build.ts' && !/^(live|drop)\//.test(path))
    .map(path => readFileSync(join(viewer, path), 'utf8'))
  const outside = sources.flatMap(text => [...text.matchAll(/from '(?:\.\.\/)+src\/([^']+)'/g)].map(match => match[1]))
  assert.ok(outside.length > 10)
  const allowed =
    /^(recordings\/picture\/|recordings\/trace\/(trace|analysis\/steps)\.js$|core\/base\/(binary-search|bytes|errors|shown-text)\.js$|recordings\/report\/(number-format|page\/page-data)\.js$)/
  assert.deepEqual(
    outside.filter(path => !allowed.test(path)),
    [],
  )
  const picture = files.filter(path => path.startsWith('recordings/picture/') && !isTest(path))
  const node = [...sources, ...picture.map(path => readFileSync(join(SOURCES, path), 'utf8'))]
  assert.ok(
    !node.some(text => text.includes("'node:")),
    'no file of the viewer or of src/recordings/picture imports node:',
  )
  assert.ok(!files.some(path => importsOf(path).some(target => target.startsWith('../viewer'))))
})

test('no file of the package imports a file of the tests', () => {
  const leaks = files.filter(path => !isTest(path)).filter(path => importsOf(path).some(isTest))
  assert.deepEqual(leaks, [])
})

test('nothing is called by a name that says nothing', () => {
  const vague = files.filter(path =>
    path.split('/').some(part =>
      VAGUE_NAMES.includes(
        basename(part)
          .replace(/(\.(test|suite|fixture|worker))?\.ts$/, '')
          .toLowerCase(),
      ),
    ),
  )
  assert.deepEqual(vague, [])
})

test('the pages of the source list the layers from the lowest to the highest, and each term once', () => {
  const rows = (section: string) => [...section.matchAll(/^\| (?!-)(.+?) \|/gm)].map(match => match[1].trim()).slice(1)
  const named = (section: string) => rows(section).map(name => name.replace(/^`(.*?)\/?`$/, '$1'))
  const readme = readFileSync(join(SOURCES, 'README.md'), 'utf8')
  const houses = named(readme.split('\n## ')[0])
  const names = houses.flatMap(house => {
    if (house.endsWith('.ts')) return [house]
    const page = readFileSync(join(SOURCES, house, 'README.md'), 'utf8')
    return [house, ...named(page.split('\n## ')[0]).map(room => `${house}/${room}`)]
  })
  assert.deepEqual(
    names.filter(name => LAYERS.has(name)),
    [...LAYERS],
  )
  const others = names.filter(name => !LAYERS.has(name) && !houses.includes(name))
  assert.deepEqual(
    others.filter(name => layerOf(`${name}/any.ts`) === name),
    [],
    'a folder that is no layer lies in one',
  )
  const [, glossary] = readme.split('## Glossary')
  const terms = rows(glossary)
  const isShort = terms.length > 20 && terms.length <= MOST_TERMS
  assert.ok(isShort && new Set(terms).size === terms.length, `${terms.length} terms`)
  const joined = (text: string) => text.toLowerCase().replace(/[ -]/g, '') // "capture arena" is CaptureArena
  const code = files.map(path => joined(readFileSync(join(SOURCES, path), 'utf8'))).join('\n')
  assert.deepEqual(
    terms.filter(term => !code.includes(joined(term))),
    [],
    'a term that is explained is used',
  )
})
