// A device makes streams, pools, buffers and modules; each method calls the layer that does the work. Objects of other
// houses are kept by `partOf`. The file is long because there are many kinds of objects, and all of them close with the
// device.

import { types } from 'node:util'
import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import type { ByteSize } from '../base/byte-size.js'
import { describe, formatBytes } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { CudaError, PoolError } from '../base/errors.js'
import { checkFlag, checkOptionNames } from '../base/option-names.js'
import { showAsText } from '../base/readable.js'
import { CU_STREAM_LEGACY, CU_STREAM_LEGACY_DEFAULT, CU_STREAM_PER_THREAD, RESULT } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import { shareDriver } from '../driver/shared-driver.js'
import { StagingBuffers } from '../driver/staging-buffers.js'
import { uuidText } from '../driver/uuid-text.js'
import type { CompileOptions } from '../kernel/compile-options.js'
import { Compiler } from '../kernel/compiler.js'
import { Module } from '../kernel/module.js'
import { type CaptureMode, captureWork } from '../order/capture.js'
import { Clocks, MOST_STREAMS } from '../order/clocks.js'
import { Event, type EventOptions, type SharedEvent } from '../order/event.js'
import type { Graph } from '../order/graph.js'
import type { SharedOrder } from '../order/shared-order.js'
import { checkStreamOf, openStreams, type SharedStream, Stream, type StreamOptions, streamOf } from '../order/stream.js'
import { signalOf, type WaitOptions } from '../order/wait-options.js'
import type { ArenaOptions, BorrowedArenaOptions, RegionArenaOptions } from '../pool/arena/arena-options.js'
import { ArenaPool } from '../pool/arena/arena-pool.js'
import { ArenaQueue, type ArenaQueueOptions } from '../pool/arena/arena-queue.js'
import { newSharedArena, type SharedArenaOptions, type SharedArenaPool } from '../pool/arena/shared-arena-pool.js'
import type { BlockOptions } from '../pool/blocks/block-options.js'
import { BlockPool } from '../pool/blocks/block-pool.js'
import { newSharedBlocks, type SharedBlockPool } from '../pool/blocks/shared-block-pool.js'
import type { CachingPool } from '../pool/caching/caching-pool.js'
import type { PoolOptions, SharedPoolOptions } from '../pool/caching/options.js'
import type { DebugPool } from '../pool/debug/debug-pool.js'
import { makeCachingPool, type WithDebug } from '../pool/debug/make-caching-pool.js'
import { DriverPool } from '../pool/driver-owned/driver-pool.js'
import type { DriverPoolOptions } from '../pool/driver-owned/driver-pool-options.js'
import { ImportedPool } from '../pool/driver-owned/imported-pool.js'
import { PlainPool } from '../pool/driver-owned/plain-pool.js'
import type { HostPoolOptions } from '../pool/host/host-options.js'
import { HostPool } from '../pool/host/host-pool.js'
import { newSharedHost, SharedHostPool } from '../pool/host/shared-host-pool.js'
import type { PassOptions } from '../pool/mapped/descriptor-passing.js'
import { GrowableBuffer, type GrowableOptions } from '../pool/mapped/growable-buffer.js'
import { InterprocessBuffer, type OpenOptions } from '../pool/mapped/interprocess-buffer.js'
import type { MappedBuffer } from '../pool/mapped/mapped-buffer.js'
import { announcePool } from '../pool/new-pools.js'
import { SharedPool } from '../pool/shared/shared-pool.js'
import { Shelf } from '../pool/shelf/shelf.js'
import type { ShelfOptions } from '../pool/shelf/shelf-options.js'
import { prepareSlowCalls } from '../pool/slow-calls.js'
import { sharingObstacle } from '../threads/os-thread.js'
import { type DeviceProperties, propertiesOf } from './device-properties.js'
import { memoryLimitOf, type PlatformLimit, platformLimits } from './platform-limits.js'
import {
  type ServedPool,
  SHARED_VERSION,
  type SharedArenaDescriptor,
  type SharedDevice,
  type SharedPoolDescriptor,
  SharedPools,
} from './shared-pools.js'

