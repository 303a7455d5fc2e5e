// The simulated driver, observed. After each successful call it notes the order of work (call-order.ts), the memory
// that the work uses (oracle.ts), and the objects made and not given back. Long because the driver has many calls,
// one line each.
//
// The first two arguments of the proof's kernels say which memory they use: an address, and a number of 32-bit words.

import { CudaError } from '../src/core/base/errors.js'
import { RESULT } from '../src/core/driver/constants.js'
import type { BatchedCopy, CopyDirection, KernelArguments, LaunchShape } from '../src/core/driver/driver.js'
import type { ThreadState } from '../src/core/driver/simulated/thread-state.js'
import { SimulatedDriver, type SimulatedOptions } from '../src/entries/simulated.js'
import { CallOrder, type CapturedWork, type Point, pointOf, type Queue } from './call-order.js'
import { MappedMemory } from './mapped-memory.js'
import { Oracle, type Worker } from './oracle.js'

type Kind = 'streams' | 'events' | 'graphs' | 'allocations' | 'addresses' | 'handles' | 'mappings' | 'pinned ranges'

export class ObservedDriver extends SimulatedDriver {
  readonly order = new CallOrder()
  private readonly memory: MappedMemory
  readonly oracle: Oracle
  /** how many of each kind there are */
  private readonly made = new Map<Kind, number>()
  /** the thread that calls; null for the thread that made the driver */
  private thread: ThreadState | null = null
  /** by thread: the context that its calls are made in */
  private readonly entered = new Map<ThreadState | null, number>()
  private readonly bytesAt = new Map<number, number>()
  private readonly graphs = new Map<number, CapturedWork>()
  private readonly executables = new Map<number, CapturedWork>()
  /** whether the program itself makes no copies, so that all are the pools' own */
  copiesAreOfPools = false
  /** a failure that no call of the program could end with */
  failure: unknown = null
  /** called before the next copy between host and device */
  beforeCopy: ((stream: number) => void) | null = null

  constructor(options: SimulatedOptions) {
    super(options)
    this.memory = new MappedMemory(this.options.granularityBytes)
    this.oracle = new Oracle(this.order, this.memory)
  }

  /** The queue of a stream handle in a context, by default the current one. */
  queueOf(stream: number, context = this.inside): Queue {
    return this.order.queueOf(stream, context, this.thread)
  }

  /** All work submitted to a stream so far. */
  pointOf(stream: number): Point {
    return pointOf(this.queueOf(stream))
  }

  /** The objects made and not given back, as text, which is empty if everything was given back. */
  get leaks(): string {
    return [...this.made].flatMap(([kind, count]) => (count === 0 ? [] : [`${count} ${kind}`])).join(', ')
  }

  /** Keeps a stream from going on, also once it has ended, until the result is called. */
  hold(stream: number): () => void {
    const queue = this.streams.find(this.interceptor.thread.current, stream)!
    const ticket = this.holdOperation(stream)
    return () => this.scheduler.release(queue, ticket)
  }

  override actAs<T>(thread: ThreadState, call: () => T): T {
    const before = this.thread
    this.thread = thread
    try {
      return super.actAs(thread, call)
    } finally {
      this.thread = before
    }
  }

  override cuCtxSetCurrent(context: number): void {
    super.cuCtxSetCurrent(context)
    this.entered.set(this.thread, context)
  }

  override cuCtxSynchronize(): void {
    super.cuCtxSynchronize()
    this.order.toldOfContext(this.inside)
  }

  // Streams and events

  override cuStreamCreate(flags: number): number {
    const stream = super.cuStreamCreate(flags)
    this.order.open(stream, this.inside)
    this.count('streams', 1)
    return stream
  }

  override cuStreamDestroy(stream: number): void {
    super.cuStreamDestroy(stream)
    this.order.end(stream)
    this.count('streams', -1)
  }

  override cuStreamSynchronize(stream: number): void {
    super.cuStreamSynchronize(stream)
    this.order.toldOfQueue(this.queueOf(stream))
  }

  override cuStreamQuery(stream: number): boolean {
    const isDone = super.cuStreamQuery(stream)
    if (isDone) this.order.toldOfQueue(this.queueOf(stream))
    return isDone
  }

