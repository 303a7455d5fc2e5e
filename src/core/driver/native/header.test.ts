// Compares the function table and the constants with the CUDA headers. It needs a CUDA toolkit, and no GPU. The two
// best-known tables of this kind in TypeScript had wrong rows, and a wrong row overwrites memory without an error.

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import * as constants from '../constants.js'
import { DRIVER_TABLE, FUNCTION_NAMES, type FunctionName } from '../table.js'

const FOLDERS = [
  ...[process.env['CUDA_HOME'], process.env['CUDA_PATH']].flatMap(home => (home ? [join(home, 'include')] : [])),
  '/usr/local/cuda/include',
  '/usr/include',
]
const folder = FOLDERS.find(path => existsSync(join(path, 'cuda.h')))
const typedefs = folder === undefined ? '' : join(folder, 'cudaTypedefs.h')
const noHeader = whyNot()
const noTypedefs = noHeader || (!existsSync(typedefs) && `no ${typedefs}`)

function whyNot(): string | false {
  if (folder === undefined) return `no cuda.h in ${FOLDERS.join(', ')}`
  const version = Number(/#define CUDA_VERSION (\d+)/.exec(read('cuda.h'))?.[1])
  return version < 13000 && `${folder}/cuda.h is of version ${version}, older than the newest constant that we name`
}

/** Our own names: cuda.h has no name for the null stream. */
const OURS = ['CU_STREAM_LEGACY_DEFAULT']

describe('the CUDA headers', () => {
  test('declare each function of the table as the table does', { skip: noHeader }, () => {
    const declared = prototypes(read('cuda.h'))
    for (const name of FUNCTION_NAMES) {
      const [symbol] = DRIVER_TABLE[name]
      assert.equal(cPrototype(name), declared.get(symbol), `the row of ${name} should be what cuda.h declares`)
    }
  })

  test('give each constant the value in constants.ts', { skip: noHeader }, () => {
    const values = enumerators(read('cuda.h'))
    const ours = Object.entries<unknown>(constants).flatMap(([name, value]): [string, unknown][] => {
      if (typeof value === 'number') return OURS.includes(name) ? [] : [[name, value]]
      return Array.isArray(value) ? [] : Object.entries(value as object)
    })
    assert.ok(ours.length > 40, 'the constants should have been found')
    for (const [name, value] of ours) assert.equal(value, values.get(name), name)
  })

  test('give each function the driver version that the table gives', { skip: noTypedefs }, () => {
    const versions = new Map<string, Set<number>>()
    for (const [, name, version] of read('cudaTypedefs.h').matchAll(/\bPFN_(cu\w+?)_v(\d+)\b/g)) {
      if (!versions.has(name)) versions.set(name, new Set())
      versions.get(name)!.add(Number(version))
    }
    for (const name of FUNCTION_NAMES) {
      const [symbol, , since] = DRIVER_TABLE[name]
      const [, plain, version] = /^(\w+?)(?:_v(\d+))?$/.exec(symbol)!
      const known = [...(versions.get(plain) ?? [])].sort((a, b) => a - b)
      const [major, minor] = since.split('.').map(Number)
      assert.equal(major * 1000 + minor * 10, known[Number(version ?? 1) - 1], `the least driver that has ${symbol}`)
    }
  })
})

/** A header without comments and continued lines. */
function read(file: string): string {
  const text = readFileSync(join(folder!, file), 'utf8')
  return text.replace(/\\\n/g, ' ').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, ' ')
}

/** Exported symbol → prototype. cuda.h declares a plain name, and maps the name to the latest symbol. */
function prototypes(header: string): Map<string, string> {
  const symbols = new Map<string, string>()
  for (const [, name, symbol] of header.matchAll(/#\s*define (cu\w+)\s+(?:__CUDA_API_PT\w+\()?(cu\w+)\)?/g)) {
    if (!symbols.has(name)) symbols.set(name, symbol)
  }
  const found = new Map<string, string>()
  for (const [, name, parameters] of header.matchAll(/CUresult CUDAAPI (cu\w+)\(([^)]*)\);/g)) {
    const symbol = symbols.get(name) ?? name
    const text = `CUresult ${symbol}(${parameters.replace(/\s+/g, ' ').trim()})`
    if (!found.has(symbol)) found.set(symbol, text)
    // Behind `#undef` cuda.h declares the first version once more, which libcuda exports under the plain name.
    else if (!found.has(name)) found.set(name, text.replace(symbol, name))
  }
  return found
}

/** All enumerators with their values; one without a value counts on from the enumerator before, as in C. */
function enumerators(header: string): Map<string, number> {
  const values = new Map<string, number>()
  for (const [, body] of header.matchAll(/\benum\s+\w+\s*\{([^}]*)\}/g)) {
    let next = 0
    for (const [, name, expression] of body.matchAll(/(\w+)\s*(?:=\s*([^,]+))?(?:,|$)/g)) {
      if (expression !== undefined) next = values.get(expression.trim()) ?? Number(expression)
      values.set(name, next++)
    }
  }
  for (const [, name, value] of header.matchAll(/#\s*define (CU_\w+)\s+(?:\(\(CU\w+\))?(0x\w+|-\d+)/g)) {
    values.set(name, Number(value))
  }
  return values
}

/** The C prototype of a row, under the name that libcuda exports. */
function cPrototype(name: FunctionName): string {
  const [symbol, parameters] = DRIVER_TABLE[name]
  return `CUresult ${symbol}(${parameters})`
}
