// The driver contract without a GPU. The functions are in calls.ts, over the parts in the folders; this file adds
// controls for tests and replays. Opened by core/device/open.ts, and by tests. The same seed and the same calls give
// the same run.
//
// Where CUDA leaves a choice, the simulation takes the choice that reveals mistakes:
// - Work completes as late as CUDA allows.
// - Fresh memory holds garbage. Freed handles and addresses are given out again at once.
// - An upload from pageable memory is copied aside at the call and reaches the device in stream order, for
//   cuMemcpyHtoD too.
// - cuMemcpyDtoD does not wait.
// - A pointer into nothing is refused at the call.
// - Work kills its context if memory is gone when the work runs, or if the device has no access to it. The next call
//   reports the fault. Only cuMemcpyPeerAsync copies between devices without access to each other.
// - Accesses are checked to the byte. Sizes are counted in units of 512 bytes.
//
// Managed memory and pools in host memory use a host memory of 2 TiB, and no device memory. Every device may use
// managed memory. A device may use a host pool once cuMemPoolSetAccess allows it.
//
// The time of an event is the modelled clock when its record completes: the driver calls up to then, and `passTime`.
// Work of the GPU takes no time. Priorities of streams are numbers without an effect on the order of work.
//
// A graph holds captured fills, copies and kernels. A launch runs them one after the other in the launching stream,
// in any order that the captured dependencies allow.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { formatBytes } from '../../base/bytes.js'
import { showAsText } from '../../base/readable.js'
import type { Driver } from '../driver.js'
import { SimulatedCalls } from './calls.js'
import type { FaultRule } from './faults.js'
import { LibraryDevice } from './library-device.js'
import { ancestorsOf } from './streams/captures.js'
import type { StreamQueue, WorkPoint } from './streams/stream-queue.js'
import type { ThreadState } from './thread-state.js'

/**
 * A simulated machine with one or more GPUs, for tests and for runs without a GPU. It offers all functions of the
 * driver contract under CUDA's names, and the controls below, which are neither counted nor paid for.
 */
export class SimulatedDriver extends SimulatedCalls implements Driver {
  /** true: no GPU is behind it */
  readonly simulated = true

  /** Calls so far, by function; functions without a call are missing. */
  get calls(): ReadonlyMap<string, number> {
    return this.interceptor.calls
  }

  /** Seconds that the calls so far would have taken by the cost model (cost-model.ts). */
  get modelledSeconds(): number {
    return this.interceptor.modelledSeconds
  }

  /** Adds `seconds` of host time, such as a program spends between its calls. Throws RangeError if negative. */
  passTime(seconds: number): void {
    if (!(seconds >= 0)) throw new OutOfRangeError(`passTime: seconds must not be negative, not ${seconds}`)
    this.interceptor.passedSeconds += seconds
  }

  /** Makes driver calls fail without an effect; rules add up. A bad rule throws TypeError or RangeError. */
  failCall(rule: FaultRule): void {
    this.interceptor.rules.add(rule)
  }

  /** Ends all rules of `failCall` and of the option `faults`. */
  clearFaults(): void {
    this.interceptor.rules.clear()
  }

  /**
   * Submits an operation without effect to `stream`. It completes when `releaseThrough` releases it, or when the host
   * waits for it or for later work of the stream. Returns its ticket; the tickets of a stream grow.
   */
  holdOperation(stream: number): number {
    const queue = this.liveQueue(stream)
    if (queue.capture !== null) throw new OutOfRangeError('the stream is captured: an operation cannot be held')
    return this.scheduler.hold(queue)
  }

  /** Lets the held operations of `stream` up to `ticket` complete. Throws RangeError for a destroyed stream. */
  releaseThrough(stream: number, ticket: number): void {
    const queue = this.liveQueue(stream)
    if (!(ticket <= queue.submitted))
      throw new OutOfRangeError(`ticket ${ticket} was never given out on stream ${stream}`)
    this.scheduler.release(queue, ticket)
  }

  /** The work submitted to `stream` so far, for `happensBefore`. */
  submitted(stream: number): WorkPoint {
    const queue = this.liveQueue(stream)
    const { submitted: position, capture, tails } = queue
    return { queue, position, moment: ++this.moments, capture, tails }
  }

  /**
   * Whether `work` must come before all work submitted to `stream` from now on. It must if it was submitted to the
   * same stream, if waits for events order it, or if the host has seen it complete. Work that has run unseen does not
   * count, nor does the order of the legacy default stream. Captured work comes only before work of the same capture.
   * Only work that the host has seen complete comes before captured work, because the graph may be launched on any
   * stream.
   */
  happensBefore({ queue, position, moment, capture, tails }: WorkPoint, stream: number): boolean {
    const later = this.liveQueue(stream)
    if (capture !== null) {
      const known = later.capture === capture ? ancestorsOf(later.tails) : new Set()
      return tails.every(node => known.has(node))
    }
    if (later.capture !== null) return queue.seen >= position || queue.group.synchronizedAt >= moment
    if (queue === later || (later.after.get(queue) ?? 0) >= position) return true
    return queue.seen >= position || queue.group.synchronizedAt >= moment
  }

  /** Bytes of physical memory in use on device `ordinal`, for leak checks. */
  usedBytes(ordinal = 0): number {
    this.shareables.settle()
    return this.devices[ordinal].usedBytes
  }

  /** Bytes of host memory in use by managed memory and by pools in host memory. */
  usedHostBytes(): number {
    return this.host.usedBytes
  }

  /** The NUMA node that host memory was placed on; -1 for any. */
  hostNodeOf(host: ArrayBufferView): number {
    return this.hostPlaces.nodeOf(host)
  }

  /**
   * Runs `call` as another thread of the program. `thread` holds the per-thread state of CUDA.
   * @internal
   */
  actAs<T>(thread: ThreadState, call: () => T): T {
    const before = this.interceptor.thread
    this.interceptor.thread = thread
    try {
      return call()
    } finally {
      this.interceptor.thread = before
    }
  }

  /**
   * The device of the current context, for the simulation of another library; null without a current context.
   * @internal
   */
  libraryDevice(): LibraryDevice | null {
    const { current } = this.interceptor.thread
    if (current === null) return null
    return new LibraryDevice(current, this.machine?.id ?? null, this.scheduler, this.streams, this.captures, this.space)
  }

  private liveQueue(stream: number): StreamQueue {
    const queue = this.streams.find(this.interceptor.thread.current, stream)
    if (queue === undefined)
      throw new OutOfRangeError(`${stream} is no stream of this driver, or no context is current`)
    return queue
  }

  /** One line for people, such as `SimulatedDriver { 2 devices of 140 GiB }`; console.log shows it. */
  override toString(): string {
    const { length } = this.devices
    return `SimulatedDriver { ${length} ${length === 1 ? 'device' : 'devices'} of ${formatBytes(this.devices[0].capacityBytes)} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { simulated: true, devices: this.devices.length, capacityBytes: this.devices[0].capacityBytes }
  }
}

showAsText(SimulatedDriver)
