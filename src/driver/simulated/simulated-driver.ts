// A GPU in memory: the functions of the driver contract over the parts beside this file. Long because the contract is;
// each function only checks, asks its part, and submits. Deterministic: the same seed and calls give the same run.
//
// Where CUDA leaves a choice, this takes the one that finds mistakes: work completes as late as it may; fresh memory is
// garbage; handles and addresses come back at once; an upload from pageable memory is copied aside at the call, but
// reaches the device in stream order, also that of cuMemcpyHtoD; cuMemcpyDtoD and cuMemsetD8 do not wait. A pointer into
// nothing is refused at the call; memory that is not there when the work runs, or is not this device's to touch, kills
// the context, and the next call says so: cuMemcpyPeerAsync alone copies between devices that have no access to each
// other. An access is checked to the byte. Sizes are counted in units of 512 bytes.
//
// Managed memory and pools in host memory take nothing of a device: they lie in a host memory of 2 TiB that is counted
// apart. Managed memory is every device's from the beginning, a host pool's is a device's once cuMemPoolSetAccess says so.
//
// A graph knows fills, copies and kernels that were captured. Each launch runs them one after the other in the launching
// stream, in any order that the captured dependencies allow.

import { TiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../constants.js'
import type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from '../driver.js'
import { CALL, CallInterceptor } from './call-interceptor.js'
import { Contexts, type SimulatedContext } from './context.js'
import { PhysicalMemory, SimulatedDevice } from './device.js'
import { deviceAttribute } from './device-attributes.js'
import type { FaultRule } from './faults.js'
import { MOST_THREADS_PER_BLOCK, MULTIPROCESSORS } from './kernels/launch-limits.js'
import { Modules } from './kernels/modules.js'
import { PeerAccess } from './memory/access.js'
import { AddressSpace } from './memory/address-space.js'
import { hostAddress } from './memory/host-address.js'
import { HostRegistry } from './memory/host-registry.js'
import { PlainMemory } from './memory/plain-memory.js'
import { Shareables } from './memory/shareable.js'
import { Transfers } from './memory/transfers.js'
import { VirtualMemory } from './memory/virtual-memory.js'
import { completeOptions, type SimulatedOptions, type Switch } from './options.js'
import { MemoryPools } from './pools/memory-pools.js'
import { PoolPlaces } from './pools/pool-properties.js'
import type { ThreadState } from './remote/thread-state.js'
import { ancestorsOf, Captures } from './streams/captures.js'
import { Scheduler } from './streams/scheduler.js'
import type { StreamGroup, StreamQueue, WorkPoint } from './streams/stream-queue.js'
import { Streams } from './streams/streams.js'

const DRIVER_VERSION = 13_000
const HOST_BYTES = 2 * TiB

/** A GPU in memory, behind the same functions as libcuda. */
export class SimulatedDriver implements Driver {
  /** always true */
  readonly simulated = true
  readonly origin: string

  private readonly options: Required<SimulatedOptions>
  private passedSeconds = 0
  private readonly interceptor = new CallInterceptor()
  private readonly scheduler: Scheduler
  private readonly space = new AddressSpace()
  private readonly hosts = new HostRegistry(this.space)
  private readonly transfers: Transfers
  private readonly modules = new Modules(this.interceptor)
  private readonly peers: PeerAccess
  private readonly virtual: VirtualMemory
  private readonly devices: readonly SimulatedDevice[]
  private readonly host: PhysicalMemory
  private readonly plain: PlainMemory
  private readonly pools: MemoryPools
  private readonly captures = new Captures(this.interceptor)
  private readonly streams = new Streams(this.interceptor, this.captures)
  private readonly contexts = new Contexts(this.space, () => this.streams.nextId())
  private initialised = false
  /** how often the order of work was asked for or waited for */
  private moments = 0

  constructor(options: SimulatedOptions = {}) {
    this.options = completeOptions(options)
    const { interceptor, space } = this
    const { devices, capacityBytes, granularityBytes, progress, seed, faults } = this.options
    const shareables = new Shareables(interceptor, this.options.posixDescriptors)
    this.origin = `simulated in memory, seed ${seed}`
    this.scheduler = new Scheduler(progress === 'seeded' ? new Random(seed) : null)
    this.transfers = new Transfers(interceptor, space, this.hosts, this.scheduler)
    this.peers = new PeerAccess(interceptor, this.options.peerAccess)
    this.virtual = new VirtualMemory(interceptor, space, granularityBytes, this.peers, shareables)
    this.devices = Array.from({ length: devices }, (_, i) => new SimulatedDevice(i, capacityBytes, seed))
    this.host = new PhysicalMemory('the host', HOST_BYTES, seed)
    this.plain = new PlainMemory(interceptor, space, this.host)
    const places = new PoolPlaces(interceptor, this.devices, this.host, option => this.requireOption(option))
    this.pools = new MemoryPools(interceptor, space, this.scheduler, this.devices, places, this.peers, shareables)
    for (const fault of faults) this.failCall(fault)
  }

  get calls(): ReadonlyMap<string, number> {
    return this.interceptor.calls
  }

  get modelledSeconds(): number {
    return this.interceptor.modelledSeconds
  }

  /** Modelled time of the calls, and what `passTime` added. */
  get clockSeconds(): number {
    return this.interceptor.modelledSeconds + this.passedSeconds
  }

  /** The host did something else for so long: what a program or a recording spends between its calls. */
  passTime(seconds: number): void {
    if (!(seconds >= 0)) throw new RangeError(`passTime: seconds must not be negative, not ${seconds}`)
    this.passedSeconds += seconds
  }

  hostAddress(host: ArrayBufferView): number {
    return hostAddress(this.hosts.asRegistered(host))
  }

  // What no driver has: for tests and replays. None of these is counted or paid.

  /** Makes a driver call fail, once or from then on, without an effect; rules add up. */
  failCall(rule: FaultRule): void {
    this.interceptor.rules.add(rule)
  }

  /** Ends all rules of `failCall` and of the option `faults`. */
  clearFaults(): void {
    this.interceptor.rules.clear()
  }

  /**
   * Submits an operation without effect to `stream` that completes only when released by `releaseThrough`, or when the
   * host waits for it or for something behind it. Returns its ticket; the tickets of a stream grow.
   */
  holdOperation(stream: number): number {
    const queue = this.liveQueue(stream)
    if (queue.capture !== null) throw new RangeError('the stream is captured: an operation cannot be held')
    return this.scheduler.hold(queue)
  }

  /** Lets the held operations of `stream` up to `ticket` complete. A destroyed stream can no longer be released. */
  releaseThrough(stream: number, ticket: number): void {
    const queue = this.liveQueue(stream)
    if (!(ticket <= queue.submitted)) throw new RangeError(`ticket ${ticket} was never given out on stream ${stream}`)
    this.scheduler.release(queue, ticket)
  }

  /** What was submitted to `stream` so far, for `happensBefore`. */
  submitted(stream: number): WorkPoint {
    const queue = this.liveQueue(stream)
    const { submitted: position, capture, tails } = queue
    return { queue, position, moment: ++this.moments, capture, tails }
  }

  /**
   * Whether `work` is sure to come before everything submitted to `stream` from now on: it was submitted to the same
   * stream, events waited for put it before, or the host was told that it has completed. That it has merely run counts for
   * nothing, nor does the order that the legacy default stream brings. Captured work comes before that of its capture only,
   * and before captured work comes only what the host has seen, since nobody knows where the graph will be launched.
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

  /** Bytes of physical memory of device `ordinal` that are taken, for leak checks. */
  usedBytes(ordinal = 0): number {
    return this.devices[ordinal].usedBytes
  }

  /** Bytes of host memory that managed memory and pools in the host have taken. */
  usedHostBytes(): number {
    return this.host.usedBytes
  }

  /** Makes a call for another thread of the program, of which `thread` keeps what CUDA keeps. */
  actAs<T>(thread: ThreadState, call: () => T): T {
    const before = this.interceptor.thread
    this.interceptor.thread = thread
    try {
      return call()
    } finally {
      this.interceptor.thread = before
    }
  }

  // Devices and contexts

  cuInit(): void {
    this.interceptor.enter(CALL.cuInit)
    this.initialised = true
  }

  cuDriverGetVersion(): number {
    this.interceptor.enter(CALL.cuDriverGetVersion)
    return DRIVER_VERSION
  }

  cuDeviceGetCount(): number {
    this.begin(CALL.cuDeviceGetCount)
    return this.devices.length
  }

  cuDeviceGet(ordinal: number): number {
    this.begin(CALL.cuDeviceGet)
    return this.device(ordinal).ordinal
  }

  cuDeviceGetName(device: number): string {
    this.begin(CALL.cuDeviceGetName)
    this.device(device)
    return 'simulated GPU'
  }

  cuDeviceTotalMem(device: number): number {
    this.begin(CALL.cuDeviceTotalMem)
    return this.device(device).capacityBytes
  }

  cuDeviceGetAttribute(attribute: number, device: number): number {
    this.begin(CALL.cuDeviceGetAttribute)
    this.device(device)
    const value = deviceAttribute(attribute, this.options)
    if (value === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no attribute ${attribute}`)
    return value
  }

  cuDeviceCanAccessPeer(device: number, peer: number): boolean {
    this.begin(CALL.cuDeviceCanAccessPeer)
    return this.peers.canAccess(this.device(device), this.device(peer))
  }

  cuDevicePrimaryCtxRetain(device: number): number {
    this.begin(CALL.cuDevicePrimaryCtxRetain)
    return this.contexts.retain(this.device(device)).handle
  }

  /** The last release ends the context: its work completes, its streams, events, modules and plain memory are gone. */
  cuDevicePrimaryCtxRelease(device: number): void {
    this.begin(CALL.cuDevicePrimaryCtxRelease)
    const context = this.contexts.primaryOf(this.device(device))
    if (context === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'never retained')
    if (--context.retained > 0) return
    this.finishAll(context)
    this.plain.releaseOf(context)
    this.modules.removeOf(context)
    this.captures.removeOf(context)
    this.streams.removeOf(context)
    this.contexts.remove(context)
  }

  cuCtxSetCurrent(context: number): void {
    this.begin(CALL.cuCtxSetCurrent)
    this.interceptor.thread.current = context === 0 ? null : this.context(context)
  }

  cuCtxSynchronize(): void {
    const context = this.enter(CALL.cuCtxSynchronize)
    this.captures.checkIdle(context)
    context.observeAll()
    this.finishAll(context)
    context.synchronizedAt = ++this.moments
    this.synchronized(context)
  }

  cuCtxEnablePeerAccess(peerContext: number): void {
    const context = this.enter(CALL.cuCtxEnablePeerAccess)
    this.peers.enable(context, this.context(peerContext))
  }

  // Memory

  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    const { device } = this.enter(CALL.cuMemGetInfo)
    return { freeBytes: device.capacityBytes - device.usedBytes, totalBytes: device.capacityBytes }
  }

  cuMemAlloc(bytes: number): number {
    return this.plain.allocate(this.enter(CALL.cuMemAlloc), bytes)
  }

  cuMemAllocManaged(bytes: number, flags: number): number {
    const context = this.enter(CALL.cuMemAllocManaged)
    this.requireOption('managedMemory')
    return this.plain.allocateManaged(context, bytes, flags)
  }

  /** Waits for all work of the context that owns the memory, as the real driver does. */
  cuMemFree(ptr: number): void {
    const current = this.enter(CALL.cuMemFree)
    if (ptr === 0) return
    const plain = this.plain.find(ptr)
    const memory = plain?.memory ?? this.pools.memoryOf(ptr)
    if (memory === undefined)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation begins there')
    const owner = plain?.owner ?? this.contexts.primaryOf(memory) ?? current
    this.finishAll(owner)
    this.checkFault(owner)
    if (plain !== undefined) this.plain.release(plain)
    else {
      this.pools.release(ptr, owner.legacy)
      this.scheduler.finishStream(owner.legacy)
    }
  }

  cuMemHostRegister(host: ArrayBufferView, _flags: number): void {
    this.enter(CALL.cuMemHostRegister)
    this.interceptor.checkSize(host.byteLength, 1)
    if (!this.hosts.register(host)) throw this.interceptor.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
  }

  /** Does not wait: work that still uses the memory will find it gone. */
  cuMemHostUnregister(host: ArrayBufferView): void {
    this.enter(CALL.cuMemHostUnregister)
    if (!this.hosts.unregister(host)) throw this.interceptor.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
  }

  cuMemHostGetDevicePointer(host: ArrayBufferView): number {
    this.enter(CALL.cuMemHostGetDevicePointer)
    const ptr = this.hosts.devicePointer(host)
    if (ptr === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the memory is not registered')
    return ptr
  }

  cuMemcpyHtoD(target: number, source: ArrayBufferView): void {
    const context = this.enterLegacy(CALL.cuMemcpyHtoD)
    this.scheduler.finishStream(context.legacy)
    this.transfers.upload(context, context.legacy, target, source)
    if (this.hosts.has(source)) this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoH(target: ArrayBufferView, source: number): void {
    const context = this.enterLegacy(CALL.cuMemcpyDtoH)
    this.transfers.download(context, context.legacy, target, source)
    this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoD(target: number, source: number, bytes: number): void {
    const context = this.enterLegacy(CALL.cuMemcpyDtoD)
    this.transfers.copy(context, context.legacy, target, source, bytes)
  }

  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const context = this.enter(CALL.cuMemcpyHtoDAsync)
    const queue = this.streams.queueOf(context, stream)
    if (!this.hosts.has(source)) this.captures.checkNotCaptured(queue, 'a copy from pageable memory')
    this.transfers.upload(context, queue, target, source)
  }

  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoHAsync)
    const queue = this.streams.queueOf(context, stream)
    if (!this.hosts.has(target)) this.captures.checkNotCaptured(queue, 'a copy to pageable memory')
    this.transfers.download(context, queue, target, source)
    if (this.hosts.has(target)) return
    this.scheduler.finishStream(queue)
    this.checkFault(context)
  }

  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoDAsync)
    this.transfers.copy(context, this.streams.queueOf(context, stream), target, source, bytes)
  }

  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void {
    const queue = this.streams.queueOf(this.enter(CALL.cuMemcpyPeerAsync), stream)
    const [to, from] = [this.context(targetContext), this.context(sourceContext)]
    this.transfers.copyPeer(queue, target, to, source, from, bytes)
  }

  cuMemsetD8(target: number, value: number, count: number): void {
    const context = this.enterLegacy(CALL.cuMemsetD8)
    this.transfers.fill(context, context.legacy, target, repeatByte(value), count)
  }

  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD8Async)
    this.transfers.fill(context, this.streams.queueOf(context, stream), target, repeatByte(value), count)
  }

  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD32Async)
    const queue = this.streams.queueOf(context, stream)
    if (target % 4 !== 0)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the address is no multiple of 4')
    this.transfers.fill(context, queue, target, value >>> 0, count * 4)
  }

  // Streams and events

  cuStreamCreate(flags: number): number {
    const context = this.enter(CALL.cuStreamCreate)
    return this.streams.create(context, flags)
  }

  cuStreamDestroy(stream: number): void {
    this.enter(CALL.cuStreamDestroy)
    this.streams.destroy(stream)
  }

  cuStreamSynchronize(stream: number): void {
    const queue = this.streams.queue(this.enter(CALL.cuStreamSynchronize), stream)
    this.captures.checkSubmit(queue)
    this.captures.checkNotCaptured(queue, 'a wait')
    this.scheduler.finishStream(queue)
    queue.observe(queue.submitted, queue.after)
    this.synchronized(queue.group)
  }

  cuStreamQuery(stream: number): boolean {
    const queue = this.streams.queue(this.enter(CALL.cuStreamQuery), stream)
    this.captures.checkSubmit(queue)
    this.captures.checkNotCaptured(queue, 'a query')
    const idle = this.scheduler.isIdle(queue)
    if (idle) queue.observe(queue.submitted, queue.after)
    return idle
  }

  cuStreamWaitEvent(stream: number, event: number): void {
    const queue = this.streams.queue(this.enter(CALL.cuStreamWaitEvent), stream)
    const recorded = this.streams.event(event)
    this.captures.checkSubmit(queue)
    if (recorded.capture !== null) {
      this.captures.follow(queue, recorded.capture, recorded.tails)
      return
    }
    if (recorded.queue === null) return
    if (queue.capture !== null) this.captures.refuseIsolated(queue.capture)
    this.scheduler.wait(queue, recorded.queue, recorded.position)
    queue.noteWait(recorded.queue, recorded.position)
    queue.follow(recorded.queue, recorded.position, recorded.after)
  }

  cuStreamGetCtx(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetCtx), stream).group.handle
  }

  cuStreamGetId(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetId), stream).id
  }

  cuStreamGetFlags(stream: number): number {
    const queue = this.streams.queue(this.enter(CALL.cuStreamGetFlags), stream)
    return queue.kind === 'non-blocking' ? CU_STREAM_NON_BLOCKING : 0
  }

  cuStreamBeginCapture(stream: number, mode: number): void {
    const context = this.enter(CALL.cuStreamBeginCapture)
    this.captures.begin(this.streams.queueOf(context, stream), stream, mode)
  }

  cuStreamEndCapture(stream: number): number {
    const context = this.enter(CALL.cuStreamEndCapture)
    return this.captures.end(this.streams.queue(context, stream), context)
  }

  cuStreamIsCapturing(stream: number): boolean {
    const queue = this.streams.queue(this.enter(CALL.cuStreamIsCapturing), stream)
    return queue.capture !== null
  }

  cuThreadExchangeStreamCaptureMode(mode: number): number {
    this.begin(CALL.cuThreadExchangeStreamCaptureMode)
    if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE)
    const { thread } = this.interceptor
    const before = thread.captureMode
    thread.captureMode = mode
    return before
  }

  cuEventCreate(_flags: number): number {
    return this.streams.createEvent(this.enter(CALL.cuEventCreate))
  }

  cuEventDestroy(event: number): void {
    this.enter(CALL.cuEventDestroy)
    this.streams.destroyEvent(event)
  }

  cuEventRecord(event: number, stream: number): void {
    const context = this.enter(CALL.cuEventRecord)
    const entry = this.streams.event(event)
    const queue = this.streams.queueOf(context, stream)
    if (entry.context !== context) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_INVALID_HANDLE,
        'the event belongs to another context than the stream',
      )
    }
    entry.capture = queue.capture
    entry.tails = queue.tails
    if (queue.capture !== null) return
    entry.position = this.scheduler.submit(queue, null)
    entry.after = queue.after
    entry.queue = queue
  }

  cuEventQuery(event: number): boolean {
    this.enter(CALL.cuEventQuery)
    const { queue, position, after, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (queue === null) return true
    const done = queue.completed >= position
    if (done) queue.observe(position, after)
    return done
  }

  cuEventSynchronize(event: number): void {
    this.enter(CALL.cuEventSynchronize)
    const { context, queue, position, after, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (queue !== null) {
      this.scheduler.finish(queue, position)
      queue.observe(position, after)
    }
    this.synchronized(context)
  }

  // The driver's own pools

  cuDeviceGetDefaultMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetDefaultMemPool)
    this.requireOption('memoryPools')
    return this.pools.defaultOf(this.device(device))
  }

  cuDeviceGetMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetMemPool)
    this.requireOption('memoryPools')
    return this.pools.currentOf(this.device(device))
  }

  cuDeviceSetMemPool(device: number, pool: number): void {
    this.begin(CALL.cuDeviceSetMemPool)
    this.requireOption('memoryPools')
    this.pools.setCurrent(this.device(device), pool)
  }

  cuMemPoolCreate(properties: MemPoolProperties): number {
    this.enterPools(CALL.cuMemPoolCreate)
    return this.pools.create(properties)
  }

  cuMemPoolDestroy(pool: number): void {
    this.enterPools(CALL.cuMemPoolDestroy)
    this.pools.destroy(pool)
  }

  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    this.enterPools(CALL.cuMemPoolGetAttribute)
    const value = this.pools.get(pool).attribute(attribute)
    if (value === undefined)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no pool attribute ${attribute}`)
    return value
  }

  /** `Infinity` is the driver's 2^64 - 1. */
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    this.enterPools(CALL.cuMemPoolSetAttribute)
    if (this.pools.get(pool).setAttribute(attribute, value)) return
    throw this.interceptor.refuse(
      RESULT.CUDA_ERROR_INVALID_VALUE,
      `pool attribute ${attribute} cannot be set to ${value}`,
    )
  }

  cuMemPoolTrimTo(pool: number, keepBytes: number): void {
    this.enterPools(CALL.cuMemPoolTrimTo)
    const entry = this.pools.get(pool)
    this.interceptor.checkSize(keepBytes, 0)
    entry.trimTo(keepBytes)
  }

  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void {
    this.enterPools(CALL.cuMemPoolSetAccess)
    this.pools.setAccess(pool, locationType, locationId, flags)
  }

  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number {
    this.enterPools(CALL.cuMemPoolGetAccess)
    return this.pools.access(pool, locationType, locationId)
  }

  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number {
    this.enterPools(CALL.cuMemPoolExportToShareableHandle)
    return this.pools.export(pool, handleType)
  }

  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterPools(CALL.cuMemPoolImportFromShareableHandle)
    return this.pools.import(descriptor, handleType)
  }

  cuMemPoolExportPointer(ptr: number): Uint8Array<ArrayBuffer> {
    this.enterPools(CALL.cuMemPoolExportPointer)
    return this.pools.exportPointer(ptr)
  }

  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number {
    this.enterPools(CALL.cuMemPoolImportPointer)
    return this.pools.importPointer(pool, exported)
  }

  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocFromPoolAsync)
    this.requireOption('memoryPools')
    return this.pools.allocate(pool, bytes, this.uncaptured(context, stream))
  }

  cuMemAllocAsync(bytes: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocAsync)
    this.requireOption('memoryPools')
    const queue = this.uncaptured(context, stream)
    return this.pools.allocate(this.pools.currentOf(context.device), bytes, queue)
  }

  cuMemFreeAsync(ptr: number, stream: number): void {
    const context = this.enter(CALL.cuMemFreeAsync)
    this.requireOption('memoryPools')
    if (!this.pools.release(ptr, this.uncaptured(context, stream))) {
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation of a pool begins there')
    }
  }

  // Virtual memory

  cuMemGetAllocationGranularity(device: number): number {
    this.begin(CALL.cuMemGetAllocationGranularity)
    this.requireOption('virtualMemory')
    this.device(device)
    return this.options.granularityBytes
  }

  cuMemAddressReserve(bytes: number, alignment: number): number {
    this.enterAnywhere(CALL.cuMemAddressReserve)
    this.requireOption('virtualMemory')
    return this.virtual.reserve(bytes, alignment)
  }

  cuMemAddressFree(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemAddressFree)
    this.requireOption('virtualMemory')
    this.virtual.unreserve(ptr, bytes)
  }

  cuMemCreate(bytes: number, device: number, handleTypes: number): number {
    this.enterAnywhere(CALL.cuMemCreate)
    this.requireOption('virtualMemory')
    return this.virtual.create(bytes, this.device(device), handleTypes)
  }

  cuMemRelease(handle: number): void {
    this.enterAnywhere(CALL.cuMemRelease)
    this.requireOption('virtualMemory')
    this.virtual.release(handle)
  }

  cuMemMap(ptr: number, bytes: number, handle: number): void {
    this.enterAnywhere(CALL.cuMemMap)
    this.requireOption('virtualMemory')
    this.virtual.map(ptr, bytes, handle)
  }

  /** In no stream's order: work submitted before and not yet run will find the memory gone. */
  cuMemUnmap(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemUnmap)
    this.requireOption('virtualMemory')
    this.virtual.unmap(ptr, bytes)
  }

  cuMemSetAccess(
    ptr: number,
    bytes: number,
    devices: readonly number[],
    flags: number = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ): void {
    this.enterAnywhere(CALL.cuMemSetAccess)
    this.requireOption('virtualMemory')
    const entries = devices.map(device => this.device(device))
    this.virtual.setAccess(ptr, bytes, entries, flags)
  }

  cuMemExportToShareableHandle(handle: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemExportToShareableHandle)
    this.requireOption('virtualMemory')
    return this.virtual.export(handle, handleType)
  }

  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemImportFromShareableHandle)
    this.requireOption('virtualMemory')
    return this.virtual.import(descriptor, handleType)
  }

  // Kernels

  cuModuleLoadData(image: string | Uint8Array): number {
    return this.modules.load(this.enter(CALL.cuModuleLoadData), image)
  }

  cuModuleUnload(module: number): void {
    this.enter(CALL.cuModuleUnload)
    this.modules.unload(module)
  }

  cuModuleGetFunction(module: number, name: string): number {
    this.enter(CALL.cuModuleGetFunction)
    return this.modules.find(module, name)
  }

  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const context = this.enter(CALL.cuLaunchKernel)
    const queue = this.streams.queueOf(context, stream)
    this.scheduler.submit(queue, this.modules.launch(context, kernel, shape, args))
  }

  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const context = this.enter(CALL.cuLaunchCooperativeKernel)
    const queue = this.streams.queueOf(context, stream)
    this.scheduler.submit(queue, this.modules.launchTogether(context, kernel, shape, args))
  }

  cuFuncGetAttribute(attribute: number, kernel: number): number {
    return this.modules.attribute(this.enter(CALL.cuFuncGetAttribute), kernel, attribute)
  }

  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void {
    this.modules.setAttribute(this.enter(CALL.cuFuncSetAttribute), kernel, attribute, value)
  }

  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number {
    const context = this.enter(CALL.cuOccupancyMaxActiveBlocksPerMultiprocessor)
    return this.modules.occupancy(context, kernel, blockThreads, sharedBytes)
  }

  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number } {
    const context = this.enter(CALL.cuOccupancyMaxPotentialBlockSize)
    const perMultiprocessor = this.modules.occupancy(context, kernel, MOST_THREADS_PER_BLOCK, sharedBytes)
    return { blocks: perMultiprocessor * MULTIPROCESSORS, blockThreads: MOST_THREADS_PER_BLOCK }
  }

  cuGraphDestroy(graph: number): void {
    this.enter(CALL.cuGraphDestroy)
    this.captures.destroyGraph(graph)
  }

  cuGraphInstantiate(graph: number): number {
    this.enter(CALL.cuGraphInstantiate)
    return this.captures.instantiate(graph)
  }

  cuGraphLaunch(executable: number, stream: number): void {
    const context = this.enter(CALL.cuGraphLaunch)
    const graph = this.captures.executable(executable)
    const queue = this.uncaptured(context, stream)
    if (graph.lastQueue !== null) this.scheduler.wait(queue, graph.lastQueue, graph.lastPosition)
    graph.lastPosition = this.scheduler.submitGraph(queue, graph.nodes)
    graph.lastQueue = queue
  }

  /** Launches that are under way still complete. */
  cuGraphExecDestroy(executable: number): void {
    this.enter(CALL.cuGraphExecDestroy)
    this.captures.destroyExecutable(executable)
  }

  // What every call begins with, and what handles stand for

  private begin(call: number): void {
    this.interceptor.enter(call)
    if (!this.initialised) throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_INITIALIZED, 'call cuInit first')
  }

  /** Begins a call that needs no context; with one, some time passes, and a fault shows. */
  private enterAnywhere(call: number): void {
    this.begin(call)
    const { current } = this.interceptor.thread
    if (current === null) return
    this.interceptor.latch.guard(current.handle)
    this.scheduler.progress()
    this.checkFault(current)
    this.captures.guard(call)
  }

  private enterPools(call: number): void {
    this.enterAnywhere(call)
    this.requireOption('memoryPools')
  }

  private enter(call: number): SimulatedContext {
    this.enterAnywhere(call)
    const { current } = this.interceptor.thread
    if (current === null)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'make a context current first')
    return current
  }

  /** Begins a call that works in the legacy stream. */
  private enterLegacy(call: number): SimulatedContext {
    const context = this.enter(call)
    this.captures.checkSubmit(context.legacy)
    return context
  }

  /** The stream, for work that is not recorded by this simulation. */
  private uncaptured(context: SimulatedContext, stream: number): StreamQueue {
    const queue = this.streams.queueOf(context, stream)
    this.captures.checkNotCaptured(queue, 'graph memory or a graph within a graph')
    return queue
  }

  private checkFault({ fault, handle }: StreamGroup): void {
    if (fault !== null) throw this.interceptor.refuse(fault.code, fault.detail, handle)
  }

  private finishAll(context: SimulatedContext): void {
    for (const queue of [...context.queues]) this.scheduler.finish(queue, queue.submitted)
  }

  private synchronized(context: StreamGroup): void {
    this.checkFault(context)
    this.pools.synchronized()
  }

  private device(number: number): SimulatedDevice {
    const device = this.devices[number]
    if (device === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_DEVICE, `no device ${number}`)
    return device
  }

  private context(handle: number): SimulatedContext {
    const context = this.contexts.get(handle)
    if (context === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'no such context')
    return context
  }

  private requireOption(option: Switch): void {
    if (!this.options[option])
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, `the option ${option} is false`)
  }

  private liveQueue(stream: number): StreamQueue {
    const queue = this.streams.find(this.interceptor.thread.current, stream)
    if (queue === undefined) throw new RangeError(`${stream} is no stream of this driver, or no context is current`)
    return queue
  }
}

function repeatByte(value: number): number {
  return Math.imul(value & 0xff, 0x01010101) >>> 0
}
