import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedOptions } from '../options.js'

function openWithStreams(options: SimulatedOptions = {}) {
  const driver = openSimulated({ progress: 'eager', ...options })
  const [a, b] = [0, 0].map(() => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
  const pool = driver.cuDeviceGetDefaultMemPool(0)
  const attribute = (which: keyof typeof POOL_ATTRIBUTE) => driver.cuMemPoolGetAttribute(pool, POOL_ATTRIBUTE[which])
  const reserved = () => attribute('CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT')
  const keep = (bytes: number) =>
    driver.cuMemPoolSetAttribute(pool, POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
  return { driver, a, b, pool, attribute, reserved, keep }
}

test('a freed block serves its own stream at once, and another stream after the free has completed', () => {
  const { driver, a, b } = openWithStreams()
  const ptr = driver.cuMemAllocAsync(MiB, a)
  const ticket = driver.holdOperation(a)
  driver.cuMemFreeAsync(ptr, a)
  assert.equal(driver.cuMemAllocAsync(MiB, a), ptr)
  driver.cuMemFreeAsync(ptr, a)
  const elsewhere = driver.cuMemAllocAsync(MiB, b)
  assert.notEqual(elsewhere, ptr)
  driver.releaseThrough(a, ticket)
  assert.equal(driver.cuMemAllocAsync(MiB, b), ptr)
})

test('a stream that waits for the free gets the block before the free completes', () => {
  const { driver, a, b } = openWithStreams()
  const ptr = driver.cuMemAllocAsync(MiB, a)
  driver.holdOperation(a)
  driver.cuMemFreeAsync(ptr, a)
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  driver.cuEventRecord(event, a)
  driver.cuStreamWaitEvent(b, event)
  assert.equal(driver.cuMemAllocAsync(MiB, b), ptr)
  assert.equal(driver.cuEventQuery(event), false)
})

test('a full device makes a stream wait for the memory of another, before it refuses', () => {
  const { driver, a, b, reserved } = openWithStreams({ capacityBytes: 64 * MiB })
  const ptr = driver.cuMemAllocAsync(64 * MiB, a)
  driver.holdOperation(a)
  driver.cuMemFreeAsync(ptr, a)
  assert.equal(driver.cuStreamQuery(b), true)
  assert.equal(driver.cuMemAllocAsync(64 * MiB, b), ptr)
  assert.equal(driver.cuStreamQuery(b), false)
  refuses(() => driver.cuMemAllocAsync(1, a), 'cuMemAllocAsync', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
  driver.cuMemFreeAsync(ptr, b)
  driver.cuCtxSynchronize()
  assert.equal(reserved(), 0)
  assert.equal(driver.usedBytes(), 0)
})

test('on a full device unused chunks are released before a refusal', () => {
  const { driver, a, keep } = openWithStreams({ capacityBytes: 64 * MiB })
  keep(Infinity)
  const blocks = [1, 2].map(() => driver.cuMemAllocAsync(32 * MiB, a))
  for (const ptr of blocks) driver.cuMemFreeAsync(ptr, a)
  driver.cuStreamSynchronize(a)
  driver.cuMemAllocAsync(64 * MiB, a)
})

test('memory above the threshold is released at any kind of synchronisation', () => {
  const { driver, a, b, keep, reserved } = openWithStreams()
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  const synchronisations = [
    () => driver.cuCtxSynchronize(),
    () => driver.cuStreamSynchronize(b),
    () => driver.cuEventSynchronize(event),
  ]
  for (const synchronise of synchronisations) {
    driver.cuMemFreeAsync(driver.cuMemAllocAsync(100 * MiB, a), a)
    assert.equal(reserved(), 128 * MiB)
    synchronise()
    assert.equal(reserved(), 0)
  }
  keep(40 * MiB)
  const blocks = [1, 2, 3].map(() => driver.cuMemAllocAsync(32 * MiB, a))
  for (const ptr of blocks) driver.cuMemFreeAsync(ptr, a)
  driver.cuStreamSynchronize(a)
  assert.equal(reserved(), 32 * MiB)
})

test('a trim keeps at least the given bytes, and memory whose free was not seen complete', () => {
  const { driver, a, pool, keep, reserved } = openWithStreams()
  keep(Infinity)
  const blocks = [1, 2, 3].map(() => driver.cuMemAllocAsync(32 * MiB, a))
  for (const ptr of blocks) driver.cuMemFreeAsync(ptr, a)
  driver.cuMemPoolTrimTo(pool, 0)
  assert.equal(reserved(), 96 * MiB)
  driver.cuStreamSynchronize(a)
  driver.cuMemPoolTrimTo(pool, 33 * MiB)
  assert.equal(reserved(), 64 * MiB)
  driver.cuMemPoolTrimTo(pool, 0)
  assert.equal(reserved(), 0)
})

test('cuMemFree frees pool memory after a wait, and refuses wrong pointers', () => {
  const { driver, a, attribute } = openWithStreams()
  const ptr = driver.cuMemAllocAsync(MiB, a)
  driver.holdOperation(a)
  const { CUDA_ERROR_INVALID_VALUE } = RESULT
  refuses(() => driver.cuMemFreeAsync(ptr + 512, a), 'cuMemFreeAsync', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemFreeAsync(driver.cuMemAlloc(1), a), 'cuMemFreeAsync', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemFree(ptr)
  assert.equal(driver.cuStreamQuery(a), true)
  assert.equal(attribute('CU_MEMPOOL_ATTR_USED_MEM_CURRENT'), 0)
  refuses(() => driver.cuMemFreeAsync(ptr, a), 'cuMemFreeAsync', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemFree(ptr), 'cuMemFree', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemAllocAsync(0, a), 'cuMemAllocAsync', CUDA_ERROR_INVALID_VALUE)
})

test('random use: live blocks never overlap, pending memory stays with its stream, and all memory is returned', () => {
  for (let seed = 0; seed < 20; seed++) {
    const random = new Random(seed)
    const { driver, a, b, attribute, keep } = openWithStreams({ seed, progress: 'seeded', capacityBytes: GiB })
    keep(random.below(2) === 0 ? 0 : Infinity)
    const live: { ptr: number; bytes: number; stream: number; stamp: number }[] = []
    const verify = ({ ptr, bytes, stream, stamp }: (typeof live)[0]) => {
      const word = new Uint32Array(1)
      driver.cuMemcpyDtoHAsync(word, ptr + bytes - 4, stream)
      assert.equal(word[0], stamp)
    }
    for (let step = 0; step < 400; step++) {
      const stream = random.below(2) === 0 ? a : b
      if (random.below(20) === 0) driver.cuStreamSynchronize(stream)
      else if (live.length > 0 && random.below(100) < 45) {
        const [block] = live.splice(random.below(live.length), 1)
        if (random.below(4) === 0) verify(block)
        driver.cuMemFreeAsync(block.ptr, block.stream)
      } else {
        const bytes = 4 * random.logUniform(1, 4 * MiB)
        const ptr = driver.cuMemAllocAsync(bytes, stream)
        driver.cuMemsetD32Async(ptr, step, bytes / 4, stream)
        live.push({ ptr, bytes, stream, stamp: step })
      }
      assert.equal(driver.usedBytes(), attribute('CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT'))
    }
    live.sort((x, y) => x.ptr - y.ptr)
    for (let i = 1; i < live.length; i++) assert.ok(live[i - 1].ptr + live[i - 1].bytes <= live[i].ptr)
    const rounded = live.reduce((sum, { bytes }) => sum + Math.ceil(bytes / 512) * 512, 0)
    assert.equal(attribute('CU_MEMPOOL_ATTR_USED_MEM_CURRENT'), rounded)
    for (const block of live) {
      verify(block)
      driver.cuMemFreeAsync(block.ptr, block.stream)
    }
    keep(0)
    driver.cuCtxSynchronize()
    assert.equal(driver.usedBytes(), 0)
  }
})

test('pools can be switched off', () => {
  const driver = openSimulated({ memoryPools: false })
  assert.equal(driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0), 0)
  const { CUDA_ERROR_NOT_SUPPORTED } = RESULT
  refuses(() => driver.cuDeviceGetDefaultMemPool(0), 'cuDeviceGetDefaultMemPool', CUDA_ERROR_NOT_SUPPORTED)
  refuses(() => driver.cuMemAllocAsync(1, 0), 'cuMemAllocAsync', CUDA_ERROR_NOT_SUPPORTED)
})
