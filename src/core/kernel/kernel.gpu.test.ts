// Modules and launches on a real GPU: the arguments that arrive in the kernel, and the calls that the driver refuses.
// The tests fail without a GPU.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { TestGpu } from '../order/gpu.fixture.js'
import type { KernelArgument, LaunchOptions } from './kernel.js'
import { Module } from './module.js'

const PTX = `
.version 6.3
.target sm_70
.address_size 64
// Writes each of its arguments to 8 bytes, the structure to 16.
.visible .entry echo(
  .param .u64 target,
  .param .s32 signed,
  .param .u32 unsigned,
  .param .f32 single,
  .param .u8 byte,
  .param .f64 double, /* at the next multiple of 8 */
  .param .s16 short,
  .param .align 8 .b8 structure[16],
  .param .s64 wide
)
{
  .reg .b16 %half;
  .reg .b32 %word;
  .reg .f32 %single;
  .reg .f64 %double;
  .reg .b64 %target, %wide;
  ld.param.u64 %target, [target];
  ld.param.s32 %word, [signed];
  cvt.s64.s32 %wide, %word;
  st.b64 [%target], %wide;
  ld.param.u32 %word, [unsigned];
  cvt.u64.u32 %wide, %word;
  st.b64 [%target+8], %wide;
  ld.param.f32 %single, [single];
  st.f32 [%target+16], %single;
  ld.param.u8 %half, [byte];
  cvt.u64.u16 %wide, %half;
  st.b64 [%target+24], %wide;
  ld.param.f64 %double, [double];
  st.f64 [%target+32], %double;
  ld.param.s16 %half, [short];
  cvt.s64.s16 %wide, %half;
  st.b64 [%target+40], %wide;
  ld.param.b64 %wide, [structure];
  st.b64 [%target+48], %wide;
  ld.param.b64 %wide, [structure+8];
  st.b64 [%target+56], %wide;
  ld.param.s64 %wide, [wide];
  st.b64 [%target+64], %wide;
  ret;
}

// The last thread of the grid writes the shape of the launch, and the bytes of dynamic shared memory.
.visible .entry shape(.param .u64 target)
{
  .reg .pred %other;
  .reg .b32 %most, %mine;
  .reg .b64 %target;
  ld.param.u64 %target, [target];
${['x', 'y', 'z'].map(writeExtents).join('')}
  mov.u32 %mine, %dynamic_smem_size;
  st.u32 [%target+24], %mine;
  ret;
}
`

/** Returns unless the thread is the last along `axis`; else writes blocks and threads along it. */
function writeExtents(axis: string, index: number): string {
  const compare = (size: string, position: string, offset: number) => `
  mov.u32 %most, %${size}.${axis};
  st.u32 [%target+${offset + 4 * index}], %most;
  sub.u32 %most, %most, 1;
  mov.u32 %mine, %${position}.${axis};
  setp.ne.u32 %other, %mine, %most;
  @%other ret;`
  return compare('nctaid', 'ctaid', 0) + compare('ntid', 'tid', 12)
}

const gpu = new TestGpu()
const module = new Module(gpu.context, gpu.defaultStream, PTX)
const target = gpu.driver.cuMemAlloc(256)
after(() => {
  module.close()
  gpu.context.activate().cuMemFree(target)
  gpu.close()
})

const ONE: LaunchOptions = { grid: 1, block: 1 }
const echo = module.kernel('echo')
const shape = module.kernel('shape')

/** Runs a kernel on zeroed memory and returns the memory. */
function written(launch: () => void): DataView {
  gpu.driver.cuMemsetD8Async(target, 0, 256, 0)
  gpu.driver.cuCtxSynchronize()
  launch()
  gpu.driver.cuCtxSynchronize()
  const host = new Uint8Array(256)
  gpu.driver.cuMemcpyDtoH(host, target)
  return new DataView(host.buffer)
}

function launchShape(options: LaunchOptions): number[] {
  const view = written(() => shape.launch(options, { ptr: target }))
  return Array.from({ length: 7 }, (_, index) => view.getUint32(4 * index, true))
}