/** The devices that this thread shares or has attached, by identity. */
export const attachments = new Map<number, Device>()

/** The devices of this thread, by their clocks, for code that has only a pool. */
export const deviceOf = new WeakMap<Clocks, Device>()

function checkIsDevice(call: string, other: Device): void {
  if (!(other instanceof Device)) throw new WrongTypeError(`${call}: other must be a Device, not ${describe(other)}`)
}

const NO_STREAM: readonly number[] = [RESULT.CUDA_ERROR_INVALID_HANDLE, RESULT.CUDA_ERROR_INVALID_VALUE]

/** The driver's context of a stream. Throws RangeError, for `adoptStream`, if the driver knows no such stream. */
function contextOf(driver: Driver, handle: number): number {
  try {
    return driver.cuStreamGetCtx(handle)
  } catch (error) {
    if (!(error instanceof CudaError) || !NO_STREAM.includes(error.result)) throw error
    throw new OutOfRangeError(
      `adoptStream: handle must be a driver's stream handle, not ${handle}, which the driver does not know (${error.resultName}); pass that of an open stream`,
      { cause: error },
    )
  }
}

/** An object that a device closes with itself. */
interface Closing {
  /** before the device waits for its work: ends work that would never complete */
  endLostWork?(): void
  close(): unknown
}

interface Closable extends Closing {
  readonly closed: boolean
}

/**
 * One GPU, or the simulated GPU. Made by `openDevice()`, or by `attachDevice()` in other threads. Makes streams,
 * events, pools, buffers and modules, and closes them with itself.
 */
export class Device implements Disposable, AsyncDisposable {
  /** the driver that all calls go to */
  readonly driver: Driver
  /** the device's name, as the driver reports it */
  readonly name: string
  /** true for the simulated GPU; times measured on it are not a GPU's */
  readonly simulated: boolean
  /** bytes of device memory */
  readonly totalBytes: number
  /**
   * what MPS, HAMi, KAI and MIG set for this process
   * @internal
   */
  readonly platformLimits: readonly PlatformLimit[]
  /**
   * the clocks of the device's streams
   * @internal
   */
  readonly clocks: Clocks
  /**
   * the stream used when a call names none: the driver's legacy default stream, which is ordered with other
   * libraries' work
   */
  readonly defaultStream: Stream
  private readonly adopted = new Map<number, Stream>()
  private readonly pools = new Set<Closable>()
  /** pools of other processes, which must be closed before the pools that they came from */
  private readonly imports = new Set<Closable>()
  /** this thread's objects of pools that threads share */
  private readonly sharedPools: SharedPools
  private readonly streamPools = new Map<Stream, CachingPool>()
  private readonly compiler: Compiler
  /** by their class */
  private readonly parts = new Map<unknown, Closing>()
  private knownProperties: DeviceProperties | null = null
  private closed = false

  /** Use `openDevice`, or `attachDevice` for a device of another thread. */
  constructor(
    /**
     * the device's CUDA context
     * @internal
     */
    readonly context: Context,
    private readonly attachedTo: SharedOrder | null = null,
  ) {
    prepareSlowCalls()
    this.driver = context.driver
    this.name = this.driver.cuDeviceGetName(context.device)
    this.simulated = this.driver.simulated
    this.totalBytes = this.driver.cuDeviceTotalMem(context.device)
    const { ordinal, device } = context
    const uuid = () => uuidText(this.driver.cuDeviceGetUuid(device))
    this.platformLimits = platformLimits(process.env, { ordinal, name: this.name, totalBytes: this.totalBytes, uuid })
    context.memoryLimit = memoryLimitOf(this.platformLimits, this.totalBytes)
    this.clocks = new Clocks(context, attachedTo)
    deviceOf.set(this.clocks, this)
    if (attachedTo === null) this.defaultStream = new Stream(this.clocks, CU_STREAM_LEGACY_DEFAULT, false)
    else {
      this.defaultStream = this.borrow('attachDevice', this.clocks.handles.indexOf(CU_STREAM_LEGACY_DEFAULT))
      attachments.set(this.clocks.identity, this)
    }
    this.sharedPools = new SharedPools(this.clocks, this.defaultStream, pool => this.keep(pool))
    this.compiler = new Compiler(context, this.defaultStream)
  }

