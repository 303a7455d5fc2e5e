// The functions of the driver contract, in its order, as the simulated driver has them. Each begins its call, asks the
// part that keeps the state, and submits work. The file is long because it has a method for each function.

import type { Bytes } from '../../base/typed-arrays.js'
import type { NvmlAnswer } from '../../libraries/nvml.js'
import {
  CU_DEVICE_CPU,
  CU_EVENT_DISABLE_TIMING,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ADVISE_SET_READ_MOSTLY,
  CU_MEM_ADVISE_UNSET_ACCESSED_BY,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../constants.js'
import type { BatchedCopy, CopyDirection, KernelArguments, LaunchShape, MemPoolProperties } from '../driver.js'
import { CALL } from './call-interceptor.js'
import { deviceAttribute } from './device-attributes.js'
import { MOST_THREADS_PER_BLOCK, MULTIPROCESSORS } from './kernels/launch-limits.js'
import { hostAddress } from './memory/host-address.js'
import { Simulation } from './simulation.js'
import type { Event } from './streams/streams.js'

const DRIVER_VERSION = 13_000
/** what simulated memory holds after a discard */
const DISCARDED_WORD = 0xdddddddd
/** The priorities of an H200's streams. */
const LEAST_PRIORITY = 0
const GREATEST_PRIORITY = -5

export class SimulatedCalls extends Simulation {
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

  /** The text "simulated", and in the last bytes the seed, or the number of the machine, and the ordinal. */
  cuDeviceGetUuid(device: number): Bytes {
    this.begin(CALL.cuDeviceGetUuid)
    const uuid = new Uint8Array(16)
    uuid.set(new TextEncoder().encode('simulated'))
    const last = new DataView(uuid.buffer)
    last.setInt32(10, this.machine?.id ?? this.options.seed | 0)
    last.setUint16(14, this.device(device).ordinal)
    return uuid
  }

  cuDeviceTotalMem(device: number): number {
    this.begin(CALL.cuDeviceTotalMem)
    return this.device(device).capacityBytes
  }

  cuDeviceGetAttribute(attribute: number, device: number): number {
    this.begin(CALL.cuDeviceGetAttribute)
    this.device(device)
    const value = deviceAttribute(attribute, this.options)
    if (value === undefined) throw this.interceptor.invalid(`no attribute ${attribute}`)
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

  /**
   * The last release ends the context: its work completes, its streams, events, modules and linear memory are gone.
   */
  cuDevicePrimaryCtxRelease(device: number): void {
    this.begin(CALL.cuDevicePrimaryCtxRelease)
    const context = this.contexts.primaryOf(this.device(device))
    if (context === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'never retained')
    if (--context.retained > 0) return
    this.finishAll(context)
    this.linear.releaseOf(context)
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

  // Memory of cuMemAlloc, managed and registered host memory, copies and fills

  /** The address of host memory in this process. */
  hostAddress(host: ArrayBufferView): number {
    return hostAddress(this.hosts.asRegistered(host))
  }

  /** The NUMA nodes of the host, by the option `numaNodes`. */
  hostNodes(): readonly number[] {
    return Array.from({ length: this.options.numaNodes }, (_, node) => node)
  }

  /** Notes the node of host memory, -1 for any. False for a node that the host lacks, or without `numaBinding`. */
  placeHost(host: ArrayBufferView, node: number): boolean {
    const { numaNodes, numaBinding } = this.options
    if (node >= numaNodes || (node >= 0 && numaNodes > 1 && !numaBinding)) return false
    this.hostPlaces.place(host, node)
    return true
  }

  /** Forgets the node of host memory. */
  unplaceHost(host: ArrayBufferView): void {
    this.hostPlaces.place(host, -1)
  }

  /** Fills host memory with zeros in a later turn. */
  async fillHost(host: ArrayBufferView): Promise<void> {
    await this.hostPlaces.fill(host)
  }

  /**
   * The processes of the machine; null for a device of this process only.
   * @internal
   */
  usersOf(device: number): NvmlAnswer | null {
    const { machine } = this
    if (machine === null) return null
    const processes = this.interceptor.onSystem(() => machine.processesOn(this.device(device).ordinal))
    return { processes, persistenceMode: null }
  }

  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    const { device } = this.enter(CALL.cuMemGetInfo)
    return { freeBytes: device.capacityBytes - device.usedBytes, totalBytes: device.capacityBytes }
  }

  cuMemAlloc(bytes: number): number {
    return this.linear.allocate(this.enter(CALL.cuMemAlloc), bytes)
  }

  cuMemAllocManaged(bytes: number, flags: number): number {
    const context = this.enter(CALL.cuMemAllocManaged, 'managedMemory')
    return this.linear.allocateManaged(context, bytes, flags)
  }

  cuMemAdvise(ptr: number, bytes: number, advice: number, device: number): void {
    this.enter(CALL.cuMemAdvise, 'concurrentManagedAccess')
    this.linear.checkManaged(ptr, bytes)
    if (device !== CU_DEVICE_CPU) this.device(device)
    if (advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY) return
    throw this.interceptor.invalid(`no advice ${advice}`)
  }

  /** Takes its turn in the stream, and moves nothing: simulated managed memory always lies in host memory. */
  cuMemPrefetchAsync(ptr: number, bytes: number, device: number, stream: number): void {
    const context = this.enter(CALL.cuMemPrefetchAsync, 'concurrentManagedAccess')
    const queue = this.streams.queueOf(context, stream)
    this.captures.checkNotCaptured(queue, 'a prefetch')
    this.linear.checkManaged(ptr, bytes)
    if (device !== CU_DEVICE_CPU) this.device(device)
    this.scheduler.submit(queue, () => {})
  }

  /** Overwrites the memory, so that a read of discarded contents is seen. */
  cuMemDiscardBatchAsync(ptr: number, bytes: number, stream: number): void {
    const context = this.enter(CALL.cuMemDiscardBatchAsync, 'concurrentManagedAccess')
    const queue = this.streams.queueOf(context, stream)
    if (queue === context.legacy) throw this.interceptor.invalid('a discard in the legacy default stream')
    this.captures.checkNotCaptured(queue, 'a discard')
    this.linear.checkManaged(ptr, bytes)
    this.transfers.fill(context, queue, ptr, DISCARDED_WORD, bytes)
  }

  /** Waits for all work of the context that owns the memory, as the real driver does. */
  cuMemFree(ptr: number): void {
    const current = this.enter(CALL.cuMemFree)
    if (ptr === 0) return
    const linear = this.linear.find(ptr)
    const memory = linear?.memory ?? this.pools.memoryOf(ptr)
    if (memory === undefined) throw this.interceptor.invalid('no allocation begins there')
    const owner = linear?.owner ?? this.contexts.primaryOf(memory) ?? current
    this.finishAll(owner)
    this.checkFault(owner)
    if (linear !== undefined) this.linear.release(linear)
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

  /** Waits for all work of the context, as the real driver does. Work of other contexts that uses the memory fails. */
  cuMemHostUnregister(host: ArrayBufferView): void {
    const context = this.enter(CALL.cuMemHostUnregister)
    this.finishAll(context)
    this.checkFault(context)
    if (!this.hosts.unregister(host)) throw this.interceptor.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
  }

  cuMemHostGetDevicePointer(host: ArrayBufferView): number {
    this.enter(CALL.cuMemHostGetDevicePointer)
    const ptr = this.hosts.devicePointer(host)
    if (ptr === null) throw this.interceptor.invalid('the memory is not registered')
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

  cuMemcpyBatchAsync(copies: readonly BatchedCopy[], direction: CopyDirection, stream: number): void {
    const context = this.enter(CALL.cuMemcpyBatchAsync)
    const queue = this.streams.queueOf(context, stream)
    if (queue === context.legacy) throw this.interceptor.invalid('a batch of copies in the legacy default stream')
    if (queue.capture !== null) {
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 'a batch of copies is not captured')
    }
    this.transfers.batch(context, queue, copies, direction)
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

  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD8Async)
    this.transfers.fill(
      context,
      this.streams.queueOf(context, stream),
      target,
      Math.imul(value & 0xff, 0x01010101) >>> 0,
      count,
    )
  }

  cuMemsetD16Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD16Async)
    const queue = this.streams.queueOf(context, stream)
    if (target % 2 !== 0) throw this.interceptor.invalid('the address is no multiple of 2')
    this.transfers.fill(context, queue, target, Math.imul(value & 0xffff, 0x00010001) >>> 0, count * 2)
  }

  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD32Async)
    const queue = this.streams.queueOf(context, stream)
    if (target % 4 !== 0) throw this.interceptor.invalid('the address is no multiple of 4')
    this.transfers.fill(context, queue, target, value >>> 0, count * 4)
  }

  // Streams, events, captures and graphs

  cuCtxGetStreamPriorityRange(): { least: number; greatest: number } {
    this.enter(CALL.cuCtxGetStreamPriorityRange)
    return { least: LEAST_PRIORITY, greatest: GREATEST_PRIORITY }
  }

  cuStreamCreate(flags: number): number {
    const context = this.enter(CALL.cuStreamCreate)
    return this.streams.create(context, flags)
  }

  cuStreamCreateWithPriority(flags: number, priority: number): number {
    const context = this.enter(CALL.cuStreamCreateWithPriority)
    const stream = this.streams.create(context, flags)
    this.streams.queue(context, stream).priority = Math.min(LEAST_PRIORITY, Math.max(GREATEST_PRIORITY, priority))
    return stream
  }

  cuStreamGetPriority(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetPriority), stream).priority
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

  cuEventCreate(flags: number): number {
    const hasTiming = (flags & CU_EVENT_DISABLE_TIMING) === 0
    return this.streams.createEvent(this.enter(CALL.cuEventCreate), hasTiming)
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
    entry.position = this.scheduler.submit(queue, this.noteTime(entry))
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

  cuEventElapsedTime(start: number, end: number): number {
    this.enter(CALL.cuEventElapsedTime)
    return (this.secondsOf(end) - this.secondsOf(start)) * 1000
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

  /** Launches that were submitted still complete. */
  cuGraphExecDestroy(executable: number): void {
    this.enter(CALL.cuGraphExecDestroy)
    this.captures.destroyExecutable(executable)
  }

  // The driver's own pools: cuMemPool and cuMemAllocAsync

  cuDeviceGetDefaultMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetDefaultMemPool, 'memoryPools')
    return this.pools.defaultOf(this.device(device))
  }

  cuDeviceGetMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetMemPool, 'memoryPools')
    return this.pools.currentOf(this.device(device))
  }

  cuDeviceSetMemPool(device: number, pool: number): void {
    this.begin(CALL.cuDeviceSetMemPool, 'memoryPools')
    this.pools.setCurrent(this.device(device), pool)
  }

  cuMemPoolCreate(properties: MemPoolProperties): number {
    this.enterAnywhere(CALL.cuMemPoolCreate, 'memoryPools')
    return this.pools.create(properties)
  }

  cuMemPoolDestroy(pool: number): void {
    this.enterAnywhere(CALL.cuMemPoolDestroy, 'memoryPools')
    this.pools.destroy(pool)
  }

  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    this.enterAnywhere(CALL.cuMemPoolGetAttribute, 'memoryPools')
    const value = this.pools.get(pool).attribute(attribute)
    if (value === undefined) throw this.interceptor.invalid(`no pool attribute ${attribute}`)
    return value
  }

  /** `Infinity` is the driver's 2^64 - 1. */
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    this.enterAnywhere(CALL.cuMemPoolSetAttribute, 'memoryPools')
    if (this.pools.get(pool).setAttribute(attribute, value)) return
    throw this.interceptor.invalid(`pool attribute ${attribute} cannot be set to ${value}`)
  }

  cuMemPoolTrimTo(pool: number, keepBytes: number): void {
    this.enterAnywhere(CALL.cuMemPoolTrimTo, 'memoryPools')
    const entry = this.pools.get(pool)
    this.interceptor.checkSize(keepBytes, 0)
    entry.trimTo(keepBytes)
  }

  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void {
    this.enterAnywhere(CALL.cuMemPoolSetAccess, 'memoryPools')
    this.pools.setAccess(pool, locationType, locationId, flags)
  }

  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number {
    this.enterAnywhere(CALL.cuMemPoolGetAccess, 'memoryPools')
    return this.pools.access(pool, locationType, locationId)
  }

  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemPoolExportToShareableHandle, 'memoryPools')
    return this.pools.export(pool, handleType)
  }

  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemPoolImportFromShareableHandle, 'memoryPools')
    return this.pools.import(descriptor, handleType)
  }

  cuMemPoolExportPointer(ptr: number): Bytes {
    this.enterAnywhere(CALL.cuMemPoolExportPointer, 'memoryPools')
    return this.pools.exportPointer(ptr)
  }

  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number {
    this.enterAnywhere(CALL.cuMemPoolImportPointer, 'memoryPools')
    return this.pools.importPointer(pool, exported)
  }

  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocFromPoolAsync, 'memoryPools')
    return this.pools.allocate(pool, bytes, this.uncaptured(context, stream))
  }

  cuMemAllocAsync(bytes: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocAsync, 'memoryPools')
    const queue = this.uncaptured(context, stream)
    return this.pools.allocate(this.pools.currentOf(context.device), bytes, queue)
  }

  cuMemFreeAsync(ptr: number, stream: number): void {
    const context = this.enter(CALL.cuMemFreeAsync, 'memoryPools')
    if (!this.pools.release(ptr, this.uncaptured(context, stream))) {
      throw this.interceptor.invalid('no allocation of a pool begins there')
    }
  }

  // Virtual memory: addresses, physical memory, mappings and their export

  cuMemGetAllocationGranularity(
    device: number,
    option: number = CU_MEM_ALLOC_GRANULARITY_MINIMUM,
    handleTypes: number = CU_MEM_HANDLE_TYPE_NONE,
  ): number {
    this.begin(CALL.cuMemGetAllocationGranularity, 'virtualMemory')
    this.device(device)
    return this.virtual.granularity(option, handleTypes)
  }

  cuMemAddressReserve(bytes: number, alignment: number): number {
    this.enterAnywhere(CALL.cuMemAddressReserve, 'virtualMemory')
    return this.virtual.reserve(bytes, alignment)
  }

  cuMemAddressFree(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemAddressFree, 'virtualMemory')
    this.virtual.unreserve(ptr, bytes)
  }

  cuMemCreate(bytes: number, device: number, handleTypes: number, gpuDirectRdma = false): number {
    this.enterAnywhere(CALL.cuMemCreate, 'virtualMemory')
    if (gpuDirectRdma) this.requireOption('gpuDirectRdma')
    return this.virtual.create(bytes, this.device(device), handleTypes)
  }

  cuMemRelease(handle: number): void {
    this.enterAnywhere(CALL.cuMemRelease, 'virtualMemory')
    this.virtual.release(handle)
  }

  cuMemMap(ptr: number, bytes: number, handle: number): void {
    this.enterAnywhere(CALL.cuMemMap, 'virtualMemory')
    this.virtual.map(ptr, bytes, handle)
  }

  /** Takes effect at once: work that was submitted earlier and has not run finds no memory there. */
  cuMemUnmap(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemUnmap, 'virtualMemory')
    this.virtual.unmap(ptr, bytes)
  }

  cuMemSetAccess(
    ptr: number,
    bytes: number,
    devices: readonly number[],
    flags: number = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ): void {
    this.enterAnywhere(CALL.cuMemSetAccess, 'virtualMemory')
    const entries = devices.map(device => this.device(device))
    this.virtual.setAccess(ptr, bytes, entries, flags)
  }

  cuMemExportToShareableHandle(handle: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemExportToShareableHandle, 'virtualMemory')
    return this.virtual.export(handle, handleType)
  }

  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemImportFromShareableHandle, 'virtualMemory')
    return this.virtual.import(descriptor, handleType)
  }

  // Modules, launches and occupancy

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

  /** When the latest record of an event completed; refuses an event without timing or record. */
  private secondsOf(event: number): number {
    const { time, queue, position, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (time === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'the event has no timing')
    if (queue === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'the event was never recorded')
    if (queue.completed < position) throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_READY, 'not complete yet')
    return time.seconds
  }

  /** The effect of a record: it notes the time of its completion; null for an event without timing. */
  private noteTime(event: Event): (() => void) | null {
    if (event.time === null) return null
    const time = { seconds: Number.NaN } // of this record: an earlier one may complete later, on another stream
    event.time = time
    return () => {
      time.seconds = this.interceptor.clockSeconds
    }
  }
}
