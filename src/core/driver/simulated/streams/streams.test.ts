import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { DeviceLostError } from '../../../base/errors.js'
import { CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import { SimulatedDriver } from '../simulated-driver.js'

const eager = { progress: 'eager' } as const

test('a held operation keeps its stream busy until it is released', () => {
  const driver = openSimulated(eager)
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  const tickets = [1, 2, 3].map(() => driver.holdOperation(stream))
  assert.ok(tickets[0] < tickets[1] && tickets[1] < tickets[2])
  driver.cuEventRecord(event, stream)
  driver.releaseThrough(stream, tickets[1])
  assert.deepEqual([driver.cuStreamQuery(stream), driver.cuEventQuery(event)], [false, false])
  driver.releaseThrough(stream, tickets[2])
  assert.deepEqual([driver.cuStreamQuery(stream), driver.cuEventQuery(event)], [true, true])
  assert.throws(() => driver.releaseThrough(stream, tickets[2] + 100), RangeError)
  assert.throws(() => driver.holdOperation(12345), RangeError)
})

test('a wait completes held operations up to its position, and no further', () => {
  const driver = openSimulated(eager)
  const [a, b] = [0, 0].map(() => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  driver.holdOperation(a)
  driver.cuEventRecord(event, a)
  driver.holdOperation(a)
  driver.cuStreamWaitEvent(b, event)
  driver.holdOperation(b)
  driver.cuEventSynchronize(event)
  assert.deepEqual([driver.cuEventQuery(event), driver.cuStreamQuery(a), driver.cuStreamQuery(b)], [true, false, false])
  driver.cuStreamSynchronize(b)
  assert.deepEqual([driver.cuStreamQuery(a), driver.cuStreamQuery(b)], [false, true])
  driver.cuMemFree(driver.cuMemAlloc(1))
  assert.equal(driver.cuStreamQuery(a), true)
})

test('synchronising the legacy stream waits for the blocking streams', () => {
  const driver = openSimulated(eager)
  const [blocking, other] = [0, CU_STREAM_NON_BLOCKING].map(flags => driver.cuStreamCreate(flags))
  for (const stream of [blocking, other]) driver.holdOperation(stream)
  driver.cuStreamSynchronize(0)
  assert.deepEqual(
    [blocking, other, 0].map(stream => driver.cuStreamQuery(stream)),
    [true, false, true],
  )
  driver.holdOperation(blocking)
  assert.equal(driver.cuStreamQuery(0), false)
})

test('a held operation on the legacy stream delays blocking streams only', () => {
  const driver = openSimulated(eager)
  const blocking = driver.cuStreamCreate(0)
  const other = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const ptr = driver.cuMemAlloc(MiB)
  const ticket = driver.holdOperation(0)
  driver.cuMemsetD8Async(ptr, 1, 1, blocking)
  driver.cuMemsetD8Async(ptr + 1, 1, 1, other)
  assert.deepEqual([driver.cuStreamQuery(blocking), driver.cuStreamQuery(other)], [false, true])
  driver.releaseThrough(0, ticket)
  assert.equal(driver.cuStreamQuery(blocking), true)
})

test('holding and releasing are not counted and cost nothing', () => {
  const driver = openSimulated(eager)
  const before = [driver.modelledSeconds, driver.calls.size]
  driver.releaseThrough(0, driver.holdOperation(0))
  assert.deepEqual([driver.modelledSeconds, driver.calls.size], before)
})

test('registered memory is read and written when the copy runs, pageable memory at the call', () => {
  const driver = openSimulated(eager)
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const ptr = driver.cuMemAlloc(64)
  const [pinned, pageable, down] = [new Uint8Array(16).fill(1), new Uint8Array(16).fill(1), new Uint8Array(16)]
  driver.cuMemHostRegister(pinned, 0)
  driver.cuMemHostRegister(down, 0)
  const ticket = driver.holdOperation(stream)
  driver.cuMemcpyHtoDAsync(ptr, pinned, stream)
  driver.cuMemcpyHtoDAsync(ptr + 16, pageable, stream)
  driver.cuMemcpyDtoHAsync(down, ptr, stream)
  pinned.fill(2)
  pageable.fill(2)
  assert.equal(down[0], 0)
  driver.releaseThrough(stream, ticket)
  assert.equal(down[0], 2)
  driver.cuMemcpyDtoH(down, ptr + 16)
  assert.equal(down[0], 1)
  driver.holdOperation(stream)
  driver.cuMemcpyDtoHAsync(new Uint8Array(16), ptr, stream) // pageable: waits
  assert.equal(driver.cuStreamQuery(stream), true)
})

test('unregistering memory waits for a pending copy of its context; one of another context kills that', () => {
  const driver = openSimulated({ ...eager, devices: 2 })
  const host = new Uint8Array(16).fill(5)
  const ptr = driver.cuMemAlloc(16)
  const down = new Uint8Array(16)
  driver.cuMemHostRegister(host, 0)
  driver.holdOperation(0)
  driver.cuMemcpyHtoDAsync(ptr, host, 0)
  driver.cuMemHostUnregister(host)
  driver.cuMemcpyDtoH(down, ptr)
  assert.equal(down[0], 5)
  driver.cuMemHostRegister(host, 0)
  driver.holdOperation(0)
  driver.cuMemcpyHtoDAsync(ptr, host, 0)
  const first = driver.cuDevicePrimaryCtxRetain(0)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  driver.cuMemHostUnregister(host)
  driver.cuCtxSetCurrent(first)
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS)
  assert.throws(() => driver.cuMemAlloc(1), DeviceLostError)
})

test('handles are used again after a destroy, ids are not, and a stale handle is refused', () => {
  const driver = openSimulated()
  const stream = driver.cuStreamCreate(0)
  const id = driver.cuStreamGetId(stream)
  driver.cuStreamDestroy(stream)
  const { CUDA_ERROR_INVALID_HANDLE } = RESULT
  for (const use of ['cuStreamDestroy', 'cuStreamSynchronize', 'cuStreamQuery', 'cuStreamGetId'] as const) {
    refuses(() => driver[use](stream), use, CUDA_ERROR_INVALID_HANDLE)
  }
  assert.equal(driver.cuStreamCreate(0), stream)
  assert.notEqual(driver.cuStreamGetId(stream), id)
  refuses(() => driver.cuStreamQuery(stream + 1), 'cuStreamQuery', CUDA_ERROR_INVALID_HANDLE)
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  driver.cuEventDestroy(event)
  refuses(() => driver.cuEventQuery(event), 'cuEventQuery', CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuEventDestroy(event), 'cuEventDestroy', CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuEventRecord(stream, stream), 'cuEventRecord', CUDA_ERROR_INVALID_HANDLE)
  assert.equal(driver.cuEventCreate(CU_EVENT_DISABLE_TIMING), event)
})

test('seeded work completes late: an unordered reader sees old contents for some seeds', () => {
  const seen = new Set<number>()
  for (let seed = 0; seed < 40; seed++) {
    const driver = openSimulated({ seed })
    const [a, b] = [0, 0].map(() => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
    const ptr = driver.cuMemAlloc(16)
    driver.cuMemsetD8Async(ptr, 1, 16, 0)
    driver.cuCtxSynchronize()
    driver.cuMemsetD8Async(ptr, 2, 16, a)
    const host = new Uint8Array(1)
    driver.cuMemcpyDtoHAsync(host, ptr, b)
    seen.add(host[0])
  }
  assert.deepEqual([...seen].sort(), [1, 2])
})

test('fresh memory holds garbage, different each time, and the same in each run', () => {
  const words = [1, 2].map(() => {
    const driver = openSimulated()
    return [1, 2, 3].map(() => {
      const ptr = driver.cuMemAlloc(4)
      const word = new Uint32Array(1)
      driver.cuMemcpyDtoH(word, ptr)
      driver.cuMemFree(ptr)
      return word[0]
    })
  })
  assert.deepEqual(words[0], words[1])
  assert.equal(new Set(words[0]).size, 3)
  assert.ok(!words[0].includes(0))
})

test('a full device refuses, and serves again after a free', () => {
  const driver = openSimulated({ capacityBytes: GiB })
  const ptr = driver.cuMemAlloc(GiB - MiB)
  refuses(() => driver.cuMemAlloc(MiB + 1), 'cuMemAlloc', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
  assert.deepEqual(driver.cuMemGetInfo(), { freeBytes: MiB, totalBytes: GiB })
  driver.cuMemFree(ptr)
  driver.cuMemFree(driver.cuMemAlloc(GiB))
  refuses(() => driver.cuMemFree(ptr + 512), 'cuMemFree', RESULT.CUDA_ERROR_INVALID_VALUE)
  assert.equal(driver.usedBytes(), 0)
})

test('accesses are checked to the byte at the call', () => {
  const driver = openSimulated()
  const ptr = driver.cuMemAlloc(100)
  driver.cuMemcpyHtoD(ptr, new Uint8Array(100))
  const { CUDA_ERROR_INVALID_VALUE } = RESULT
  refuses(() => driver.cuMemcpyHtoD(ptr, new Uint8Array(101)), 'cuMemcpyHtoD', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemsetD8Async(ptr + 50, 0, 51, 0), 'cuMemsetD8Async', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemcpyDtoD(ptr, ptr + 1, 100), 'cuMemcpyDtoD', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemsetD16Async(ptr + 1, 0, 1, 0), 'cuMemsetD16Async', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemsetD32Async(ptr + 2, 0, 1, 0), 'cuMemsetD32Async', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemFree(ptr)
  refuses(() => driver.cuMemcpyHtoD(ptr, new Uint8Array(1)), 'cuMemcpyHtoD', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemcpyHtoD(ptr, new Uint8Array(0))
})

test('several devices have memory and contexts of their own', () => {
  const driver = openSimulated({ devices: 2, capacityBytes: GiB })
  const stream = driver.cuStreamCreate(0)
  const ptr = driver.cuMemAlloc(512 * MiB)
  const second = driver.cuDevicePrimaryCtxRetain(1)
  driver.cuCtxSetCurrent(second)
  assert.equal(driver.cuMemGetInfo().freeBytes, GiB)
  const here = driver.cuMemAlloc(1)
  refuses(() => driver.cuMemsetD8Async(here, 0, 1, stream), 'cuMemsetD8Async', RESULT.CUDA_ERROR_INVALID_HANDLE)
  assert.notEqual(driver.cuStreamGetCtx(stream), second)
  driver.cuMemFree(ptr) // allowed while another device is current
  assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 512])
})

test('one device orders its work after an event of another', () => {
  const driver = openSimulated({ devices: 2, ...eager })
  const a = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  const ticket = driver.holdOperation(a)
  driver.cuEventRecord(event, a)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  const b = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  driver.cuStreamWaitEvent(b, event)
  assert.equal(driver.cuStreamQuery(b), false)
  refuses(() => driver.cuEventRecord(event, b), 'cuEventRecord', RESULT.CUDA_ERROR_INVALID_HANDLE)
  driver.releaseThrough(a, ticket)
  assert.equal(driver.cuStreamQuery(b), true)
})

test('the last release ends the context with its streams and linear memory', () => {
  const driver = openSimulated()
  const stream = driver.cuStreamCreate(0)
  const ptr = driver.cuMemAlloc(MiB)
  driver.cuMemsetD8Async(ptr, 1, MiB, stream)
  driver.cuDevicePrimaryCtxRelease(0)
  assert.equal(driver.usedBytes(), 0)
  refuses(() => driver.cuMemAlloc(1), 'cuMemAlloc', RESULT.CUDA_ERROR_INVALID_CONTEXT)
  refuses(() => driver.cuDevicePrimaryCtxRelease(0), 'cuDevicePrimaryCtxRelease', RESULT.CUDA_ERROR_INVALID_CONTEXT)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
  refuses(() => driver.cuStreamQuery(stream), 'cuStreamQuery', RESULT.CUDA_ERROR_INVALID_HANDLE)
})

test('calls before cuInit and without a context are refused', () => {
  const driver = new SimulatedDriver()
  assert.ok(driver.cuDriverGetVersion() > 0)
  refuses(() => driver.cuDeviceGetCount(), 'cuDeviceGetCount', RESULT.CUDA_ERROR_NOT_INITIALIZED)
  driver.cuInit()
  refuses(() => driver.cuMemAlloc(1), 'cuMemAlloc', RESULT.CUDA_ERROR_INVALID_CONTEXT)
  refuses(() => driver.cuCtxSetCurrent(77), 'cuCtxSetCurrent', RESULT.CUDA_ERROR_INVALID_CONTEXT)
})

test('happensBefore: a wait for one context covers work of other contexts that its streams have waited for', () => {
  for (const isDestroyed of [false, true]) {
    const driver = openSimulated({ devices: 2, progress: 'eager' })
    const contexts = [0, 1].map(ordinal => driver.cuDevicePrimaryCtxRetain(ordinal))
    const [stream, other, peer] = [contexts[0], contexts[0], contexts[1]].map(context => {
      driver.cuCtxSetCurrent(context)
      return driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    })
    const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    const point = driver.submitted(peer)
    driver.cuEventRecord(event, peer)
    driver.cuCtxSetCurrent(contexts[0])
    const after = { ...point, position: point.position + 1 } // the position of the event record
    driver.cuStreamWaitEvent(stream, event)
    if (isDestroyed) driver.cuStreamDestroy(stream)
    assert.equal(driver.happensBefore(after, other), false)
    driver.cuCtxSynchronize()
    assert.equal(driver.happensBefore(after, other), true)
  }
})

test('happensBefore: the same stream, events over several streams, and work that the host has seen complete', () => {
  for (const progress of ['eager', 'seeded'] as const) {
    const driver = openSimulated({ progress })
    const [a, b, c] = [0, 0, 0].map(() => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
    const signal = (earlier: number, later: number) => {
      const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
      driver.cuEventRecord(event, earlier)
      driver.cuStreamWaitEvent(later, event)
    }
    driver.holdOperation(a)
    const work = driver.submitted(a)
    const before = () => [a, b, c].map(stream => driver.happensBefore(work, stream))
    assert.deepEqual(before(), [true, false, false])
    const early = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    driver.cuEventRecord(early, b)
    signal(a, b)
    driver.cuStreamWaitEvent(c, early)
    assert.deepEqual(before(), [true, true, false], 'an event carries what was waited for when it was recorded')
    signal(b, c)
    assert.deepEqual(before(), [true, true, true])

    const [told, other] = [0, 0].map(() => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
    const learn: readonly ((event: number) => void)[] = [
      event => driver.cuEventSynchronize(event),
      () => driver.cuStreamSynchronize(told),
      () => driver.cuCtxSynchronize(),
      event => {
        driver.cuStreamDestroy(told)
        driver.cuEventSynchronize(event)
      },
    ]
    for (const tell of learn) {
      const source = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
      const ticket = driver.holdOperation(source)
      const point = driver.submitted(source)
      driver.releaseThrough(source, ticket)
      assert.equal(driver.happensBefore(point, other), false, 'that it has run is known to nobody')
      signal(source, told)
      driver.cuStreamDestroy(source)
      const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
      driver.cuEventRecord(event, told)
      tell(event)
      assert.equal(driver.happensBefore(point, other), true)
    }
  }
})
