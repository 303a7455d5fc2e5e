// A GPU in memory: the functions of the driver contract over the parts beside this file. Long because the contract is;
// each function only checks, asks its part, and submits. Deterministic: the same seed and calls give the same run.
//
// Where CUDA leaves a choice, this takes the one that finds mistakes: work completes as late as it may; fresh memory is
// garbage; handles and addresses come back at once; an upload from pageable memory is copied aside at the call, but
// reaches the device in stream order, also that of cuMemcpyHtoD; cuMemcpyDtoD and cuMemsetD8 do not wait. A pointer into
// nothing is refused at the call; memory that is not there when the work runs kills the context, and the next call says
// so. An access is checked to the byte. Sizes are counted in units of 512 bytes.

import { Random } from '../../base/random.js'
import {
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
  CU_STREAM_PER_THREAD,
  DEVICE_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver, KernelArguments, LaunchShape } from '../driver.js'
import { AddressSpace, type Region } from './address-space.js'
import { CALL, CallGate } from './call-gate.js'
import { Contents } from './contents.js'
import { SimulatedContext } from './context.js'
import { SimulatedDevice } from './device.js'
import { DeviceMemory } from './device-memory.js'
import type { FaultRule } from './faults.js'
import { HandleTable } from './handle-table.js'
import { hostAddress } from './host-address.js'
import { HostRegistry } from './host-registry.js'
import { MOST_THREADS_PER_BLOCK } from './kernels.js'
import { MemoryPool } from './memory-pool.js'
import { Modules } from './modules.js'
import { completeOptions, type SimulatedOptions } from './options.js'
import { poolAttribute, setPoolAttribute } from './pool-attributes.js'
import { Scheduler } from './scheduler.js'
import type { StreamGroup, StreamQueue } from './stream-queue.js'
import { Transfers } from './transfers.js'
import { VirtualMemory } from './virtual-memory.js'

const DRIVER_VERSION = 13_000
const UNIT_BYTES = 512

interface Event {
  readonly context: SimulatedContext
  /** what was recorded last: a position of a stream; null is never recorded */
  queue: StreamQueue | null
  position: number
}

export class SimulatedDriver implements Driver {
  readonly simulated = true
  readonly origin: string

  private readonly options: Required<SimulatedOptions>
  private passedSeconds = 0
  private readonly gate = new CallGate()
  private readonly scheduler: Scheduler
  private readonly space = new AddressSpace()
  private readonly hosts = new HostRegistry()
  private readonly managed = new Set<Region>()
  private readonly transfers: Transfers
  private readonly modules = new Modules(this.gate)
  private readonly virtual: VirtualMemory
  private readonly devices: readonly SimulatedDevice[]
  private readonly pools: readonly MemoryPool[]
  private readonly poolTable = new HandleTable<MemoryPool>(0x4000_0000)
  private readonly poolHandles: readonly number[]
  private readonly streams = new HandleTable<StreamQueue>(0x1000_0000)
  private readonly events = new HandleTable<Event>(0x2000_0000)
  private readonly contexts = new Map<number, SimulatedContext>()
  private contextsMade = 0
  private streamsMade = 0
  private current: SimulatedContext | null = null
  private initialised = false

  constructor(options: SimulatedOptions = {}) {
    this.options = completeOptions(options)
    const { devices, capacityBytes, granularityBytes, progress, seed, faults } = this.options
    this.origin = `simulated in memory, seed ${seed}`
    this.scheduler = new Scheduler(progress === 'seeded' ? new Random(seed) : null)
    this.transfers = new Transfers(this.gate, this.space, this.hosts, this.scheduler)
    this.virtual = new VirtualMemory(this.gate, this.space, granularityBytes)
    this.devices = Array.from({ length: devices }, (_, i) => new SimulatedDevice(i, capacityBytes, seed))
    this.pools = this.devices.map(device => new MemoryPool(device, this.space, this.scheduler, this.gate))
    this.poolHandles = this.pools.map(pool => this.poolTable.add(pool))
    for (const fault of faults) this.failCall(fault)
  }

  get calls(): ReadonlyMap<string, number> {
    return this.gate.calls
  }

  get modelledSeconds(): number {
    return this.gate.modelledSeconds
  }