  /**
   * Bytes that this process may take of the device: `totalBytes`, or less where MPS, HAMi or KAI set a limit in the
   * environment. It bounds the default limits of pools and shelves.
   */
  get memoryLimit(): number {
    return this.context.memoryLimit
  }

  /** The device's number, from 0. */
  get ordinal(): number {
    return this.context.ordinal
  }

  /** The device's name, uuid, compute capability, memory and limits. The driver is asked once. */
  get properties(): DeviceProperties {
    this.open('properties')
    this.knownProperties ??= propertiesOf(this.context)
    return this.knownProperties
  }

  /** Free and total bytes, as the driver reports them; other programs use the same memory. */
  memoryInfo(): { freeBytes: number; totalBytes: number } {
    return this.open('memoryInfo').cuMemGetInfo()
  }

  /**
   * A descriptor for `attachDevice` in other threads of this process. From then on all of them know the streams, the
   * events and their order. A simulated device stays in this thread, which answers calls of the others while it is
   * idle or waits. Throws PoolError for a custom driver, and on systems other than Linux.
   */
  share(): SharedDevice {
    this.open('share')
    const obstacle = sharingObstacle()
    if (obstacle !== null) throw new PoolError(`share: ${obstacle}`, 'ERR_NOT_SUPPORTED')
    const driver = shareDriver(this.driver)
    const order = this.clocks.share()
    attachments.set(this.clocks.identity, this)
    return { version: SHARED_VERSION, process: process.pid, driver, ordinal: this.ordinal, order }
  }

  /**
   * A new stream, not ordered with the default stream. Throws PoolError when 2048 streams are in use, TypeError for
   * an unknown option, and RangeError for a priority that the device does not have.
   */
  createStream(options: StreamOptions = {}): Stream {
    this.open('createStream')
    checkOptionNames('createStream', options, ['priority'])
    const { priority = 0 } = options
    if (priority !== 0) this.checkPriority(priority)
    return Stream.create(this.clocks, this.beforeClose, priority)
  }

