import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB, TiB } from '../../../base/bytes.js'
import { CU_MEM_ATTACH_GLOBAL, CU_STREAM_NON_BLOCKING, DEVICE_ATTRIBUTE, RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'

test('all devices have access to managed memory, which takes no device memory', () => {
  const driver = openSimulated({ devices: 2, capacityBytes: MiB, progress: 'eager', peerAccess: false })
  const ptr = driver.cuMemAllocManaged(4 * MiB, CU_MEM_ATTACH_GLOBAL)
  assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1), driver.usedHostBytes()], [0, 0, 4 * MiB])
  assert.equal(driver.cuMemGetInfo().freeBytes, MiB)
  driver.cuMemsetD8Async(ptr, 3, 4 * MiB, 0)
  driver.cuCtxSynchronize()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  const host = new Uint8Array(1)
  driver.cuMemcpyDtoH(host, ptr + 4 * MiB - 1)
  assert.equal(host[0], 3)
  driver.cuMemFree(ptr)
  assert.equal(driver.usedHostBytes(), 0)
})

test('a free of managed memory waits for the context that made it, whichever context is current', () => {
  const driver = openSimulated({ devices: 2, progress: 'eager' })
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const ptr = driver.cuMemAllocManaged(MiB, CU_MEM_ATTACH_GLOBAL)
  driver.holdOperation(stream)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  assert.equal(driver.cuStreamQuery(stream), false)
  driver.cuMemFree(ptr)
  assert.equal(driver.cuStreamQuery(stream), true)
})

test('managed memory ends with its context, and host memory is limited', () => {
  const driver = openSimulated()
  driver.cuMemAllocManaged(1, CU_MEM_ATTACH_GLOBAL)
  const { CUDA_ERROR_OUT_OF_MEMORY } = RESULT
  refuses(() => driver.cuMemAllocManaged(4 * TiB, CU_MEM_ATTACH_GLOBAL), 'cuMemAllocManaged', CUDA_ERROR_OUT_OF_MEMORY)
  driver.cuDevicePrimaryCtxRelease(0)
  assert.equal(driver.usedHostBytes(), 0)
})

test('managed memory can be switched off', () => {
  const driver = openSimulated({ managedMemory: false })
  assert.equal(driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0), 0)
  const allocate = () => driver.cuMemAllocManaged(MiB, CU_MEM_ATTACH_GLOBAL)
  refuses(allocate, 'cuMemAllocManaged', RESULT.CUDA_ERROR_NOT_SUPPORTED)
})
