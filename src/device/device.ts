// A device makes everything that lives on it. The file is long because that list is; each entry hands over to the layer that does the
// work in a few lines.

import { describe } from '../base/bytes.js'
import { CudaError, PoolError } from '../base/errors.js'
import { CU_STREAM_LEGACY, CU_STREAM_LEGACY_DEFAULT, CU_STREAM_PER_THREAD } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import { serveWaiting } from '../driver/served-drivers.js'
import { type SharedDriver, shareDriver } from '../driver/shared-driver.js'
import { Staging } from '../driver/staging.js'
import type { CompileOptions } from '../kernel/compile-options.js'
import { Compiler } from '../kernel/compiler.js'
import { DeviceArena } from '../kernel/device-arena.js'
import { DeviceHeap } from '../kernel/device-heap.js'
import type { DeviceRegion } from '../kernel/device-region.js'
import type { KernelMemoryOptions } from '../kernel/kernel-memory.js'
import { MemoryControl } from '../kernel/memory-control.js'
import { Module } from '../kernel/module.js'
import { StreamArenas, type StreamArenasOptions } from '../kernel/stream-arenas.js'
import { Capture, type CaptureMode } from '../order/capture.js'
import { Clocks, MOST_STREAMS } from '../order/clocks.js'
import { Event, type SharedEvent } from '../order/event.js'
import type { Graph } from '../order/graph.js'
import type { SharedOrder } from '../order/shared-order.js'
import { checkStreamOf, type SharedStream, Stream } from '../order/stream.js'
import { type ArenaOptions, ArenaPool } from '../pool/arena/arena-pool.js'
import { newSharedArena, type SharedArena, SharedArenaPool } from '../pool/arena/shared-arena-pool.js'
import type { SharedArenaState } from '../pool/arena/shared-arena-state.js'
import { type BlockOptions, BlockPool } from '../pool/blocks/block-pool.js'
import {
  newSharedBlocks,
  SharedBlockPool,
  type SharedBlockState,
  type SharedBlocks,
} from '../pool/blocks/shared-block-pool.js'
import type { CachingPool } from '../pool/caching/caching-pool.js'
import type { PoolOptions } from '../pool/caching/options.js'
import type { DebugPool } from '../pool/debug/debug-pool.js'
import { makeCachingPool, type WithDebug } from '../pool/debug/make-caching-pool.js'
import { DriverPool } from '../pool/driver-owned/driver-pool.js'
import type { DriverPoolOptions } from '../pool/driver-owned/driver-pool-options.js'
import { ImportedPool } from '../pool/driver-owned/imported-pool.js'
import { PlainPool } from '../pool/driver-owned/plain-pool.js'
import type { HostPoolOptions } from '../pool/host/host-options.js'
import { HostPool } from '../pool/host/host-pool.js'
import { newSharedHost, type SharedHost, SharedHostPool, type SharedHostState } from '../pool/host/shared-host-pool.js'
import type { PassOptions } from '../pool/mapped/descriptor-passing.js'
import { GrowableBuffer, type GrowableOptions } from '../pool/mapped/growable-buffer.js'
import type { MappedBuffer } from '../pool/mapped/mapped-buffer.js'
import { type OpenOptions, SharedBuffer } from '../pool/mapped/shared-buffer.js'
import { newSharedPool, type Shared } from '../pool/shared/new-shared-pool.js'
import { ServerWorker } from '../pool/shared/server-worker.js'
import { SharedPool } from '../pool/shared/shared-pool.js'
import type { SharedPoolState } from '../pool/shared/shared-state.js'
import { sharingObstacle } from '../threads/os-thread.js'

/** Grows with each change of what a descriptor of a device says. */
export const SHARED_VERSION = 1

/** What another thread needs to use a device; made by `device.share()`, and can be sent to the thread as it is. */
export interface SharedDevice {
  /** layout of the shared state; other versions are refused */
  readonly version: number
  /** number of the process */
  readonly process: number
  /** @internal */
  readonly driver: SharedDriver
  /** the device's number */
  readonly ordinal: number
  /** @internal */
  readonly order: SharedOrder
}

/** By identity, the devices that this thread shares or has attached. */
export const attachments = new Map<number, Device>()

/** Pools of which a pool server's thread is in charge. */
export type ServedPool = SharedPool<SharedDevice> | SharedHostPool<SharedDevice>

const CREATES = { caching: 'createPool', block: 'createBlockPool', host: 'createHostPool' } as const