  override cuStreamWaitEvent(stream: number, event: number): void {
    super.cuStreamWaitEvent(stream, event)
    this.order.wait(this.queueOf(stream), event)
  }

  override cuEventCreate(flags: number): number {
    const event = super.cuEventCreate(flags)
    this.count('events', 1)
    return event
  }

  override cuEventDestroy(event: number): void {
    super.cuEventDestroy(event)
    this.order.forget(event)
    this.count('events', -1)
  }

  override cuEventRecord(event: number, stream: number): void {
    super.cuEventRecord(event, stream)
    this.order.record(event, this.queueOf(stream))
  }

  override cuEventQuery(event: number): boolean {
    const isDone = super.cuEventQuery(event)
    if (isDone) this.order.toldOfEvent(event)
    return isDone
  }

  override cuEventSynchronize(event: number): void {
    super.cuEventSynchronize(event)
    this.order.toldOfEvent(event)
  }

  // Captures and graphs

  override cuStreamBeginCapture(stream: number, mode: number): void {
    super.cuStreamBeginCapture(stream, mode)
    this.order.beginCapture(this.queueOf(stream))
  }

  override cuStreamEndCapture(stream: number): number {
    const { capture } = this.queueOf(stream)
    try {
      const graph = super.cuStreamEndCapture(stream)
      this.graphs.set(graph, capture!)
      this.count('graphs', 1)
      this.order.endCapture(capture!)
      return graph
    } catch (error) {
      if (capture !== null && endsCapture(error)) {
        this.order.endCapture(capture)
        capture.isGone = true
      }
      throw error
    }
  }

  override cuGraphInstantiate(graph: number): number {
    const executable = super.cuGraphInstantiate(graph)
    this.executables.set(executable, this.graphs.get(graph)!)
    this.count('graphs', 1)
    return executable
  }

  override cuGraphDestroy(graph: number): void {
    super.cuGraphDestroy(graph)
    const work = this.graphs.get(graph)!
    this.graphs.delete(graph)
    this.count('graphs', -1)
    work.isGone = ![...this.executables.values()].includes(work)
  }

  override cuGraphLaunch(executable: number, stream: number): void {
    super.cuGraphLaunch(executable, stream)
    this.oracle.launched(this.executables.get(executable)!, this.order.submit(this.queueOf(stream)))
  }

  override cuGraphExecDestroy(executable: number): void {
    super.cuGraphExecDestroy(executable)
    this.executables.get(executable)!.isGone = true
    this.executables.delete(executable)
    this.count('graphs', -1)
  }

  // Work

