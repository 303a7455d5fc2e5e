// Captures: result codes and orders of work in the simulation, which may differ on a real driver.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedDriver } from '../simulated-driver.js'
import { ThreadState } from '../thread-state.js'

const BYTES = 512

function streams(driver: SimulatedDriver, flags = CU_STREAM_NON_BLOCKING): number[] {
  return [0, 0, 0].map(() => driver.cuStreamCreate(flags))
}

/** Makes `later` wait for the work submitted to `earlier`. */
function join(driver: SimulatedDriver, earlier: number, later: number): number {
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  driver.cuEventRecord(event, earlier)
  driver.cuStreamWaitEvent(later, event)
  return event
}

/** Sets relaxed mode, so that calls are judged only by their effect on the capture. */
function relax(driver: SimulatedDriver): SimulatedDriver {
  driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED)
  return driver
}

function first(driver: SimulatedDriver, ptr: number): number {
  const host = new Uint8Array(1)
  driver.cuCtxSynchronize()
  driver.cuMemcpyDtoH(host, ptr)
  return host[0]
}

test('captured work runs in any order that its edges allow', () => {
  const outcomes = [new Set<number>(), new Set<number>()]
  for (let seed = 0; seed < 20; seed++) {
    for (const ordered of [false, true]) {
      const driver = openSimulated({ seed })
      const [a, b] = streams(driver)
      const ptr = driver.cuMemAlloc(BYTES)
      driver.cuStreamBeginCapture(a, 0)
      join(driver, a, b)
      driver.cuMemsetD8Async(ptr, 1, BYTES, a)
      if (ordered) join(driver, a, b)
      driver.cuMemsetD8Async(ptr, 2, BYTES, b)
      join(driver, b, a)
      driver.cuGraphLaunch(driver.cuGraphInstantiate(driver.cuStreamEndCapture(a)), a)
      outcomes[Number(ordered)].add(first(driver, ptr))
    }
  }
  assert.deepEqual([...outcomes[0]].sort(), [1, 2])
  assert.deepEqual([...outcomes[1]], [2])
})

test('launches of one graph run one after the other on any streams, and are work of their stream', () => {
  const driver = openSimulated({ progress: 'eager' })
  const [a, b] = streams(driver)
  const ptr = driver.cuMemAlloc(BYTES)
  driver.cuStreamBeginCapture(a, 0)
  driver.cuMemsetD8Async(ptr, 1, BYTES, a)
  const executable = driver.cuGraphInstantiate(driver.cuStreamEndCapture(a))
  const ticket = driver.holdOperation(a)
  driver.cuGraphLaunch(executable, a)
  driver.cuGraphLaunch(executable, b)
  const launched = driver.submitted(b)
  assert.equal(driver.cuStreamQuery(b), false)
  driver.releaseThrough(a, ticket)
  assert.equal(driver.happensBefore(launched, a), false)
  assert.equal(driver.cuStreamQuery(b), true)
  assert.equal(driver.happensBefore(launched, a), true)
})

test('happensBefore follows captured edges, and assumes a launch on any stream', () => {
  const driver = openSimulated({ progress: 'eager' })
  const [a, b, c] = streams(driver)
  const ptr = driver.cuMemAlloc(BYTES)
  driver.cuMemsetD8Async(ptr, 1, BYTES, a)
  const before = driver.submitted(a)
  driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED)
  assert.equal(driver.happensBefore(before, a), false, 'the launch may be on another stream')
  driver.cuMemsetD8Async(ptr, 2, BYTES, a)
  const captured = driver.submitted(a)
  join(driver, a, b)
  driver.cuMemsetD8Async(ptr, 3, BYTES, b)
  const branch = driver.submitted(b)
  assert.deepEqual(
    [a, b, c].map(stream => driver.happensBefore(captured, stream)),
    [true, true, false],
  )
  assert.equal(driver.happensBefore(branch, a), false)
  join(driver, b, a)
  assert.equal(driver.happensBefore(branch, a), true)
  driver.cuStreamEndCapture(a)
  assert.equal(driver.happensBefore(captured, a), false, 'it is a matter of the launches now')
})