/** What another thread needs to use a pool; made by `pool.share()`, and can be sent to the thread as it is. */
export type SharedPoolDescriptor = SharedPoolState<SharedDevice>
/** A shared block pool for other threads: `attachPool(descriptor)` there. */
export type SharedBlockDescriptor = SharedBlockState<SharedDevice>
/** A shared host pool for other threads: `attachPool(descriptor)` there. */
export type SharedHostDescriptor = SharedHostState<SharedDevice>
/** A shared arena for other threads: `attachPool(descriptor)` there. */
export type SharedArenaDescriptor = SharedArenaState<SharedDevice>

function checkIsDevice(call: string, other: Device): void {
  if (!(other instanceof Device)) throw new TypeError(`${call}: other must be a Device, not ${describe(other)}`)
}

function endEarly(part: Capture | Graph): void {
  if (part instanceof Capture) part.abort()
  else part.close()
}

/** What a device closes with itself. */
interface Closable {
  readonly closed: boolean
  close(): unknown
}

/** One GPU, or the simulated one. */
export class Device implements Disposable {
  /** the driver that the device was opened with */
  readonly driver: Driver
  /** the device's name, as the driver says it */
  readonly name: string
  /** true for a GPU in memory: nothing measured on it is a GPU's */
  readonly simulated: boolean
  /** memory of the device, in bytes */
  readonly totalBytes: number
  /** @internal */
  readonly clocks: Clocks
  /** the stream used where none is named: the driver's legacy default stream, so that it is ordered with other libraries' */
  readonly defaultStream: Stream
  private readonly adopted = new Map<number, Stream>()
  private readonly pools = new Set<Closable>()
  /** pools of other processes, which must be closed before those that they were made of */
  private readonly imports = new Set<Closable>()
  /** by number: this thread's objects of pools that threads share */
  private readonly sharedPools = new Map<number, Closable>()
  private readonly streamPools = new Map<Stream, CachingPool>()
  /** the thread of the shared pools that this thread makes */
  private readonly server = new ServerWorker()
  private readonly compiler: Compiler
  private readonly memoryControl: MemoryControl
  private closed = false

  /** Use `openDevice`, or `attachDevice` for one of another thread. */
  constructor(
    /** @internal */
    readonly context: Context,
    private readonly attachedTo: SharedOrder | null = null,
  ) {
    this.driver = context.driver
    this.name = this.driver.cuDeviceGetName(context.device)
    this.simulated = this.driver.simulated
    this.totalBytes = this.driver.cuDeviceTotalMem(context.device)
    this.clocks = new Clocks(context, attachedTo)
    if (attachedTo === null) this.defaultStream = new Stream(this.clocks, CU_STREAM_LEGACY_DEFAULT, false)
    else {
      this.defaultStream = this.borrow('attachDevice', this.clocks.handles.indexOf(CU_STREAM_LEGACY_DEFAULT))
      attachments.set(this.clocks.identity, this)
    }
    this.compiler = new Compiler(context, this.defaultStream)
    this.memoryControl = new MemoryControl(this.clocks, this.defaultStream)
  }

  /** The device's number. */
  get ordinal(): number {
    return this.context.ordinal
  }

  /** Bytes free and in all, as the driver says; other programs use the same memory. */
  memoryInfo(): { freeBytes: number; totalBytes: number } {
    return this.open('memoryInfo').cuMemGetInfo()
  }

  /**
   * A descriptor by which other threads of this process attach this device, with `attachDevice`: streams, events and their
   * order are then known to all of them. A simulated device stays with this thread, which answers the others while it is idle
   * or waits. Throws PoolError for a driver of one's own, and where the system is not Linux.
   */
  share(): SharedDevice {
    this.open('share')
    const obstacle = sharingObstacle()
    if (obstacle !== null) throw new PoolError(`share: ${obstacle}`)
    const driver = shareDriver(this.driver)
    const order = this.clocks.share()
    attachments.set(this.clocks.identity, this)
    return { version: SHARED_VERSION, process: process.pid, driver, ordinal: this.ordinal, order }
  }

  /** A stream of its own, not ordered with the default stream. */
  createStream(): Stream {
    this.open('createStream')
    return Stream.create(this.clocks, this.beforeClose)
  }