  /** Modelled time of the calls, and what `passTime` added. */
  get clockSeconds(): number {
    return this.gate.modelledSeconds + this.passedSeconds
  }

  /** The host did something else for so long: what a program or a recording spends between its calls. */
  passTime(seconds: number): void {
    if (!(seconds >= 0)) throw new RangeError(`passTime: seconds must not be negative, not ${seconds}`)
    this.passedSeconds += seconds
  }

  hostAddress(host: ArrayBufferView): number {
    return hostAddress(host)
  }

  // What no driver has: for tests and replays. None of these is counted or paid.

  /** Makes a driver call fail, once or from then on, without an effect; rules add up. */
  failCall(rule: FaultRule): void {
    this.gate.rules.add(rule)
  }

  /** Ends all rules of `failCall` and of the option `faults`. */
  clearFaults(): void {
    this.gate.rules.clear()
  }

  /**
   * Submits an operation without effect to `stream` that completes only when released by `releaseThrough`, or when the
   * host waits for it or for something behind it. Returns its ticket; the tickets of a stream grow.
   */
  holdOperation(stream: number): number {
    return this.scheduler.hold(this.liveQueue(stream))
  }

  /** Lets the held operations of `stream` up to `ticket` complete. A destroyed stream can no longer be released. */
  releaseThrough(stream: number, ticket: number): void {
    const queue = this.liveQueue(stream)
    if (!(ticket <= queue.submitted)) throw new RangeError(`ticket ${ticket} was never given out on stream ${stream}`)
    this.scheduler.release(queue, ticket)
  }

  /** Bytes of physical memory of device `ordinal` that are taken, for leak checks. */
  usedBytes(ordinal = 0): number {
    return this.devices[ordinal].usedBytes
  }

  // Devices and contexts

  cuInit(): void {
    this.gate.enter(CALL.cuInit)
    this.initialised = true
  }

