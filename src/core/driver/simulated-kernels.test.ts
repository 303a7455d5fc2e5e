import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CudaError, DeviceLostError } from '../base/errors.js'
import { RESULT } from './constants.js'
import { refuses } from './contract/refuses.fixture.js'
import { openSimulated } from './simulated/opened.fixture.js'
import { parsePtxEntries, registerSimulatedKernel, threadCount } from './simulated-kernels.js'

const PTX = `
// .entry not_this_one()
.version 6.4
.target sm_50
.address_size 64
.visible .entry scale_test(
  .param .u64 values,
  .param .f32 factor,
  .param .u32 count
)
{ ret; }
.entry broken_test() { ret; }
.entry unregistered_test() { ret; }
.entry driving_test() { ret; }
`

registerSimulatedKernel('scale_test', ({ shape, args, memory }) => {
  const count = Math.min(threadCount(shape), args.uint32(2))
  const values = memory.load(Float32Array, args.pointer(0), count)
  memory.store(
    args.pointer(0),
    values.map(value => value * args.float32(1)),
  )
})
registerSimulatedKernel('broken_test', () => {
  throw new Error('a mistake in the function')
})

const shape = { grid: [2, 1, 1], block: [32, 2, 1], sharedBytes: 0 } as const

function scaleArguments(ptr: number, factor: number, count: number) {
  const bytes = new Uint8Array(16)
  const view = new DataView(bytes.buffer)
  view.setBigUint64(0, BigInt(ptr), true)
  view.setFloat32(8, factor, true)
  view.setUint32(12, count, true)
  return { bytes, offsets: [0, 8, 12] }
}

test('a launch runs the registered function in stream order, with the arguments at the call', () => {
  for (const image of [PTX, new TextEncoder().encode(`${PTX}\0`)]) {
    const driver = openSimulated()
    const stream = driver.cuStreamCreate(1)
    const module = driver.cuModuleLoadData(image)
    const kernel = driver.cuModuleGetFunction(module, 'scale_test')
    const ptr = driver.cuMemAlloc(400)
    driver.cuMemcpyHtoDAsync(ptr, new Float32Array(100).fill(1), stream)
    const args = scaleArguments(ptr, 3, 99)
    driver.cuLaunchKernel(kernel, shape, stream, args)
    args.bytes.fill(0)
    driver.cuLaunchKernel(kernel, { ...shape, grid: [1, 1, 1] }, stream, scaleArguments(ptr, 2, 99))
    const host = new Float32Array(100)
    driver.cuMemcpyDtoHAsync(host, ptr, stream)
    assert.deepEqual([host[0], host[63], host[64], host[98], host[99]], [6, 6, 3, 3, 1])
    driver.cuModuleUnload(module)
    const launch = () => driver.cuLaunchKernel(kernel, shape, stream, args)
    refuses(launch, 'cuLaunchKernel', RESULT.CUDA_ERROR_INVALID_HANDLE)
    refuses(() => driver.cuModuleUnload(module), 'cuModuleUnload', RESULT.CUDA_ERROR_INVALID_HANDLE)
  }
})