  /**
   * A stream that another library made; the same one for the same handle until closed. Close it here before it is destroyed
   * there. One that was not, is found out when its handle is adopted anew, as of another stream: all work is waited for then.
   * Or a stream of another thread, by what `stream.share()` gave there: it is closed there, and only forgotten by a close here.
   */
  adoptStream(handle: number | SharedStream): Stream {
    const driver = this.open('adoptStream')
    if (typeof handle === 'object' && handle !== null) return this.adoptShared(handle)
    if (!Number.isSafeInteger(handle) || handle < 0) {
      throw new RangeError(`adoptStream: handle must be a driver's stream handle, not ${describe(handle)}`)
    }
    if (handle === CU_STREAM_LEGACY_DEFAULT || handle === CU_STREAM_LEGACY) return this.defaultStream
    const own = this.clocks.streams.find(stream => stream?.owned === true && stream.handle === handle)
    if (own) return own
    const slot = handle > CU_STREAM_PER_THREAD ? this.clocks.slots.ownedBy(handle) : -1
    if (slot !== -1) return this.borrow('adoptStream', slot)
    if (handle > CU_STREAM_PER_THREAD && driver.cuStreamGetCtx(handle) !== this.context.handle) {
      throw new PoolError('adoptStream: the stream belongs to another device or context')
    }
    const id = driver.cuStreamGetId(handle)
    for (const [known, stream] of this.adopted) {
      if (!stream.closed && known === id) return stream
      if (!stream.closed && stream.handle === handle) stream.abandon()
      if (stream.closed) this.adopted.delete(known)
    }
    const stream = new Stream(this.clocks, handle, false, this.beforeClose)
    this.adopted.set(id, stream)
    return stream
  }

  /** The event that another thread has handed over, by what `event.transfer()` gave there; once. */
  adoptEvent(shared: SharedEvent): Event {
    this.open('adoptEvent')
    if (!Number.isSafeInteger(shared?.handle) || !(shared.vectorTime instanceof Float64Array)) {
      throw new TypeError(`adoptEvent: shared must come from event.transfer(), not be ${describe(shared)}`)
    }
    this.checkIdentity('adoptEvent: the event', shared.device)
    return Event.adopt(this.clocks, shared)
  }

  /** A new event, without timing. Throws PoolError if the device is closed. */
  createEvent(): Event {
    this.open('createEvent')
    return new Event(this.context)
  }

  /**
   * Records what `work` submits to `stream`, and to streams that it makes wait for it and joins again, as a graph to be
   * launched: kernels, fills and copies between buffers. Nothing of it runs now. Memory that caching pools give it stays where
   * it is until the graph is closed; buffers that are still held stay valid. What `work` throws is thrown on, and nothing is
   * left; where the driver refuses to end the capture, the stream stays captured until `stream.abortCapture()`. Throws
   * TypeError for an asynchronous `work`, CudaError for a capture that a call has broken.
   */
  capture(stream: Stream, work: () => void, mode?: CaptureMode): Graph {
    this.open('capture')
    checkStreamOf('capture', stream, this.clocks)
    if (typeof work !== 'function') throw new TypeError(`capture: work must be a function, not ${describe(work)}`)
    stream.beginCapture(mode)
    try {
      const result: unknown = work()
      if (result instanceof Promise) {
        throw new TypeError(
          'capture: work must not be asynchronous; call stream.beginCapture() and endCapture() instead',
        )
      }
      return stream.endCapture()
    } catch (error) {
      try {
        if (stream.capture?.origin === stream) stream.abortCapture()
      } catch (second) {
        if (!(second instanceof CudaError)) throw second // the first tells more, and the stream says that it is still captured
      }
      throw error
    }
  }

  /** The caching pool: for most uses the only one needed. */
  createPool(options: WithDebug): DebugPool
  createPool(options: Shared): SharedPool<SharedDevice>
  createPool(options?: PoolOptions): CachingPool
  createPool(options: PoolOptions = {}): CachingPool | SharedPool<SharedDevice> {
    this.open('createPool')
    if (options?.shared === true) return this.createSharedPool(options)
    return this.keep(makeCachingPool(this.clocks, this.defaultStream, options, this.totalBytes))
  }

  /**
   * A caching pool of a stream's own, which no other part of the program shares: the same one each time, `options` at the
   * first. Without a stream named it allocates on its own. Closing the stream closes the pool, and so waits for all work.
   */
  poolFor(stream: Stream, options?: PoolOptions): CachingPool {
    this.open('poolFor')
    checkStreamOf('poolFor', stream, this.clocks)
    stream.checkOpen('poolFor')
    const known = this.streamPools.get(stream)
    if (known?.closed === false) {
      if (options === undefined) return known
      throw new PoolError('poolFor: the stream has its pool already; give options at the first call only')
    }
    if (options?.shared === true) {
      throw new PoolError("poolFor: a stream's own pool is of one thread; make one with createPool({ shared: true })")
    }
    const pool = this.keep(makeCachingPool(this.clocks, stream, options ?? {}, this.totalBytes))
    this.streamPools.set(stream, pool)
    return pool
  }

