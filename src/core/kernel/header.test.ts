import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { NoLibraryError } from '../base/errors.js'
import { openNvrtc, type SourceCompiler } from '../libraries/nvrtc.js'
import { headerFolders, toolkitFolders } from '../libraries/toolkits.js'
import { deviceIncludePath } from './device-code.js'

function installed(): SourceCompiler | null {
  try {
    return openNvrtc(99_000)
  } catch (error) {
    if (error instanceof NoLibraryError) return null
    throw error
  }
}

const nvrtc = installed()

const skip = nvrtc === null && 'NVRTC is not installed where it is looked for'
const EXAMPLES = new URL('../../../../examples/', import.meta.url)

test('the header compiles with NVRTC, without any other header', { skip }, () => {
  const source = `
    #include "cuda_mempool.cuh"
    using namespace cuda_mempool;
    extern "C" __global__ void use(DeviceHeap *heap, DeviceArena *arena, DevicePool *pool, void **blocks) {
      blocks[0] = arena->allocate(8);
      blocks[1] = pool->allocate(8);
      heap->free(heap->allocate(64));
    }`
  for (const architecture of nvrtc!.architectures) assert.equal(logOf(source, architecture), '', `${architecture}`)
})

test('the kernels of the examples compile with NVRTC', { skip }, () => {
  const sources = readdirSync(EXAMPLES).flatMap(name => {
    const text = readFileSync(new URL(name, EXAMPLES), 'utf8')
    return [...text.matchAll(/^const SOURCE = `(.*?)^`$/gms)].map(match => match[1])
  })
  assert.ok(sources.length >= 3)
  const folders = headerFolders(toolkitFolders()) // for the types of small floats
  for (const source of sources) assert.equal(logOf(source, 90, folders), '')
})

function logOf(source: string, architecture: number, folders: readonly string[] = []): string {
  const included = [deviceIncludePath(), ...folders].map(folder => `--include-path=${folder}`)
  const options = [`--gpu-architecture=sm_${architecture}`, ...included]
  return nvrtc!.compile({ source, name: 'test.cu', headers: {}, options, expressions: [] }).log
}