describe('kernels on a GPU', () => {
  it('get every kind of argument', () => {
    const structure = Uint8Array.from({ length: 16 }, (_, index) => 0xf0 - index)
    const rows: readonly (readonly KernelArgument[])[] = [
      [-5, 4_000_000_000, 0.5, 200, 0.1, -300, structure, -(2 ** 40) - 7],
      [2 ** 31 - 1, -1, -3.25, 0, -Infinity, 32_767, structure, Number.MAX_SAFE_INTEGER],
      [-(2 ** 31), 0, 0, -1, Number.MIN_VALUE, -32_768, new Uint8Array(16), Number.MIN_SAFE_INTEGER],
    ]
    for (const row of rows) {
      const view = written(() => echo.launch(ONE, { ptr: target }, ...row))
      const [signed, unsigned, single, byte, double, short, bytes, wide] = row as number[]
      assert.equal(view.getBigInt64(0, true), BigInt(signed))
      assert.equal(view.getBigUint64(8, true), BigInt(unsigned >>> 0))
      assert.equal(view.getFloat32(16, true), single)
      assert.equal(view.getBigUint64(24, true), BigInt(byte & 0xff))
      assert.equal(view.getFloat64(32, true), double)
      assert.equal(view.getBigInt64(40, true), BigInt(short))
      assert.deepEqual(new Uint8Array(view.buffer, 48, 16), bytes)
      assert.equal(view.getBigInt64(64, true), BigInt(wide))
    }
  })

  it('take their arguments as they are at the call, and run in their stream', () => {
    using stream = gpu.createStream()
    const structure = new Uint8Array(16).fill(1)
    const view = written(() => {
      const release = gpu.hold(stream)
      echo.launch({ ...ONE, stream }, { ptr: target }, 1, 1, 1, 1, 1, 1, structure, 1)
      structure.fill(2)
      assert.throws(() => echo.launch(ONE, { ptr: target }, 9, 9, 9, 9, 9, 9, structure, 2 ** 53), RangeError)
      assert.equal(stream.query(), false)
      const host = new Uint8Array(8)
      gpu.driver.cuMemcpyDtoH(host, target)
      assert.equal(host[0], 0, 'nothing ran yet')
      release()
    })
    assert.deepEqual([view.getUint8(0), view.getUint8(48), view.getUint8(63)], [1, 1, 1])
  })

  it('run in the given shape', () => {
    assert.deepEqual(launchShape(ONE), [1, 1, 1, 1, 1, 1, 0])
    assert.deepEqual(launchShape({ grid: [3], block: [32, 2] }), [3, 1, 1, 32, 2, 1, 0])
    assert.deepEqual(launchShape({ grid: [4, 3, 2], block: [8, 4, 16], sharedBytes: 4096 }), [4, 3, 2, 8, 4, 16, 4096])
    assert.deepEqual(launchShape({ grid: 100_000, block: 1024 }), [100_000, 1, 1, 1024, 1, 1, 0])
  })

  it('a launch beyond the limits of the device is refused by name', () => {
    const refused: readonly [options: LaunchOptions, message: RegExp][] = [
      [{ grid: 1, block: 1025 }, /block must be .* from 1 to 1024/],
      [{ grid: 1, block: [32, 32, 2] }, /block has 2048 threads/],
      [{ grid: 1, block: [1, 1, 65] }, /block z must be .* to 64/],
      [{ grid: [1, 65_536], block: 1 }, /grid y must be .* to 65535/],
      [{ grid: 1, block: 1, sharedBytes: 2 ** 20 }, /sharedBytes must be/],
    ]
    for (const [options, message] of refused) {
      assert.throws(() => shape.launch(options, { ptr: target }), { name: 'RangeError', message })
      assert.deepEqual(launchShape(ONE), [1, 1, 1, 1, 1, 1, 0])
    }
  })

  it('get more shared memory than every kernel may have', () => {
    assert.equal(launchShape({ ...ONE, sharedBytes: 96 * 1024 })[6], 96 * 1024)
    assert.equal(launchShape({ ...ONE, sharedBytes: 64 * 1024 })[6], 64 * 1024)
  })

  it("all blocks of a cooperative launch run together, and a grid beyond the device's room is refused", () => {
    const { blocks } = shape.occupancy(1024)
    assert.ok(blocks >= 1)
    assert.deepEqual(launchShape({ grid: blocks, block: 1024, cooperative: true }).slice(0, 1), [blocks])
    const beyond = () => shape.launch({ grid: blocks + 1, block: 1024, cooperative: true }, { ptr: target })
    assert.throws(beyond, { name: 'RangeError', message: /a cooperative grid of \d+ blocks is too large/ })
    const suggested = shape.suggestShape()
    assert.equal(suggested.grid, shape.occupancy(suggested.block).blocks)
    const { mostBlockThreads, registers } = shape.resources()
    assert.ok(mostBlockThreads === 1024 && registers > 0)
  })

  it("PTX that the driver refuses is a CudaError with the compiler's message", () => {
    const broken = PTX.replace('st.f32', 'store.f32')
    assert.throws(() => new Module(gpu.context, gpu.defaultStream, broken), {
      name: 'CudaError',
      resultName: 'CUDA_ERROR_INVALID_PTX',
      message: /line \d+.*store/s,
    })
  })

  it('a module closes while its kernel runs, and is closed for good', () => {
    using stream = gpu.createStream()
    const closing = new Module(gpu.context, gpu.defaultStream, PTX)
    const kernel = closing.kernel('shape')
    const view = written(() => {
      gpu.spin(stream, 5)
      kernel.launch({ ...ONE, stream }, { ptr: target })
      closing.close()
      closing.close()
    })
    assert.equal(view.getUint32(0, true), 1)
    const refused = { name: 'PoolError', message: /module is closed/ }
    assert.throws(() => kernel.launch(ONE, { ptr: target }), refused)
    assert.throws(() => closing.kernel('shape'), refused)
    assert.deepEqual(launchShape(ONE), [1, 1, 1, 1, 1, 1, 0])
  })

  it('a graph runs after the module of its kernels was closed', () => {
    using stream = gpu.createStream()
    const closing = new Module(gpu.context, gpu.defaultStream, PTX)
    stream.beginCapture()
    closing.kernel('shape').launch({ grid: 2, block: 3, stream }, { ptr: target })
    const graph = stream.endCapture()
    closing.close()
    const view = written(() => graph.launch(stream))
    assert.deepEqual([view.getUint32(0, true), view.getUint32(12, true)], [2, 3])
    graph.close()
  })
})