  /** Pinned host memory, which copies reach while Node goes on. */
  createHostPool(options: SharedHost): SharedHostPool<SharedDevice>
  createHostPool(options?: HostPoolOptions): HostPool
  createHostPool(options: HostPoolOptions = {}): HostPool {
    this.open('createHostPool')
    if (options?.shared === true) return this.createShared(newSharedHost(this.clocks, options, this.share()))
    return this.keep(HostPool.open(this.clocks, this.defaultStream, options))
  }

  /**
   * Memory that is handed out in a row and given back all at once, by `reset` or `rewind`. Throws OutOfMemoryError where
   * the device has no room for `bytes`, PoolError for `maxBytes` where it has no virtual memory.
   */
  createArenaPool(options: SharedArena): SharedArenaPool<SharedDevice>
  createArenaPool(options: ArenaOptions): ArenaPool
  createArenaPool(options: ArenaOptions): ArenaPool | SharedArenaPool<SharedDevice> {
    this.open('createArenaPool')
    if (options?.shared === true) {
      const state = newSharedArena(this.clocks, options, this.share())
      return this.keepShared(state, new SharedArenaPool(this.clocks, this.defaultStream, state, true, serveWaiting))
    }
    return this.keep(new ArenaPool(this.clocks, this.defaultStream, options))
  }

  /** Blocks of one size, made beforehand. Throws OutOfMemoryError where the device has no room for `count` of them. */
  createBlockPool(options: SharedBlocks): SharedBlockPool<SharedDevice>
  createBlockPool(options: BlockOptions): BlockPool
  createBlockPool(options: BlockOptions): BlockPool | SharedBlockPool<SharedDevice> {
    this.open('createBlockPool')
    if (options?.shared === true) return this.createShared(newSharedBlocks(this.clocks, options, this.share()))
    return this.keep(new BlockPool(this.clocks, this.defaultStream, options))
  }

  /** One driver allocation for each buffer: slow, exact, and what `withFallback` falls back to. */
  createPlainPool(): PlainPool {
    this.open('createPlainPool')
    return this.keep(new PlainPool(this.clocks, this.defaultStream))
  }

  /**
   * The driver's own pool that cuMemAllocAsync draws on, unless another was made current. Its attributes stay as they are;
   * other libraries in the process may use it, too. Throws PoolError where there is none.
   */
  defaultDriverPool(): DriverPool {
    this.open('defaultDriverPool')
    return this.keep(new DriverPool(this.clocks, this.defaultStream))
  }

  /**
   * A new pool of the driver's: of device, host or managed memory, bounded, or to be shared with other processes. Throws
   * TypeError and RangeError for bad options, PoolError where the driver has no such pools.
   */
  createDriverPool(options: DriverPoolOptions = {}): DriverPool {
    this.open('createDriverPool')
    return this.keep(new DriverPool(this.clocks, this.defaultStream, options))
  }

  /**
   * A buffer that other processes can open by `openShared`, in memory that belongs to it alone. Throws PoolError where
   * memory cannot be shared, OutOfMemoryError when there is no room.
   */
  createSharedBuffer(bytes: number, stream: Stream = this.defaultStream): SharedBuffer {
    this.open('createSharedBuffer')
    return this.keepMapped(SharedBuffer.create(this.clocks, stream, bytes))
  }

  /**
   * The buffer that another process shares at `path` by `buffer.share`; either may come first. Rejects with
   * DescriptorError when nothing is shared there in time (`timeoutMs`, 10 seconds), with PoolError when it was a pool, is
   * open in this process already, or is gone.
   */
  async openShared(path: string, options: OpenOptions = {}): Promise<SharedBuffer> {
    this.open('openShared')
    return this.keepMapped(await SharedBuffer.open(this.clocks, this.defaultStream, path, options))
  }

  /** The driver pool that another process shares at `path` by `pool.share`; rejects as `openShared` does. */
  async openSharedPool(path: string, options: PassOptions = {}): Promise<ImportedPool> {
    this.open('openSharedPool')
    return this.keep(await ImportedPool.open(this.clocks, this.defaultStream, path, options), this.imports)
  }

