import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KiB } from '../../../base/bytes.js'
import { RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { registerSimulatedKernel } from '../../simulated-kernels.js'
import { openSimulated } from '../opened.fixture.js'

const { CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE } = RESULT
const eager = { progress: 'eager' } as const

test('a kernel reads and writes a registered array when it runs', () => {
  registerSimulatedKernel('host_registry_increment', ({ args, memory }) => {
    const values = memory.load(Int32Array, args.pointer(0), 4)
    memory.store(
      args.pointer(0),
      values.map(value => value + 1),
    )
  })
  const driver = openSimulated(eager)
  const ptx = '.version 6.3\n.visible .entry host_registry_increment(.param .u64 values) {}'
  const kernel = driver.cuModuleGetFunction(driver.cuModuleLoadData(ptx), 'host_registry_increment')
  const host = new Int32Array(new SharedArrayBuffer(16))
  driver.cuMemHostRegister(host, 0)
  const bytes = new Uint8Array(8)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(driver.cuMemHostGetDevicePointer(host)), true)
  const ticket = driver.holdOperation(0)
  driver.cuLaunchKernel(kernel, { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 }, 0, { bytes, offsets: [0] })
  host.set([1, 2, 3, 4])
  driver.releaseThrough(0, ticket)
  assert.deepEqual([...host], [2, 3, 4, 5])
})

test('a view of registered memory has its own address, the same on each device', () => {
  const driver = openSimulated({ ...eager, devices: 2 })
  const buffer = new ArrayBuffer(64 * KiB)
  const host = new Uint8Array(buffer, 4096, 8192)
  driver.cuMemHostRegister(host, 0)
  const ptr = driver.cuMemHostGetDevicePointer(host)
  assert.equal(driver.cuMemHostGetDevicePointer(host.subarray(100, 200)), ptr + 100)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  assert.equal(driver.cuMemHostGetDevicePointer(host), ptr)
  driver.cuMemsetD8Async(ptr + 8191, 3, 1, 0)
  driver.cuMemcpyHtoD(ptr, Uint8Array.of(5))
  assert.deepEqual([host[0], host[1], host[8191]], [5, 0, 3])
  refuses(() => driver.cuMemsetD8Async(ptr, 0, 8193, 0), 'cuMemsetD8Async', CUDA_ERROR_INVALID_VALUE)
  for (const outside of [new Uint8Array(buffer, 4095, 2), new Uint8Array(buffer, 0, 10), new Uint8Array(1)]) {
    const get = () => driver.cuMemHostGetDevicePointer(outside)
    refuses(get, 'cuMemHostGetDevicePointer', CUDA_ERROR_INVALID_VALUE)
  }
  refuses(() => driver.cuMemFree(ptr), 'cuMemFree', CUDA_ERROR_INVALID_VALUE)
})

test('unregistering memory waits for work on its device address; work of another context ends that', () => {
  const driver = openSimulated({ ...eager, devices: 2 })
  const host = new Uint8Array(4096)
  const fill = (value: number) => {
    driver.cuMemHostRegister(host, 0)
    driver.holdOperation(0)
    driver.cuMemsetD8Async(driver.cuMemHostGetDevicePointer(host), value, 4096, 0)
  }
  fill(1)
  driver.cuMemHostUnregister(host)
  assert.equal(host[0], 1)
  fill(2)
  const first = driver.cuDevicePrimaryCtxRetain(0)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  driver.cuMemHostUnregister(host)
  driver.cuCtxSetCurrent(first)
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', CUDA_ERROR_ILLEGAL_ADDRESS)
  assert.equal(host[0], 1)
})