test('each broken rule has its code, and invalidates the capture', () => {
  const spoil: [number, (driver: SimulatedDriver, a: number, b: number, c: number) => void][] = [
    [900, (driver, a) => driver.cuStreamQuery(a)],
    [900, driver => driver.cuCtxSynchronize()],
    [900, driver => driver.cuMemAlloc(BYTES)],
    [900, (driver, _a, _b, c) => driver.cuStreamQuery(c)],
    [900, (driver, a) => driver.cuMemAllocAsync(BYTES, a)],
    [900, (driver, a) => driver.cuMemcpyHtoDAsync(driver.cuMemAllocAsync(BYTES, 0), new Uint8Array(8), a)],
    [902, (driver, a, b) => join(driver, b, a)],
    [
      903,
      (driver, a, _b, c) => {
        join(driver, a, c)
        driver.cuStreamEndCapture(c)
      },
    ],
    [906, (driver, a) => join(driver, a, 0)],
    [907, (driver, a, _b, c) => relax(driver).cuEventQuery(join(driver, a, c))],
    [907, (driver, a, _b, c) => relax(driver).cuEventSynchronize(join(driver, a, c))],
  ]
  for (const [code, act] of spoil) {
    const driver = openSimulated()
    const [a, b, c] = streams(driver)
    for (const stream of [a, b]) driver.cuStreamBeginCapture(stream, 0)
    assert.throws(
      () => act(driver, a, b, c),
      (error: { result?: unknown }) => error.result === code,
      `${act}`,
    )
    refuses(() => driver.cuMemsetD8Async(0, 1, 0, a), 'cuMemsetD8Async', RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    refuses(() => driver.cuStreamEndCapture(a), 'cuStreamEndCapture', RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    refuses(() => driver.cuStreamEndCapture(a), 'cuStreamEndCapture', RESULT.CUDA_ERROR_ILLEGAL_STATE)
  }
})

test('the legacy stream is refused beside a captured blocking stream', () => {
  for (const flags of [0, CU_STREAM_NON_BLOCKING]) {
    const driver = openSimulated()
    const [a] = streams(driver, flags)
    driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED)
    const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    const use = () => driver.cuEventRecord(event, 0)
    if (flags === 0) refuses(use, 'cuEventRecord', RESULT.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    else use()
  }
})

test('a capture ends when any thread destroys its first stream', () => {
  const driver = openSimulated()
  const [a, b] = streams(driver)
  driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)
  const context = driver.cuStreamGetCtx(b)
  driver.actAs(new ThreadState(), () => {
    driver.cuCtxSetCurrent(context)
    driver.cuStreamDestroy(a)
    driver.cuCtxSynchronize()
  })
})

test('unsafe calls do not break a relaxed capture; waits outside of a capture break any capture', () => {
  const driver = openSimulated()
  const [a] = streams(driver)
  driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED)
  driver.cuMemFree(driver.cuMemAlloc(BYTES))
  refuses(() => driver.cuStreamBeginCapture(a, 0), 'cuStreamBeginCapture', RESULT.CUDA_ERROR_ILLEGAL_STATE)
  refuses(() => driver.cuStreamBeginCapture(a, 3), 'cuStreamBeginCapture', RESULT.CUDA_ERROR_INVALID_VALUE)
  assert.throws(() => driver.holdOperation(a), RangeError)
  driver.cuGraphDestroy(driver.cuStreamEndCapture(a))
  refuses(() => driver.cuGraphInstantiate(12), 'cuGraphInstantiate', RESULT.CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuGraphLaunch(12, a), 'cuGraphLaunch', RESULT.CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuGraphExecDestroy(12), 'cuGraphExecDestroy', RESULT.CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuGraphDestroy(12), 'cuGraphDestroy', RESULT.CUDA_ERROR_INVALID_HANDLE)
  refuses(() => driver.cuThreadExchangeStreamCaptureMode(3), 'cuThreadExchangeStreamCaptureMode')
})

test('only the thread that began a capture ends it, or any thread if relaxed; each thread has its own mode', () => {
  const driver = openSimulated()
  const context = driver.cuDevicePrimaryCtxRetain(0)
  const other = new ThreadState()
  const elsewhere = <T>(call: () => T) => driver.actAs(other, call)
  elsewhere(() => driver.cuCtxSetCurrent(context))
  const [strict, relaxed] = streams(driver)
  driver.cuStreamBeginCapture(strict, CU_STREAM_CAPTURE_MODE_GLOBAL)
  driver.cuStreamBeginCapture(relaxed, CU_STREAM_CAPTURE_MODE_RELAXED)
  const endStrict = () => elsewhere(() => driver.cuStreamEndCapture(strict))
  refuses(endStrict, 'cuStreamEndCapture', RESULT.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
  elsewhere(() => driver.cuStreamEndCapture(relaxed))
  const exchange = () => driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
  assert.equal(elsewhere(exchange), CU_STREAM_CAPTURE_MODE_GLOBAL)
  elsewhere(() => driver.cuMemAlloc(BYTES)) // judged by captures of its own thread only; it has no captures
  assert.equal(exchange(), CU_STREAM_CAPTURE_MODE_GLOBAL)
  refuses(() => driver.cuMemAlloc(BYTES), 'cuMemAlloc', RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
})