  /**
   * Adopts a stream that another library made, by its handle; returns the same object for the same handle until it is
   * closed. Close it here before its owner destroys it. If its owner destroyed it first, that is noticed when the
   * handle is adopted again for another stream, or the device closes, and all work is waited for. Also adopts a stream
   * of another thread, by the descriptor of `stream.share()`; a close here only forgets it. Throws RangeError or
   * TypeError for a bad handle, and PoolError for a stream of another device.
   */
  adoptStream(handle: number | SharedStream): Stream {
    const driver = this.open('adoptStream')
    if (typeof handle === 'object' && handle !== null) return this.adoptShared(handle)
    if (!Number.isSafeInteger(handle) || handle < 0) {
      throw new OutOfRangeError(`adoptStream: handle must be a driver's stream handle, not ${describe(handle)}`)
    }
    if (handle === CU_STREAM_LEGACY_DEFAULT || handle === CU_STREAM_LEGACY) return this.defaultStream
    const own = openStreams(this.clocks).find(stream => stream?.owned === true && stream.handle === handle)
    if (own) return own
    const slot = handle > CU_STREAM_PER_THREAD ? this.clocks.slots.ownedBy(handle) : -1
    if (slot !== -1) return this.borrow('adoptStream', slot)
    if (handle > CU_STREAM_PER_THREAD && contextOf(driver, handle) !== this.context.handle) {
      throw new PoolError('adoptStream: the stream belongs to another device or context', 'ERR_OTHER_DEVICE')
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

  /**
   * The event that another thread gave up by `event.transfer()`; each can be adopted once. Throws TypeError for
   * anything else, and PoolError for an event of another device, or one that was adopted already.
   */
  adoptEvent(shared: SharedEvent): Event {
    this.open('adoptEvent')
    const { handle, vectorTime, adopted } = shared ?? {}
    if (!Number.isSafeInteger(handle) || !(types.isFloat64Array(vectorTime) && types.isInt32Array(adopted))) {
      throw new WrongTypeError(`adoptEvent: shared must come from event.transfer(), not be ${describe(shared)}`)
    }
    this.checkIdentity('adoptEvent: the event', shared.device)
    return Event.adopt(this.clocks, shared)
  }

  /**
   * A new event, not recorded yet. With `timing: true` it measures time, see `event.elapsedSince`. Throws TypeError
   * for a bad or unknown option.
   */
  createEvent(options: EventOptions = {}): Event {
    this.open('createEvent')
    checkOptionNames('createEvent', options, ['timing'])
    const { timing = false } = options
    checkFlag('createEvent: timing', timing)
    return new Event(this.context, timing)
  }

  /**
   * Captures the work that `work` submits to `stream` as a graph: kernels, fills, and copies between buffers and
   * pinned host memory. Streams that `work` makes wait for `stream`, and joins again, are captured, too. No work runs
   * now; launch the graph to run it. The graph has what `work` returned as its `result`. Memory that caching pools
   * give it stays at its addresses until the graph is closed; buffers that are still live stay valid. An error of
   * `work` is thrown, and the capture ends. If the driver refuses to end it, the stream stays captured until
   * `stream.abortCapture()`. Throws TypeError for an asynchronous `work`, and CudaError if a call broke the capture.
   */
  capture<R>(stream: Stream, work: () => R, mode?: CaptureMode): Graph<R> {
    this.open('capture')
    checkStreamOf('capture', stream, this.clocks)
    return captureWork(stream, work, () => stream.startCapture('capture', mode))
  }

  /**
   * A caching pool, which is enough for most programs. It reserves at most 4 GiB unless `maxPoolBytes` says otherwise,
   * such as '80%' of the device. With `debug` it finds mistakes of its users. Throws TypeError or RangeError for bad
   * options.
   */
  createPool(options: WithDebug): DebugPool
  createPool(options?: PoolOptions): CachingPool
  createPool(options: PoolOptions = {}): CachingPool {
    this.open('createPool')
    return makeCachingPool(this.clocks, this.defaultStream, options, this.totalBytes, pool => this.keep(pool))
  }

  /**
   * A caching pool that other threads can attach: `attachPool(pool.share())`. Its default limit is 4 GiB, too. Throws
   * TypeError or RangeError for bad options, and PoolError on systems other than Linux.
   */
  createSharedPool(options: SharedPoolOptions = {}): SharedPool<SharedDevice> {
    this.open('createSharedPool')
    return this.sharedPools.createCaching(options, this.totalBytes, this.share())
  }

  /**
   * A caching pool for one stream only: the same pool each time, with the `options` of the first call. Its
   * allocations use this stream by default. Closing the stream closes the pool, and so waits for all work. Throws
   * PoolError for options at a later call, and for a closed stream.
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
    const pool = makeCachingPool(this.clocks, stream, options ?? {}, this.totalBytes, made => this.keep(made))
    this.streamPools.set(stream, pool)
    return pool
  }

  /**
   * A pool of pinned host memory, for copies that run while Node goes on. It pins at most 1 GiB unless `maxPoolBytes`
   * says otherwise. Throws TypeError or RangeError for bad options.
   */
  createHostPool(options: HostPoolOptions = {}): HostPool {
    this.open('createHostPool')
    return this.keep(HostPool.open(this.clocks, this.defaultStream, options))
  }

  /**
   * A pool that hands out memory in a row, and takes it all back at once by `reset` or `rewind`. With `region` it does
   * so in a buffer of any pool, such as a shared one, and with `over` in memory of another library. Throws
   * OutOfMemoryError if the device has no room for `bytes`, PoolError for `maxPoolBytes` or a registrable backing
   * without virtual memory, and for a region of another device, or without memory.
   */
  createArenaPool(options: ArenaOptions | RegionArenaOptions | BorrowedArenaOptions): ArenaPool {
    this.open('createArenaPool')
    return this.keep(new ArenaPool(this.clocks, this.defaultStream, options))
  }

  /** An arena that other threads can attach: `attachPool(arena.share())`. Throws like `createArenaPool`. */
  createSharedArenaPool(options: SharedArenaOptions): SharedArenaPool<SharedDevice> {
    this.open('createSharedArenaPool')
    return this.sharedPools.createArena(newSharedArena(this.clocks, options, this.share()))
  }

  /**
   * Up to `count` arenas, which requests take in turn: `await queue.use(arena => …)`. Throws like `createArenaPool`
   * for the first arena, and RangeError for a bad count.
   */
  createArenaQueue(options: ArenaQueueOptions): ArenaQueue {
    this.open('createArenaQueue')
    const queue = this.keepWaited(new ArenaQueue(this.clocks, this.defaultStream, options))
    announcePool(queue)
    return queue
  }

  /**
   * A shelf of models that take turns on the device: `await shelf.use(name, model => …)`. Before one is used, those
   * sleep that were used longest ago. `M` is what each model's `load` makes. Throws PoolError if the device has no
   * virtual memory, and TypeError or RangeError for bad options.
   */
  createShelf<M = unknown>(options: ShelfOptions = {}): Shelf<M> {
    this.open('createShelf')
    const shelf = this.keepWaited(new Shelf<M>(this, options))
    announcePool(shelf)
    return shelf
  }

  /**
   * A pool of blocks of one size, allocated in advance. Throws OutOfMemoryError if the device has no room for `count`
   * blocks.
   */
  createBlockPool(options: BlockOptions): BlockPool {
    this.open('createBlockPool')
    return this.keep(new BlockPool(this.clocks, this.defaultStream, options))
  }

  /** A block pool that other threads can attach: `attachPool(pool.share())`. Throws like `createBlockPool`. */
  createSharedBlockPool(options: BlockOptions): SharedBlockPool<SharedDevice> {
    this.open('createSharedBlockPool')
    return this.sharedPools.create(newSharedBlocks(this.clocks, options, this.share()))
  }

  /** A host pool that other threads can attach: `attachPool(pool.share())`. Throws like `createHostPool`. */
  createSharedHostPool(options: HostPoolOptions = {}): SharedHostPool<SharedDevice> {
    this.open('createSharedHostPool')
    return this.sharedPools.create(newSharedHost(this.clocks, options, this.share()))
  }

  /** A pool with one driver allocation for each buffer: slow, exact, and a second pool for `fallback()`. */
  createPlainPool(): PlainPool {
    this.open('createPlainPool')
    return this.keep(new PlainPool(this.clocks, this.defaultStream))
  }

  /**
   * The driver's default pool, which cuMemAllocAsync uses unless another pool is current. Opening it changes no
   * attributes, and other libraries in the process may use it, too. Throws PoolError if the driver has none.
   */
  defaultDriverPool(): DriverPool {
    this.open('defaultDriverPool')
    return this.keep(new DriverPool(this.clocks, this.defaultStream))
  }

  /**
   * A new pool of the driver's: of device, host or managed memory, with a limit, or for sharing with other processes.
   * Throws TypeError or RangeError for bad options, and PoolError if the driver has no such pools.
   */
  createDriverPool(options: DriverPoolOptions = {}): DriverPool {
    this.open('createDriverPool')
    return this.keep(new DriverPool(this.clocks, this.defaultStream, options))
  }

  /**
   * A buffer of `bytes` that other processes can open by `importBuffer`, in memory of its own. Throws PoolError if
   * the device cannot share memory, and OutOfMemoryError when it has no room.
   */
  createInterprocessBuffer(bytes: ByteSize, stream: Stream = this.defaultStream): InterprocessBuffer {
    this.open('createInterprocessBuffer')
    return this.keepMapped(InterprocessBuffer.create(this.clocks, stream, bytes))
  }

  /**
   * Opens the buffer that another process exports to `path` by `buffer.exportTo`; either may come first. Rejects with
   * DescriptorError after the time limit (`timeoutMs`, 10 seconds). Rejects with PoolError when a pool
   * was exported there, or the buffer is open in this process already, or is gone.
   */
  async importBuffer(path: string, options: OpenOptions = {}): Promise<InterprocessBuffer> {
    this.open('importBuffer')
    return this.keepMapped(await InterprocessBuffer.open(this.clocks, this.defaultStream, path, options))
  }

  /** Opens the driver pool that another process exports to `path` by `pool.exportTo`. Rejects like `importBuffer`. */
  async importPool(path: string, options: PassOptions = {}): Promise<ImportedPool> {
    this.open('importPool')
    return this.keep(await ImportedPool.open(this.clocks, this.defaultStream, path, options), this.imports)
  }

  /**
   * A buffer that can grow and shrink in place. Throws PoolError if the device has no virtual memory, RangeError or
   * TypeError for bad options, and OutOfMemoryError when it has no room for `bytes`.
   */
  createGrowableBuffer(options: GrowableOptions): GrowableBuffer {
    this.open('createGrowableBuffer')
    return this.keepMapped(GrowableBuffer.create(this.clocks, this.defaultStream, options))
  }

  /**
   * Whether kernels of this device could have access to memory of `other`; true for the device itself. Throws
   * TypeError if `other` is no device.
   */
  canAccessPeer(other: Device): boolean {
    this.open('canAccessPeer')
    checkIsDevice('canAccessPeer', other)
    return this.context.canAccess(other.context)
  }

  /**
   * Lets kernels of this device use plain allocations of `other`: its plain pools, and caching pools with backing
   * 'segments'. Copies between both devices become direct, too. A second call does nothing. For other kinds of pool
   * use `pool.setAccess(device, 'readWrite')`. Throws PoolError if the devices cannot reach each other.
   */
  enablePeerAccess(other: Device): void {
    this.open('enablePeerAccess')
    checkIsDevice('enablePeerAccess', other)
    this.context.enablePeerAccess(other.context)
  }

  /**
   * Loads PTX text, or a cubin or fatbin as a Uint8Array; see `Module`. May block, because the driver waits for running
   * kernels before it loads. Throws FormatError for an image without kernels, a truncated or foreign one, or a fatbin
   * whose images are all compressed, and CudaError if the driver refuses it, such as code for another GPU.
   */
  loadModule(image: string | Uint8Array): Module {
    this.open('loadModule')
    return new Module(this.context, this.defaultStream, image)
  }

  /**
   * Compiles CUDA C++ with NVRTC and loads it; `#include "cuda_mempool.cuh"` works. Blocks while the compiler runs. A
   * source compiled before is only loaded again, also if its headers have changed since. The simulated device runs
   * the functions of the option `simulated` instead. Throws CompileError with the compiler's log, NoLibraryError if
   * NVRTC is not installed, and TypeError or RangeError for bad options.
   */
  compileKernels(source: string, options: CompileOptions = {}): Module {
    this.open('compileKernels')
    return this.compiler.compile(source, options)
  }

  /**
   * What another part of the package keeps with this device: the one object of this class, which closes with the
   * device. Throws PoolError, in the name of `call`, once the device is closed.
   * @internal
   */
  partOf<P extends Closing>(call: string, Part: new (clocks: Clocks, defaultStream: Stream) => P): P {
    this.open(call)
    const known = this.parts.get(Part) as P | undefined
    if (known !== undefined) return known
    const part = new Part(this.clocks, this.defaultStream)
    this.parts.set(Part, part)
    return part
  }

  /** Blocks until all work of the device's context is complete. */
  synchronize(): void {
    this.open('synchronize')
    this.clocks.synchronize()
  }

  /**
   * Resolves when all work that this thread's streams have so far is complete; Node goes on until then. Later work, and
   * captured work, is not waited for. Rejects with the reason of `signal` when it is aborted.
   */
  async finished(options: WaitOptions = {}): Promise<void> {
    const signal = signalOf('finished', options)
    this.open('finished')
    await this.clocks.finished(signal)
  }

  /**
   * Closes all open pools and streams, waits for all work, and releases the device. A lost device has no memory to
   * give back, and its close does not throw. A second close does nothing; after a close that threw, it resumes.
   * Throws PoolError while another process has a pool of this device open, and, in the thread that opened the device,
   * while other threads have it attached. Throws PoolError, too, while another library captures a stream, or a device
   * with access to a pool does. The device stays open then, without the pools that were closed before.
   */
  close(): void {
    if (this.context.released) return
    for (const capture of this.clocks.captures) this.context.giveBack(() => capture.abort())
    for (const part of this.parts.values()) this.context.giveBack(() => part.endLostWork?.())
    if (this.attachedTo === null) this.shut()
    try {
      this.closePools()
    } catch (error) {
      if (this.attachedTo === null) this.clocks.slots.admit()
      throw error
    }
    this.closed = true
    // All work is waited for. An adopted stream may have been destroyed: the driver must not see its handle.
    const adopted = new Set(this.attachedTo === null ? this.adopted.values() : [])
    const streams = openStreams(this.clocks).filter(stream => stream !== null)
    const last = [...this.parts.values(), this.clocks, StagingBuffers.of(this.context)]
    for (const stream of streams) {
      this.context.giveBack(() => (adopted.has(stream) ? stream.abandon() : stream.end()))
    }
    for (const part of last) this.context.giveBack(() => part.close())
    this.context.destroyRest()
    this.clocks.slots.leave() // in case the device was lost
    attachments.delete(this.clocks.identity)
    this.sharedPools.end()
    this.context.release()
  }

  /** For `close`: from now on no other thread can attach the device. Throws PoolError while other threads have it. */
  private shut(): void {
    // Pool servers have the device attached.
    for (const pool of this.pools) if (pool instanceof SharedPool || pool instanceof SharedHostPool) pool.close()
    this.context.giveBack(() => this.clocks.buryStreams())
    if (this.clocks.slots.shut()) return
    throw new PoolError('close: other threads have the device attached; close it there first', 'ERR_POOL_IN_USE')
  }

  /** For `close`: the wait comes before the first change, because a capture of another library refuses it. */
  private closePools(): void {
    if (this.attachedTo === null) this.clocks.context.finishWork()
    for (const graph of this.clocks.graphs) this.context.giveBack(() => graph.close())
    // An observer of segments may make a pool or a buffer meanwhile, which these loops find.
    for (const pool of this.imports) this.context.giveBack(() => pool.close())
    for (const pool of this.pools) this.context.giveBack(() => pool.close())
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /**
   * Waits for pending work as `finished` does, and then closes, with all pools and streams; Node goes on meanwhile.
   * Rejects like `close`, or with the reason of `signal` when it is aborted: the device stays open then.
   */
  async drain(options: WaitOptions = {}): Promise<void> {
    await this.clocks.finishForClose(signalOf('drain', options))
    this.close()
  }

  /** Waits for pending work as `finished` does, and then closes as at the end of a `using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.clocks.finishForClose()
    this[Symbol.dispose]()
  }

  /** One line for people, such as `Device { 0: NVIDIA H200, 139.8 GiB, open }`; console.log shows it. */
  toString(): string {
    const state = this.closed ? 'closed' : 'open'
    return `Device { ${this.ordinal}: ${this.name}, ${formatBytes(this.totalBytes)}, ${state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { ordinal, name, simulated, totalBytes, closed } = this
    return { ordinal, name, simulated, totalBytes, closed }
  }

  /** Remembers a pool or a buffer's memory for `close`, and forgets closed ones. */
  private keep<P extends Closable>(pool: P, among = this.pools): P {
    for (const other of among) if (other.closed) among.delete(other)
    among.add(pool)
    announcePool(pool)
    return pool
  }

  /** The same for queues and shelves, whose own `close` waits for their uses. */
  private keepWaited<W extends { readonly isGone: boolean; closeNow(): void }>(waited: W): W {
    const closing = {
      get closed() {
        return waited.isGone
      },
      close: () => waited.closeNow(),
    }
    for (const other of this.pools) if (other.closed) this.pools.delete(other)
    this.pools.add(closing)
    return waited
  }

  /**
   * As `keep`, for a buffer with memory of its own.
   * @internal
   */
  keepMapped<B extends MappedBuffer>(buffer: B): B {
    this.keep(buffer.allocation)
    announcePool(buffer)
    return buffer
  }

  /**
   * For `attachPool`.
   * @internal
   */
  attachPool(state: SharedPoolDescriptor | SharedArenaDescriptor): ServedPool | SharedArenaPool<SharedDevice> {
    this.open('attachPool')
    return this.sharedPools.attach(state)
  }

  private checkPriority(priority: number): void {
    const { leastPriority, greatestPriority } = this.properties
    if (Number.isInteger(priority) && priority >= greatestPriority && priority <= leastPriority) return
    throw new OutOfRangeError(
      `createStream: priority must be a whole number from ${greatestPriority} to ${leastPriority}, not ${describe(priority)}; lower numbers come first`,
    )
  }

  private adoptShared(shared: SharedStream): Stream {
    const { slot, generation } = shared
    if (!Number.isInteger(slot) || slot < 0 || slot >= MOST_STREAMS || !Number.isInteger(generation)) {
      throw new WrongTypeError(`adoptStream: a descriptor must come from stream.share(), not be ${describe(shared)}`)
    }
    this.checkIdentity('adoptStream: the stream', shared.device)
    return this.borrow('adoptStream', slot, generation)
  }

  /** This thread's object for the open stream of a slot, whichever thread made the stream. */
  private borrow(call: string, slot: number, generation = this.clocks.slots.generationOf(slot)): Stream {
    const known = streamOf(this.clocks, slot)
    if (known?.generation === generation) return known
    const lent = { device: this.clocks.identity, slot, generation }
    const stream = Stream.borrow(this.clocks, lent, this.beforeClose)
    if (stream === null) {
      throw new PoolError(
        `${call}: the stream is closed where it was made; adopt one that is open there`,
        'ERR_STREAM_CLOSED',
      )
    }
    return stream
  }

  private checkIdentity(what: string, identity: number): void {
    if (identity === this.clocks.identity) return
    throw new PoolError(
      `${what} belongs to another device; adopt it on the one that attachDevice() gives for that`,
      'ERR_OTHER_DEVICE',
    )
  }

  /** Closes the stream's own pool first: if the pool cannot close, the stream stays open. */
  private readonly beforeClose = (stream: Stream): void => {
    this.streamPools.get(stream)?.close()
    this.streamPools.delete(stream)
  }

  private open(call: string): Driver {
    if (this.closed) throw new PoolError(`${call}: the device is closed; open it again`, 'ERR_DEVICE_CLOSED')
    return this.context.activate()
  }
}

showAsText(Device)