  override cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    super.cuLaunchKernel(kernel, shape, stream, args)
    const { buffer, byteOffset, byteLength } = args.bytes
    const values = new DataView(buffer, byteOffset, byteLength)
    const [start, words] = [0, 1].map(index => Number(values.getBigUint64(args.offsets[index], true)))
    this.work(stream, start, 4 * words)
  }

  override cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    super.cuMemsetD8Async(target, value, count, stream)
    this.work(stream, target, count)
  }

  override cuMemsetD16Async(target: number, value: number, count: number, stream: number): void {
    super.cuMemsetD16Async(target, value, count, stream)
    this.work(stream, target, 2 * count)
  }

  override cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    super.cuMemsetD32Async(target, value, count, stream)
    this.work(stream, target, 4 * count)
  }

  override cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    this.beforeCopy?.(stream)
    super.cuMemcpyHtoDAsync(target, source, stream)
    const point = this.work(stream, target, source.byteLength, this.copier('pool writes'))
    this.oracle.used(...this.spanOf(source), point, this.copier('pool reads'))
  }

  override cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    this.beforeCopy?.(stream)
    super.cuMemcpyDtoHAsync(target, source, stream)
    const point = this.work(stream, source, target.byteLength, this.copier('pool reads'))
    this.oracle.used(...this.spanOf(target), point, this.copier('pool writes'))
  }

  override cuMemcpyBatchAsync(copies: readonly BatchedCopy[], direction: CopyDirection, stream: number): void {
    this.beforeCopy?.(stream)
    super.cuMemcpyBatchAsync(copies, direction, stream)
    const point = this.order.submit(this.queueOf(stream))
    const isToHost = direction === 'toHost'
    for (const { host, ptr } of copies) {
      this.oracle.used(...this.spanOf(host), point, this.copier(isToHost ? 'pool writes' : 'pool reads'))
      this.oracle.used(ptr, ptr + host.byteLength, point, this.copier(isToHost ? 'pool reads' : 'pool writes'))
    }
  }

  override cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    super.cuMemcpyDtoDAsync(target, source, bytes, stream)
    const point = this.work(stream, target, bytes)
    this.oracle.used(source, source + bytes, point)
  }

  // Memory

  override cuMemAlloc(bytes: number): number {
    const ptr = super.cuMemAlloc(bytes)
    this.bytesAt.set(ptr, bytes)
    this.count('allocations', 1)
    return ptr
  }

  override cuMemFree(ptr: number): void {
    super.cuMemFree(ptr)
    this.oracle.leave(ptr, ptr + this.bytesAt.get(ptr)!)
    this.bytesAt.delete(ptr)
    this.count('allocations', -1)
  }

  override cuMemAddressReserve(bytes: number, alignment: number): number {
    const ptr = super.cuMemAddressReserve(bytes, alignment)
    this.count('addresses', 1)
    return ptr
  }

  override cuMemAddressFree(ptr: number, bytes: number): void {
    super.cuMemAddressFree(ptr, bytes)
    this.count('addresses', -1)
  }

  override cuMemCreate(bytes: number, device: number, handleTypes: number, gpuDirectRdma = false): number {
    const handle = super.cuMemCreate(bytes, device, handleTypes, gpuDirectRdma)
    this.memory.create(handle, bytes)
    this.count('handles', 1)
    return handle
  }

  override cuMemRelease(handle: number): void {
    super.cuMemRelease(handle)
    const gone = this.memory.release(handle)
    if (gone !== null) this.oracle.gone(gone)
    this.count('handles', -1)
  }

  override cuMemMap(ptr: number, bytes: number, handle: number): void {
    super.cuMemMap(ptr, bytes, handle)
    this.memory.map(ptr, bytes, handle)
    this.oracle.nowMapped(ptr, ptr + bytes)
    this.count('mappings', 1)
  }

  override cuMemUnmap(ptr: number, bytes: number): void {
    super.cuMemUnmap(ptr, bytes)
    for (const mapping of this.memory.mappingsIn(ptr, ptr + bytes)) {
      this.oracle.unmapped(mapping)
      const gone = this.memory.unmap(mapping)
      if (gone !== null) this.oracle.gone(gone)
      this.count('mappings', -1)
    }
  }

  override cuMemHostRegister(host: ArrayBufferView, flags: number): void {
    super.cuMemHostRegister(host, flags)
    this.count('pinned ranges', 1)
  }

  override cuMemHostUnregister(host: ArrayBufferView): void {
    const [start, end] = this.spanOf(host)
    super.cuMemHostUnregister(host)
    try {
      this.oracle.leave(start, end)
    } catch (error) {
      if (!this.copiesAreOfPools) throw error
      this.failure ??= error // no call of the program awaits what a pool gives back after its copies
    }
    this.count('pinned ranges', -1)
  }

  private get inside(): number {
    return this.entered.get(this.thread)!
  }

  private work(stream: number, start: number, bytes: number, worker: Worker = 'program'): Point {
    const point = this.order.submit(this.queueOf(stream))
    this.oracle.used(start, start + bytes, point, worker)
    return point
  }

  private copier(worker: Worker): Worker {
    return this.copiesAreOfPools ? worker : 'program'
  }

  private spanOf(host: ArrayBufferView): [start: number, end: number] {
    const start = this.hostAddress(host)
    return [start, start + host.byteLength]
  }

  private count(kind: Kind, change: number): void {
    this.made.set(kind, (this.made.get(kind) ?? 0) + change)
  }
}

/**
 * Whether a capture is over although its end failed: it was already invalid, or one of its streams was not joined.
 */
function endsCapture(error: unknown): boolean {
  if (!(error instanceof CudaError)) return false
  const { CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED } = RESULT
  return error.result === CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || error.result === CUDA_ERROR_STREAM_CAPTURE_UNJOINED
}
