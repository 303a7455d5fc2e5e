// Types of arrays in programs with other settings than ours: without the types of Node, and with and without
// Float16Array. That exists from Node 24 on, and its type from TypeScript 5.8 on with `lib: ["ESNext"]`.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'

import ts = require('typescript')

import type { TypedArray } from './array.js'
import { TestDevice } from './pool.fixture.js'

/** Files that TypeScript has parsed, by name: the programs differ in one file. */
const parsed = new Map<string, ts.SourceFile | undefined>()

/** The messages of TypeScript for a program, compiled with a `lib` against the sources of this folder. */
function errorsOf(program: string, lib: string[]): string[] {
  const path = fileURLToPath(new URL('../../../../src/core/pool/program.ts', import.meta.url))
  const options: ts.CompilerOptions = {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib,
    types: [],
  }
  const host = ts.createCompilerHost(options)
  const { getSourceFile, fileExists } = host
  host.fileExists = name => name === path || fileExists(name)
  host.getSourceFile = (name, target, ...rest) => {
    if (name === path) return ts.createSourceFile(name, program, target)
    if (!parsed.has(name)) parsed.set(name, getSourceFile(name, target, ...rest))
    return parsed.get(name)
  }
  const built = ts.createProgram([path], options, host)
  const source = built.getSourceFile(path)
  return built
    .getSemanticDiagnostics(source)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))
}

const UPLOADS = `
import type { DeviceArray } from './array.js'
import type { Pool } from './pool.js'
class Buffer extends Uint8Array { readUInt8() { return 0 } }
export async function upload(pool: Pool, any: Float32Array | Int8Array): Promise<Float64Array> {
  const bytes: DeviceArray<Uint8Array> = pool.upload(new Buffer(4))
  // @ts-expect-error: not a Buffer
  void bytes.readSync().readUInt8, void pool.upload(new Buffer(4)).readSync().readUInt8
  // @ts-expect-error: no other elements
  const words: DeviceArray<Uint32Array> = pool.upload(new Uint8Array(4))
  const either: DeviceArray<Float32Array | Int8Array> = pool.upload(any)
  const wide: bigint = pool.upload(new BigInt64Array(1)).readSync()[0]
  using array: DeviceArray<Float64Array> = pool.upload(new Float64Array(3))
  void [bytes, words, either, wide]
  return array.read()
}
`

const PROGRAM = `
import type { Pool } from './pool.js'
export async function halves(pool: Pool): Promise<Float16Array> {
  using array = pool.allocateArray(Float16Array, 4)
  array.write(new Float16Array(4))
  return array.read()
}
`

describe('upload', () => {
  it('has the type of its source in a program without the types of Node', () => {
    assert.deepEqual(errorsOf(UPLOADS, ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts']), [])
  })
})

describe('Float16Array', () => {
  it('is a type of element to a program whose lib knows it', () => {
    assert.deepEqual(errorsOf(PROGRAM, ['lib.esnext.d.ts']), [])
    const wrong = PROGRAM.replace('Promise<Float16Array>', 'Promise<Float32Array>')
    assert.match(errorsOf(wrong, ['lib.esnext.d.ts'])[0], /Float16Array<ArrayBuffer>' is not assignable/)
  })

  it('does not matter to a program whose lib does not know it', () => {
    const plain = PROGRAM.replaceAll('Float16Array', 'Float32Array')
    assert.deepEqual(errorsOf(plain, ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts']), [])
  })

  const { Float16Array: half } = globalThis as { Float16Array?: new (elements: number[]) => TypedArray }
  it('is uploaded and read', { skip: half === undefined && 'this Node has none' }, () => {
    using array = new TestDevice().createPool().upload(new half!([1, 0.5, -2]))
    assert.deepEqual(Array.from(array.readSync() as Iterable<number>), [1, 0.5, -2])
    assert.equal(array.byteLength, 6)
  })
})