  cuDriverGetVersion(): number {
    this.gate.enter(CALL.cuDriverGetVersion)
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
    switch (attribute) {
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return MOST_THREADS_PER_BLOCK
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        return Number(this.options.managedMemory)
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return Number(this.options.virtualMemory)
      case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return Number(this.options.memoryPools)
      default:
        throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no attribute ${attribute}`)
    }
  }

  cuDevicePrimaryCtxRetain(device: number): number {
    this.begin(CALL.cuDevicePrimaryCtxRetain)
    const owner = this.device(device)
    let context = this.primaryOf(owner)
    if (context === undefined) {
      const handle = 0x3000_0000 + ++this.contextsMade * 16
      const memory = new DeviceMemory(this.space, owner.ordinal)
      context = new SimulatedContext(handle, owner, memory, () => ++this.streamsMade)
      this.contexts.set(handle, context)
    }
    context.retained++
    return context.handle
  }

  /** The last release ends the context: its work completes, its streams, events, modules and plain memory are gone. */
  cuDevicePrimaryCtxRelease(device: number): void {
    this.begin(CALL.cuDevicePrimaryCtxRelease)
    const context = this.primaryOf(this.device(device))
    if (context === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'never retained')
    if (--context.retained > 0) return
    this.finishAll(context)
    for (const region of this.space.ownedBy(context)) {
      this.giveBack(region)
    }
    this.modules.removeOf(context)
    this.streams.removeWhere(queue => queue.group === context)
    this.events.removeWhere(event => event.context === context)
    this.contexts.delete(context.handle)
    if (this.current === context) this.setCurrent(null)
  }

  cuCtxSetCurrent(context: number): void {
    this.begin(CALL.cuCtxSetCurrent)
    const next = context === 0 ? null : this.contexts.get(context)
    if (next === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'no such context')
    this.setCurrent(next)
  }

  cuCtxSynchronize(): void {
    const context = this.enter(CALL.cuCtxSynchronize)
    this.finishAll(context)
    this.synchronized(context)
  }

  // Memory

  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    const { device } = this.enter(CALL.cuMemGetInfo)
    return { freeBytes: device.capacityBytes - device.usedBytes, totalBytes: device.capacityBytes }
  }

  cuMemAlloc(bytes: number): number {
    const context = this.enter(CALL.cuMemAlloc)
    this.gate.checkSize(bytes, 1)
    const contents = context.device.take(roundUp(bytes))
    const region = contents === null ? null : this.space.claim(bytes)
    if (region === null) {
      if (contents !== null) context.device.give(roundUp(bytes))
      throw this.gate.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    }
    this.gate.payFor(bytes)
    region.contents = contents
    region.device = context.device
    region.owner = context
    return region.base
  }

  /** Waits for all work of the context that owns the memory, as the real driver does. */
  cuMemFree(ptr: number): void {
    const current = this.enter(CALL.cuMemFree)
    if (ptr === 0) return
    const region = this.space.find(ptr)
    const pool = this.pools.find(each => each.owns(ptr))
    if (pool === undefined && (region?.base !== ptr || region.owner === null)) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation begins there')
    }
    const owner = this.primaryOf(region!.device!) ?? current
    this.finishAll(owner)
    this.checkFault(owner)
    if (pool !== undefined) {
      pool.release(ptr, owner.legacy)
      this.scheduler.finishStream(owner.legacy)
    } else {
      this.giveBack(region!)
    }
  }

  cuMemHostRegister(host: ArrayBufferView, _flags: number): void {
    this.enter(CALL.cuMemHostRegister)
    this.gate.checkSize(host.byteLength, 1)
    if (!this.hosts.register(host)) throw this.gate.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
  }

  /** Does not wait: work that still uses the memory will find it gone. */
  cuMemHostUnregister(host: ArrayBufferView): void {
    this.enter(CALL.cuMemHostUnregister)
    if (!this.hosts.unregister(host)) throw this.gate.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
  }

  /** The host's own address, as with unified addressing. */
  cuMemHostGetDevicePointer(host: ArrayBufferView): number {
    this.enter(CALL.cuMemHostGetDevicePointer)
    if (!this.hosts.has(host)) throw this.gate.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    return hostAddress(host)
  }

  /** Takes nothing of the device's memory, since managed memory may lie in the host's. */
  cuMemAllocManaged(bytes: number, _flags: number): number {
    const context = this.enter(CALL.cuMemAllocManaged)
    if (!this.options.managedMemory) throw this.gate.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED)
    this.gate.checkSize(bytes, 1)
    const region = this.space.claim(bytes)
    if (region === null) throw this.gate.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    this.gate.payFor(bytes)
    region.contents = new Contents(roundUp(bytes), 0xa5a5a5a5)
    region.device = context.device
    region.owner = context
    this.managed.add(region)
    return region.base
  }

  cuMemcpyHtoD(target: number, source: ArrayBufferView): void {
    const context = this.enter(CALL.cuMemcpyHtoD)
    this.scheduler.finishStream(context.legacy)
    this.transfers.upload(context, context.legacy, target, source)
    if (this.hosts.has(source)) this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoH(target: ArrayBufferView, source: number): void {
    const context = this.enter(CALL.cuMemcpyDtoH)
    this.transfers.download(context, context.legacy, target, source)
    this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoD(target: number, source: number, bytes: number): void {
    const context = this.enter(CALL.cuMemcpyDtoD)
    this.transfers.copy(context, context.legacy, target, source, bytes)
  }

  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const context = this.enter(CALL.cuMemcpyHtoDAsync)
    this.transfers.upload(context, this.queueOf(context, stream), target, source)
  }

  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoHAsync)
    const queue = this.queueOf(context, stream)
    this.transfers.download(context, queue, target, source)
    if (this.hosts.has(target)) return
    this.scheduler.finishStream(queue)
    this.checkFault(context)
  }

  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoDAsync)
    this.transfers.copy(context, this.queueOf(context, stream), target, source, bytes)
  }

  cuMemsetD8(target: number, value: number, count: number): void {
    const context = this.enter(CALL.cuMemsetD8)
    this.transfers.fill(context, context.legacy, target, repeatByte(value), count)
  }

  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD8Async)
    this.transfers.fill(context, this.queueOf(context, stream), target, repeatByte(value), count)
  }

  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD32Async)
    const queue = this.queueOf(context, stream)
    if (target % 4 !== 0) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the address is no multiple of 4')
    this.transfers.fill(context, queue, target, value >>> 0, count * 4)
  }

  // Streams and events

  cuStreamCreate(flags: number): number {
    const context = this.enter(CALL.cuStreamCreate)
    const kind = flags & CU_STREAM_NON_BLOCKING ? 'non-blocking' : 'blocking'
    return this.streams.add(context.add(kind, ++this.streamsMade))
  }

  /** Does not wait; what was submitted still completes. */
  cuStreamDestroy(stream: number): void {
    this.enter(CALL.cuStreamDestroy)
    const queue = this.streams.remove(stream)
    if (queue === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such stream')
    queue.destroyed = true
    if (queue.completed === queue.submitted) queue.group.queues.delete(queue)
  }

  cuStreamSynchronize(stream: number): void {
    const queue = this.queue(this.enter(CALL.cuStreamSynchronize), stream)
    this.scheduler.finishStream(queue)
    this.synchronized(queue.group)
  }

  cuStreamQuery(stream: number): boolean {
    return this.scheduler.isIdle(this.queue(this.enter(CALL.cuStreamQuery), stream))
  }

  cuStreamWaitEvent(stream: number, event: number): void {
    const queue = this.queue(this.enter(CALL.cuStreamWaitEvent), stream)
    const recorded = this.event(event)
    if (recorded.queue === null) return
    this.scheduler.wait(queue, recorded.queue, recorded.position)
    queue.noteWait(recorded.queue, recorded.position)
  }

  cuStreamGetCtx(stream: number): number {
    return this.queue(this.enter(CALL.cuStreamGetCtx), stream).group.handle
  }

  cuStreamGetId(stream: number): number {
    return this.queue(this.enter(CALL.cuStreamGetId), stream).id
  }

  cuEventCreate(_flags: number): number {
    const context = this.enter(CALL.cuEventCreate)
    return this.events.add({ context, queue: null, position: 0 })
  }

  cuEventDestroy(event: number): void {
    this.enter(CALL.cuEventDestroy)
    this.event(event)
    this.events.remove(event)
  }

  cuEventRecord(event: number, stream: number): void {
    const context = this.enter(CALL.cuEventRecord)
    const entry = this.event(event)
    const queue = this.queueOf(context, stream)
    if (entry.context !== context) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'the event belongs to another context than the stream')
    }
    entry.position = this.scheduler.submit(queue, null)
    entry.queue = queue
  }

  cuEventQuery(event: number): boolean {
    this.enter(CALL.cuEventQuery)
    const { queue, position } = this.event(event)
    return queue === null || queue.completed >= position
  }

  cuEventSynchronize(event: number): void {
    this.enter(CALL.cuEventSynchronize)
    const { context, queue, position } = this.event(event)
    if (queue !== null) this.scheduler.finish(queue, position)
    this.synchronized(context)
  }

  // The driver's own pools

  cuDeviceGetDefaultMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetDefaultMemPool)
    this.requireOption('memoryPools')
    return this.poolHandles[this.device(device).ordinal]
  }

  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    this.enterAnywhere(CALL.cuMemPoolGetAttribute)
    const value = poolAttribute(this.pool(pool), attribute)
    if (value === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no pool attribute ${attribute}`)
    return value
  }