  /**
   * A buffer whose length can change while address and contents stay. Throws PoolError where the device has no virtual
   * memory, RangeError and TypeError for bad options, OutOfMemoryError when there is no room for `bytes`.
   */
  createGrowableBuffer(options: GrowableOptions): GrowableBuffer {
    this.open('createGrowableBuffer')
    return this.keepMapped(GrowableBuffer.create(this.clocks, this.defaultStream, options))
  }

  /** Whether kernels of this device could be given access to memory of the other one; a device always has it to its own. */
  canAccessPeer(other: Device): boolean {
    this.open('canAccessPeer')
    checkIsDevice('canAccessPeer', other)
    return this.context.canAccess(other.context)
  }

  /**
   * Lets kernels of this device use plain allocations of the other one: its plain pools, and caching pools with backing
   * 'segments'; copies between the two then go straight, too. Once is enough. Other pools are opened one by one, by
   * `pool.setAccess(device, 'readWrite')`. Throws PoolError where there is no way between the devices.
   */
  enablePeerAccess(other: Device): void {
    this.open('enablePeerAccess')
    checkIsDevice('enablePeerAccess', other)
    this.context.enablePeerAccess(other.context)
  }

  /** Loads PTX text; see `Module`. The driver waits for running kernels before it loads, so this may block. */
  loadModule(ptx: string): Module {
    this.open('loadModule')
    return new Module(this.context, this.defaultStream, ptx)
  }

  /**
   * Compiles CUDA C++ by NVRTC, where that is installed, and loads it; `#include "cuda_mempool.cuh"` is found. Blocks for as
   * long as the compiler takes; what was compiled before is only loaded again (headers that have changed meanwhile go
   * unnoticed). The simulated device runs the functions of the option `simulated` instead. Throws CompileError with the
   * compiler's log, NoLibraryError where there is no NVRTC, TypeError and RangeError for bad options.
   */
  compileKernels(source: string, options: CompileOptions = {}): Module {
    this.open('compileKernels')
    return this.compiler.compile(source, options)
  }

  /**
   * Memory that running kernels take in a row, over a buffer of any pool, which stays the caller's. Throws TypeError for what
   * is no device memory, RangeError for too little, PoolError for another device's.
   */
  createDeviceArena(region: DeviceRegion, options?: KernelMemoryOptions): DeviceArena {
    this.open('createDeviceArena')
    return new DeviceArena(this.memoryControl, region, options)
  }

  /** malloc and free for running kernels, over a buffer of any pool, which stays the caller's; throws as `createDeviceArena` does. */
  createDeviceHeap(region: DeviceRegion, options?: KernelMemoryOptions): DeviceHeap {
    this.open('createDeviceHeap')
    return new DeviceHeap(this.memoryControl, region, options)
  }

  /** A device arena for each stream, from a pool. */
  createStreamArenas(options: StreamArenasOptions): StreamArenas {
    this.open('createStreamArenas')
    return new StreamArenas(this.memoryControl, options)
  }

  /** Blocks until all work on the device's context has completed. */
  synchronize(): void {
    this.open('synchronize')
    this.clocks.synchronize()
  }