test('wrong images, names, shapes and argument counts are refused', () => {
  const driver = openSimulated()
  const load = (image: string | Uint8Array) => () => driver.cuModuleLoadData(image)
  refuses(load('hello'), 'cuModuleLoadData', RESULT.CUDA_ERROR_INVALID_PTX)
  refuses(load('.version 6.4\n.func f() {}'), 'cuModuleLoadData', RESULT.CUDA_ERROR_INVALID_PTX)
  refuses(load('.entry f() {}'), 'cuModuleLoadData', RESULT.CUDA_ERROR_INVALID_PTX)
  const cubin = new Uint8Array([0x7f, 0x45, 0x4c, 0x46, 2])
  refuses(load(cubin), 'cuModuleLoadData', RESULT.CUDA_ERROR_INVALID_IMAGE)
  const module = driver.cuModuleLoadData(PTX)
  const find = (name: string) => () => driver.cuModuleGetFunction(module, name)
  refuses(find('not_this_one'), 'cuModuleGetFunction', RESULT.CUDA_ERROR_NOT_FOUND)
  assert.throws(find('unregistered_test'), (error: unknown) => {
    assert.ok(error instanceof CudaError && error.result === RESULT.CUDA_ERROR_NOT_SUPPORTED)
    return /register a TypeScript function for kernel unregistered_test/.test(error.message)
  })
  const kernel = driver.cuModuleGetFunction(module, 'scale_test')
  const args = scaleArguments(driver.cuMemAlloc(400), 1, 1)
  const wrong = [
    { ...shape, block: [1025, 1, 1] },
    { ...shape, block: [32, 64, 1] },
    { ...shape, block: [1, 1, 65] },
    { ...shape, grid: [1, 65_536, 1] },
    { ...shape, grid: [0, 1, 1] },
    { ...shape, grid: [1.5, 1, 1] },
    { ...shape, sharedBytes: 49_153 },
  ] as const
  for (const each of wrong) {
    const launch = () => driver.cuLaunchKernel(kernel, each as unknown as typeof shape, 0, args)
    refuses(launch, 'cuLaunchKernel', RESULT.CUDA_ERROR_INVALID_VALUE)
  }
  const fewer = { bytes: args.bytes, offsets: [0, 8] }
  refuses(() => driver.cuLaunchKernel(kernel, shape, 0, fewer), 'cuLaunchKernel', RESULT.CUDA_ERROR_INVALID_VALUE)
  driver.cuLaunchKernel(kernel, shape, 0, args)
  driver.cuCtxSynchronize()
})

test('a kernel cannot call the driver, and its error is the cause of the fault', () => {
  for (const progress of ['eager', 'seeded'] as const) {
    const driver = openSimulated({ progress })
    const refused: unknown[] = []
    registerSimulatedKernel('driving_test', () => {
      try {
        driver.cuStreamSynchronize(0)
      } catch (error) {
        refused.push(error)
        throw error
      }
    })
    const kernel = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), 'driving_test')
    driver.cuLaunchKernel(kernel, shape, 0, { bytes: new Uint8Array(0), offsets: [] })
    assert.throws(
      () => driver.cuCtxSynchronize(),
      (error: unknown) => error instanceof CudaError && error.cause === refused[0],
    )
    assert.equal((refused[0] as CudaError).result, RESULT.CUDA_ERROR_NOT_PERMITTED)
  }
})

test('a kernel that throws, or accesses other memory, ends its context', () => {
  for (const [name, code, detail] of [
    ['scale_test', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, /nothing is allocated/],
    ['broken_test', RESULT.CUDA_ERROR_LAUNCH_FAILED, /a mistake in the function/],
  ] as const) {
    const driver = openSimulated()
    const kernel = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), name)
    const args =
      name === 'scale_test' ? scaleArguments(driver.cuMemAlloc(100), 1, 26) : { bytes: new Uint8Array(0), offsets: [] }
    driver.cuLaunchKernel(kernel, shape, 0, args)
    assert.throws(
      () => driver.cuCtxSynchronize(),
      (error: unknown) => error instanceof CudaError && error.result === code && detail.test(error.message),
    )
    assert.throws(() => driver.cuCtxSynchronize(), DeviceLostError)
  }
})

test('entries are found with their parameter counts', () => {
  assert.deepEqual(
    parsePtxEntries(PTX),
    new Map([
      ['scale_test', 3],
      ['broken_test', 0],
      ['unregistered_test', 0],
      ['driving_test', 0],
    ]),
  )
  assert.throws(() => registerSimulatedKernel('', () => {}), TypeError)
  assert.throws(() => registerSimulatedKernel('x', 1 as never), TypeError)
})