  /** `Infinity` is the driver's 2^64 - 1. */
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    this.enterAnywhere(CALL.cuMemPoolSetAttribute)
    if (setPoolAttribute(this.pool(pool), attribute, value)) return
    throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `pool attribute ${attribute} cannot be set to ${value}`)
  }

  cuMemPoolTrimTo(pool: number, keepBytes: number): void {
    this.enterAnywhere(CALL.cuMemPoolTrimTo)
    const entry = this.pool(pool)
    this.gate.checkSize(keepBytes, 0)
    entry.trimTo(keepBytes)
  }

  cuMemAllocAsync(bytes: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocAsync)
    this.requireOption('memoryPools')
    const queue = this.queueOf(context, stream)
    this.gate.checkSize(bytes, 1)
    const ptr = this.pools[context.device.ordinal].allocate(bytes, queue)
    if (ptr === null) throw this.gate.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    return ptr
  }

  cuMemFreeAsync(ptr: number, stream: number): void {
    const context = this.enter(CALL.cuMemFreeAsync)
    this.requireOption('memoryPools')
    const queue = this.queueOf(context, stream)
    if (!this.pools.some(pool => pool.release(ptr, queue))) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation of a pool begins there')
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

  cuMemCreate(bytes: number, device: number): number {
    this.enterAnywhere(CALL.cuMemCreate)
    this.requireOption('virtualMemory')
    return this.virtual.create(bytes, this.device(device))
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

  cuMemSetAccess(ptr: number, bytes: number, device: number): void {
    this.enterAnywhere(CALL.cuMemSetAccess)
    this.requireOption('virtualMemory')
    this.virtual.setAccess(ptr, bytes, this.device(device))
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
    const queue = this.queueOf(context, stream)
    this.scheduler.submit(queue, this.modules.launch(context, kernel, shape, args))
  }

  // What every call begins with, and what handles stand for

  private begin(call: number): void {
    this.gate.enter(call)
    if (!this.initialised) throw this.gate.refuse(RESULT.CUDA_ERROR_NOT_INITIALIZED, 'call cuInit first')
  }

  /** Begins a call that needs no context; with one, some time passes, and a fault shows. */
  private enterAnywhere(call: number): void {
    this.begin(call)
    if (this.current === null) return
    this.gate.latch.guard(this.current.handle)
    this.scheduler.progress()
    this.checkFault(this.current)
  }

  private enter(call: number): SimulatedContext {
    this.enterAnywhere(call)
    if (this.current === null) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'make a context current first')
    return this.current
  }

  private checkFault({ fault, handle }: StreamGroup): void {
    if (fault !== null) throw this.gate.refuse(fault.code, fault.detail, handle)
  }

  private finishAll(context: SimulatedContext): void {
    for (const queue of [...context.queues]) this.scheduler.finish(queue, queue.submitted)
  }

  private synchronized(context: StreamGroup): void {
    this.checkFault(context)
    for (const pool of this.pools) pool.synchronized()
  }

  private device(number: number): SimulatedDevice {
    const device = this.devices[number]
    if (device === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_DEVICE, `no device ${number}`)
    return device
  }

  private giveBack(region: Region): void {
    if (!this.managed.delete(region)) region.device!.give(roundUp(region.bytes))
    this.space.release(region)
  }

  private primaryOf(device: SimulatedDevice): SimulatedContext | undefined {
    for (const context of this.contexts.values()) if (context.device === device) return context
    return undefined
  }

  private setCurrent(context: SimulatedContext | null): void {
    this.current = context
    this.gate.context = context?.handle ?? 0
  }

  private requireOption(option: 'virtualMemory' | 'memoryPools'): void {
    if (!this.options[option]) throw this.gate.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, `the option ${option} is false`)
  }

  private pool(handle: number): MemoryPool {
    this.requireOption('memoryPools')
    const pool = this.poolTable.get(handle)
    if (pool === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no such pool')
    return pool
  }

  private event(handle: number): Event {
    const event = this.events.get(handle)
    if (event === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such event')
    return event
  }

  /** The stream, to submit work of `context` to. */
  private queueOf(context: SimulatedContext, stream: number): StreamQueue {
    const queue = this.queue(context, stream)
    if (queue.group === context) return queue
    throw this.gate.refuse(
      RESULT.CUDA_ERROR_INVALID_HANDLE,
      'the stream belongs to another context than the current one',
    )
  }

  /** The stream, whichever context it belongs to; the default streams are those of `context`. */
  private queue(context: SimulatedContext, stream: number): StreamQueue {
    const queue = this.findQueue(context, stream)
    if (queue === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such stream')
    return queue
  }

  private liveQueue(stream: number): StreamQueue {
    const queue = this.findQueue(this.current, stream)
    if (queue === undefined) throw new RangeError(`${stream} is no stream of this driver, or no context is current`)
    return queue
  }

  private findQueue(context: SimulatedContext | null, stream: number): StreamQueue | undefined {
    if (stream === CU_STREAM_LEGACY_DEFAULT) return context?.legacy
    if (stream === CU_STREAM_PER_THREAD) return context?.perThread
    return this.streams.get(stream)
  }
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES
}

function repeatByte(value: number): number {
  return Math.imul(value & 0xff, 0x01010101) >>> 0
}
