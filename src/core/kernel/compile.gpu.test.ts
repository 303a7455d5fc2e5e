// Source code compiled by NVRTC and run on a real GPU. The tests fail without a GPU, and are skipped without NVRTC.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { NoLibraryError } from '../base/errors.js'
import { bfloat16, float16 } from '../base/small-floats.js'
import { openNvrtc } from '../libraries/nvrtc.js'
import { TestGpu } from '../order/gpu.fixture.js'
import { Compiler } from './compiler.js'

const SOURCE = `
struct Params { int offset; double factor; };

template <typename T> __global__ void apply(T *values, Params params, unsigned count) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) values[index] = values[index] * params.factor + params.offset + EXTRA;
}

extern "C" __global__ void all_meet(unsigned *arrived, unsigned *seen) {
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, 1);
  while (atomicAdd(arrived, 0) < gridDim.x) {}
  atomicAdd(seen, 1);
}`

const gpu = new TestGpu()
const memory = gpu.driver.cuMemAlloc(4096)
after(() => {
  gpu.context.activate().cuMemFree(memory)
  gpu.close()
})

function whyNot(): string | false {
  try {
    openNvrtc(gpu.driver.cuDriverGetVersion())
    return false
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}

function words(count: number): Uint32Array {
  gpu.driver.cuCtxSynchronize()
  const host = new Uint32Array(count)
  gpu.driver.cuMemcpyDtoH(host, memory)
  return host
}

describe('compiled kernels on a GPU', { skip: whyNot() }, () => {
  const compiler = new Compiler(gpu.context, gpu.defaultStream)
  const options = { kernels: ['apply<float>'], defines: { EXTRA: 0.5 } }

  it('run with structures and numbers, each module on its own', () => {
    using module = compiler.compile(SOURCE, options)
    compiler.compile(SOURCE, options).close()
    gpu.driver.cuMemcpyHtoD(memory, new Float32Array(100).fill(2))
    const params = new DataView(new ArrayBuffer(16))
    params.setInt32(0, 10, true)
    params.setFloat64(8, 1.25, true)
    const apply = module.kernel('apply<float>')
    apply.launch({ grid: 1, block: 128 }, { ptr: memory }, new Uint8Array(params.buffer), 99)
    gpu.driver.cuCtxSynchronize()
    const values = new Float32Array(100)
    gpu.driver.cuMemcpyDtoH(values, memory)
    assert.deepEqual([values[0], values[98], values[99]], [13, 13, 2])
    const wrong = () => apply.launch({ grid: 1, block: 128 }, { ptr: memory }, new Uint8Array(15), 99)
    assert.throws(wrong, { name: 'TypeError', message: /'params' needs 16 bytes, not 15/ })
  })

  it('take 64-bit integers, booleans and small floats', () => {
    const source = `
      #include <cuda_fp16.h>
      #include <cuda_bf16.h>
      extern "C" __global__ void echo(long long wide, unsigned long long more, bool is, __half half, nv_bfloat16 brain,
                                      long long *integers, float *floats) {
        integers[0] = wide;
        integers[1] = more;
        integers[2] = is;
        floats[0] = __half2float(half);
        floats[1] = __bfloat162float(brain);
      }`
    using module = compiler.compile(source, {})
    const floats = { ptr: memory + 64 }
    module
      .kernel('echo')
      .launch({ grid: 1, block: 1 }, -(2n ** 60n), 2n ** 62n + 1n, true, 0.1, 1e30, { ptr: memory }, floats)
    gpu.driver.cuCtxSynchronize()
    const integers = new BigInt64Array(3)
    gpu.driver.cuMemcpyDtoH(integers, memory)
    assert.deepEqual([...integers], [-(2n ** 60n), 2n ** 62n + 1n, 1n])
    const read = new Float32Array(2)
    gpu.driver.cuMemcpyDtoH(read, memory + 64)
    const expected = [float16.decode(float16.encode([0.1]))[0], bfloat16.decode(bfloat16.encode([1e30]))[0]]
    assert.deepEqual([...read], expected)
  })

  it('blocks of a cooperative launch that fills the device can wait for each other', () => {
    using module = compiler.compile(SOURCE, options)
    const meet = module.kernel('all_meet')
    gpu.driver.cuMemsetD8Async(memory, 0, 64, 0)
    const { blocks } = meet.occupancy(64)
    meet.launch({ grid: blocks, block: 64, cooperative: true }, { ptr: memory }, { ptr: memory + 4 })
    assert.deepEqual([...words(2)], [blocks, blocks])
  })

  it('also load from PTX, which the driver compiles', () => {
    using module = compiler.compile('extern "C" __global__ void seven(int *x) { *x = 7; }', {
      architecture: 'compute_80',
    })
    module.kernel('seven').launch({ grid: 1, block: 1 }, { ptr: memory })
    assert.equal(words(1)[0], 7)
  })

  it('fail to load if they do not compile', () => {
    assert.throws(() => compiler.compile('extern "C" __global__ void k() {\n  x = 1;\n}', { name: 'mine.cu' }), {
      name: 'CompileError',
      message: /mine\.cu\(2\): error/,
    })
  })
})