  /**
   * Closes the pools and streams that are still open, waits for all work, and lets go of the device; a lost one has
   * nothing to give back, which is no error. A second close does nothing; after one that threw it goes on where that
   * stopped. Throws PoolError while another process has a pool of this one open, which must be closed there first, and where
   * it was opened while other threads have it attached.
   */
  close(): void {
    if (this.context.released) return
    if (this.attachedTo === null) {
      for (const pool of this.pools) if (pool instanceof SharedPool || pool instanceof SharedHostPool) pool.close() // their pool servers have the device attached
      this.context.giveBack(() => this.clocks.buryStreams())
      if (!this.clocks.shut()) {
        throw new PoolError('close: other threads have the device attached; close it there first')
      }
    }
    this.closed = true
    for (const part of [...this.clocks.captures, ...this.clocks.graphs]) this.context.giveBack(() => endEarly(part))
    const streams = this.clocks.streams.filter(stream => stream !== null)
    const last = [this.memoryControl, this.clocks, Staging.of(this.context)]
    for (const part of [...this.imports, ...this.pools, ...streams, ...last]) {
      this.context.giveBack(() => part.close())
    }
    this.context.destroyRest()
    this.clocks.slots.leave() // of a lost device
    attachments.delete(this.clocks.identity)
    this.server.end()
    this.context.release()
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** Remembers a pool, or a buffer's memory, for `close`, and forgets those that are closed. */
  private keep<P extends Closable>(pool: P, among = this.pools): P {
    for (const other of among) if (other.closed) among.delete(other)
    among.add(pool)
    return pool
  }

  private keepMapped<B extends MappedBuffer>(buffer: B): B {
    this.keep(buffer.allocation)
    return buffer
  }

  private createSharedPool(options: PoolOptions): SharedPool<SharedDevice> {
    return this.createShared(newSharedPool(this.clocks, options, this.totalBytes, this.share()))
  }

  /** Starts the pool server of a new pool, and returns when that has begun. */
  private createShared(made: SharedBlockDescriptor): SharedBlockPool<SharedDevice>
  private createShared(made: SharedHostDescriptor): SharedHostPool<SharedDevice>
  private createShared(made: SharedPoolDescriptor): SharedPool<SharedDevice>
  private createShared(made: SharedPoolDescriptor): ServedPool {
    const call = CREATES[made.kind]
    const state = { ...made, bell: this.server.bell.buffer }
    const start = this.server.begin(call, state)
    const pool = this.front(state, true)
    this.server.await(call, start, serveWaiting)
    this.keepShared(state, pool)
    try {
      pool.begin()
    } catch (error) {
      this.context.discard(() => pool.close())
      throw error
    }
    return pool
  }

  /** For `attachPool`. */
  attachPool(state: SharedPoolDescriptor): ServedPool {
    this.open('attachPool')
    return this.knownPool<ServedPool>(state) ?? this.keepShared(state, this.front(state, false))
  }

  /** This thread's open object of a shared pool. */
  private knownPool<P extends Closable>({ number }: { readonly number: number }): P | undefined {
    const known = this.sharedPools.get(number)
    return known?.closed === false ? (known as P) : undefined
  }

  private keepShared<P extends Closable>({ number }: { readonly number: number }, pool: P): P {
    this.sharedPools.set(number, pool)
    return this.keep(pool)
  }

  /** What this thread has of a shared pool. */
  private front(state: SharedPoolDescriptor, creator: boolean): ServedPool {
    const { clocks, defaultStream } = this
    switch (state.kind) {
      case 'block':
        return new SharedBlockPool(clocks, defaultStream, state as SharedBlockDescriptor, creator, serveWaiting)
      case 'host':
        return new SharedHostPool(clocks, defaultStream, state as SharedHostDescriptor, creator, serveWaiting)
      default:
        return new SharedPool(clocks, defaultStream, state, creator, serveWaiting)
    }
  }

  /** For `attachPool`. */
  attachArena(state: SharedArenaDescriptor): SharedArenaPool<SharedDevice> {
    this.open('attachPool')
    const known = this.knownPool<SharedArenaPool<SharedDevice>>(state)
    if (known !== undefined) return known
    this.clocks.buryStreams() // an arena has no pool server that would do so
    return this.keepShared(state, new SharedArenaPool(this.clocks, this.defaultStream, state, false, serveWaiting))
  }

  private adoptShared(shared: SharedStream): Stream {
    const { slot, generation } = shared
    if (!Number.isInteger(slot) || slot < 0 || slot >= MOST_STREAMS || !Number.isInteger(generation)) {
      throw new TypeError(`adoptStream: a descriptor must come from stream.share(), not be ${describe(shared)}`)
    }
    this.checkIdentity('adoptStream: the stream', shared.device)
    return this.borrow('adoptStream', slot, generation)
  }

  /** This thread's object for the open stream of a slot, whichever thread's it is. */
  private borrow(call: string, slot: number, generation = this.clocks.slots.generationOf(slot)): Stream {
    const known = this.clocks.streamOf(slot)
    if (known?.generation === generation) return known
    const lent = { device: this.clocks.identity, slot, generation }
    const stream = Stream.borrow(this.clocks, lent, this.beforeClose)
    if (stream === null)
      throw new PoolError(`${call}: the stream is closed where it was made; adopt one that is open there`)
    return stream
  }

  private checkIdentity(what: string, identity: number): void {
    if (identity === this.clocks.identity) return
    throw new PoolError(`${what} belongs to another device; adopt it on the one that attachDevice() gives for that`)
  }

  /** A stream's own pool goes first: while it cannot be closed, the stream stays open. */
  private readonly beforeClose = (stream: Stream): void => {
    this.streamPools.get(stream)?.close()
    this.streamPools.delete(stream)
  }

  private open(call: string): Driver {
    if (this.closed) throw new PoolError(`${call}: the device is closed; open it again`)
    return this.context.activate()
  }
}
