// A group whose graphs several threads launch: each fills the scratch that all use, and then copies it to memory of its
// own. Launches that overlap would show values of two graphs.

import type { Device } from '../src/core/device/device.js'
import { serveWaiting } from '../src/core/driver/serve-waiting.js'
import { Capture } from '../src/core/order/capture.js'
import { GroupOrder } from '../src/core/pool/caching/captures/group-order.js'
import { RobustLock } from '../src/core/threads/robust-lock.js'

export const BYTES = 4096
/** places for results of one graph */
export const PLACES = 16

/** The group in all threads. */
export interface SharedLaunches {
  readonly state: Float64Array
  readonly lockWords: Int32Array
  readonly scratch: number
  /** by the value of a graph: memory of its own, with places for results */
  readonly results: readonly number[]
}

export function newLaunches(device: Device, graphs: number): SharedLaunches {
  return {
    state: new Float64Array(new SharedArrayBuffer(8 * GroupOrder.WORDS)),
    lockWords: new Int32Array(new SharedArrayBuffer(4)),
    scratch: device.driver.cuMemAlloc(BYTES),
    results: Array.from({ length: graphs + 1 }, () => device.driver.cuMemAlloc((PLACES + 1) * BYTES)),
  }
}

/** A thread's part: `launch` launches its graph, and keeps the result at a place. */
export function launcher(device: Device, { state, lockWords, scratch, results }: SharedLaunches, value: number) {
  const { clocks, driver } = device
  const lock = new RobustLock(lockWords, 0, clocks.slots['registry'], clocks.slots.me, serveWaiting)
  const order = new GroupOrder(clocks, { refuses: false, poison: null, state, lock })
  const stream = device.createStream()
  const result = results[value]
  Capture.begin('beginCapture', stream, 'threadLocal', { order, begin: () => value, checkEnd: () => {}, end: () => {} })
  driver.cuMemsetD8Async(scratch, value, BYTES, stream.handle)
  driver.cuMemcpyDtoDAsync(result, scratch, BYTES, stream.handle)
  const graph = stream.endCapture()
  const launch = (time: number) => {
    graph.launch()
    driver.cuMemcpyDtoDAsync(result + (1 + (time % PLACES)) * BYTES, result, BYTES, stream.handle)
  }
  return { order, launch }
}

/** Whether all results of a graph are its own, after all work. */
export function areOwn({ driver }: Device, { results }: SharedLaunches, value: number, places: number): boolean {
  const host = new Uint8Array(places * BYTES)
  driver.cuMemcpyDtoH(host, results[value] + BYTES)
  return host.every(byte => byte === value)
}
