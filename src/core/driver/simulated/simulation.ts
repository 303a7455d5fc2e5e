// The parts of one simulated driver, and the checks with which every call begins. calls.ts has the calls.

import { TiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { RESULT } from '../constants.js'
import { CallInterceptor } from './call-interceptor.js'
import { Contexts, type SimulatedContext } from './context.js'
import { PhysicalMemory, SimulatedDevice } from './device.js'
import { Modules } from './kernels/modules.js'
import { Machine } from './machine/machine.js'
import { AddressSpace } from './memory/address-space.js'
import { HostPlaces } from './memory/host-places.js'
import { HostRegistry } from './memory/host-registry.js'
import { LinearMemory } from './memory/linear-memory.js'
import { PeerAccess } from './memory/peer-access.js'
import { Shareables } from './memory/shareable.js'
import { Transfers } from './memory/transfers.js'
import { VirtualMemory } from './memory/virtual-memory.js'
import { type CompleteOptions, completeOptions, type SimulatedOptions, type Switch } from './options.js'
import { MemoryPools } from './pools/memory-pools.js'
import { PoolPlaces } from './pools/pool-properties.js'
import { Captures } from './streams/captures.js'
import { Scheduler } from './streams/scheduler.js'
import type { StreamGroup, StreamQueue } from './streams/stream-queue.js'
import { Streams } from './streams/streams.js'

/** host memory for managed memory and for pools in host memory */
const HOST_BYTES = 2 * TiB

/** Devices, host memory, streams and work of one simulated machine. */
export class Simulation {
  /** for people: the simulation and its seed */
  readonly origin: string
  protected readonly options: CompleteOptions
  protected readonly interceptor = new CallInterceptor()
  protected readonly scheduler: Scheduler
  protected readonly space = new AddressSpace()
  protected readonly hosts = new HostRegistry(this.space)
  protected readonly hostPlaces = new HostPlaces()
  protected readonly transfers: Transfers
  protected readonly modules = new Modules(this.interceptor)
  protected readonly peers: PeerAccess
  protected readonly virtual: VirtualMemory
  protected readonly devices: readonly SimulatedDevice[]
  /** the machine of several processes */
  protected readonly machine: Machine | null
  protected readonly shareables: Shareables
  protected readonly host: PhysicalMemory
  protected readonly linear: LinearMemory
  protected readonly pools: MemoryPools
  protected readonly captures = new Captures(this.interceptor)
  protected readonly streams = new Streams(this.interceptor, this.captures)
  protected readonly contexts = new Contexts(this.space, () => this.streams.nextId())
  /** whether cuInit was called */
  protected initialised = false
  /** the number of the last WorkPoint or context-wide wait, to tell which came first */
  protected moments = 0

  constructor(options: SimulatedOptions = {}) {
    this.options = completeOptions(options)
    const { interceptor, space } = this
    const { devices, granularityBytes, progress, seed, faults, posixDescriptors, fabricHandles, numaNodes } =
      this.options
    this.machine = machineOf(this.options, options.capacityBytes !== undefined)
    const { capacityBytes } = this.machine ?? this.options
    const ledgerOf = (i: number) => this.machine?.ledgerOf(i, work => interceptor.onSystem(work))
    this.devices = Array.from({ length: devices }, (_, i) => new SimulatedDevice(i, capacityBytes, seed, ledgerOf(i)))
    const shareables = new Shareables(interceptor, posixDescriptors, fabricHandles, this.devices, this.machine)
    this.shareables = shareables
    this.origin = `simulated in ${this.options.machine ?? 'memory'}, seed ${seed}`
    this.scheduler = new Scheduler(progress === 'seeded' ? new Random(seed) : null)
    this.transfers = new Transfers(interceptor, space, this.hosts, this.scheduler)
    this.peers = new PeerAccess(interceptor, this.options.peerAccess)
    this.virtual = new VirtualMemory(interceptor, space, granularityBytes, this.peers, shareables)
    this.host = new PhysicalMemory('the host', HOST_BYTES, seed)
    this.linear = new LinearMemory(interceptor, space, this.host)
    const places = new PoolPlaces(interceptor, this.devices, this.host, numaNodes, option => this.requireOption(option))
    this.pools = new MemoryPools(interceptor, space, this.scheduler, this.devices, places, this.peers, shareables)
    for (const fault of faults) interceptor.rules.add(fault)
  }

  /** Begins a call that works without a context. Refuses it if the options switch the feature `option` off. */
  protected begin(call: number, option?: Switch): void {
    this.interceptor.enter(call)
    this.shareables.settle()
    if (this.scheduler.isRunning)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_PERMITTED, 'a kernel cannot call the driver')
    if (!this.initialised) throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_INITIALIZED, 'call cuInit first')
    if (option !== undefined) this.requireOption(option)
  }

  /** Begins a call that needs no context. If there is one, pending work may progress, and its fault is reported. */
  protected enterAnywhere(call: number, option?: Switch): void {
    this.begin(call)
    const { current } = this.interceptor.thread
    if (current !== null) {
      this.interceptor.stickyErrors.guard(current.handle)
      this.scheduler.progress()
      this.checkFault(current)
      this.captures.guard(call)
    }
    if (option !== undefined) this.requireOption(option)
  }

  /** Begins a call that needs a current context, and returns the context. */
  protected enter(call: number, option?: Switch): SimulatedContext {
    this.enterAnywhere(call)
    const { current } = this.interceptor.thread
    if (current === null)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'make a context current first')
    if (option !== undefined) this.requireOption(option)
    return current
  }

  /** Begins a call that works in the legacy stream. */
  protected enterLegacy(call: number): SimulatedContext {
    const context = this.enter(call)
    this.captures.checkSubmit(context.legacy)
    return context
  }

  /** The stream, for work that this simulation cannot capture; refuses a captured stream. */
  protected uncaptured(context: SimulatedContext, stream: number): StreamQueue {
    const queue = this.streams.queueOf(context, stream)
    this.captures.checkNotCaptured(queue, 'graph memory or a graph within a graph')
    return queue
  }

  /** Refuses the call if work has killed the context. */
  protected checkFault({ fault, handle }: StreamGroup): void {
    if (fault !== null) throw this.interceptor.refuse(fault.code, fault.detail, handle, fault)
  }

  /** Completes all submitted work of the context. */
  protected finishAll(context: SimulatedContext): void {
    for (const queue of [...context.queues]) this.scheduler.finish(queue, queue.submitted)
  }

  /** After a wait of the host: reports a fault, and lets pools release memory whose frees have completed. */
  protected synchronized(context: StreamGroup): void {
    this.checkFault(context)
    this.pools.synchronized()
  }

  protected device(number: number): SimulatedDevice {
    const device = this.devices[number]
    if (device === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_DEVICE, `no device ${number}`)
    return device
  }

  protected context(handle: number): SimulatedContext {
    const context = this.contexts.get(handle)
    if (context === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'no such context')
    return context
  }

  /** Refuses the call if the options switch its feature off. */
  protected requireOption(option: Switch): void {
    if (!this.options[option])
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, `the option ${option} is false`)
  }
}

function machineOf({ machine, capacityBytes }: CompleteOptions, isWanted: boolean): Machine | null {
  return machine === null ? null : Machine.open(machine, capacityBytes, isWanted)
}
