// Serves a pool to ONNX Runtime: registers an allocator in the environment that all sessions of the process share.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe, formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { NoLibraryError, PoolError } from '../core/base/errors.js'
import { checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import type { LabelStore, LiveGroup } from '../core/pool/labels.js'
import { Pool } from '../core/pool/pool.js'
import { type MemoryPlace, Registration } from './allocator.js'
import {
  type AnyPool,
  asleepError,
  type Blocks,
  DeviceBlocks,
  HostBlocks,
  ResultBlocks,
  type Scope,
  sleeps,
} from './blocks.js'
import { OnnxRuntimeLibrary, type Pointer } from './library.js'
import { warmUpOnce } from './warm-up.js'

/** Options of `serveOnnxRuntime`. */
export interface OnnxRuntimeOptions {
  /**
   * where onnxruntime-node is: its folder, a file in it such as `require.resolve('onnxruntime-node')`, or the library
   * libonnxruntime.so.1 itself. The program's sessions must use the same library.
   */
  readonly library: string
  /**
   * how the CUDA provider asks: 'stream' names the stream of each allocation (the default); 'external' names none, and
   * is right only while no other work uses the pool during a `run`
   */
  readonly way?: 'stream' | 'external'
  /**
   * with a device's pool: a host pool of that device for results, which are copied to pinned memory faster. It serves
   * the CPU part of the sessions; weights of that part, and what has no room, lie in ordinary memory. Close it last
   */
  readonly results?: HostPool
}

/** A way of running a model, with its options. */
export interface OnnxExecutionProvider {
  /** such as 'cuda' */
  readonly name: string
  /** the number of the GPU; default that of the pool */
  readonly deviceId?: number
}

/** The options of onnxruntime-node's `InferenceSession.create` that are looked at; all others are passed on. */
export interface OnnxSessionOptions {
  /**
   * threads of kernels on the CPU. 1 by default where a pool serves the CPU part of a CUDA session: a kernel that asks
   * for memory in another thread would wait for the thread that waits for it
   */
  readonly intraOpNumThreads?: number
  /** must not be 'parallel': its threads would wait for the thread that waits for them */
  readonly executionMode?: 'sequential' | 'parallel'
  /** where the model runs; with a pool of a device, 'cuda' must be among them */
  readonly executionProviders?: readonly (string | OnnxExecutionProvider)[]
  /** settings by their names in ONNX Runtime */
  readonly extra?: Readonly<Record<string, unknown>>
}

/** Options of `as`. */
export interface OnnxScopeOptions {
  /**
   * where the work's memory comes from; default the service's pool. A pool of its own for each session lets them sleep
   * apart. It must be of the same kind, and of the same device
   */
  readonly pool?: Pool | HostPool
}

/** The memory that ONNX Runtime has taken from the pool. */
export interface OnnxRuntimeStats {
  /** bytes that sessions hold now, as requested */
  readonly liveBytes: number
  /** blocks that sessions hold now */
  readonly liveBuffers: number
  /** requests so far */
  readonly allocations: number
  /** requests so far that the pool could not serve */
  readonly failures: number
}

/** The part of a session that is guarded. */
interface GuardedSession {
  run(...args: readonly unknown[]): Promise<unknown>
  release(): Promise<void>
}

const CPU = 'cpu'
const HOST: MemoryPlace = { kind: 'Cpu', ordinal: 0 }

/** the memories that are served now, as `cpu` or `cuda:0` */
const served = new Set<string>()

/**
 * Lets ONNX Runtime take the memory of its sessions from `pool`: a device's pool serves the CUDA provider, a host pool
 * the CPU's. Only sessions made with `sessionOptions` of the result use it, in this thread. Throws TypeError or
 * RangeError for a bad argument, NoLibraryError if the library or its CUDA provider is missing or below 1.23, and
 * PoolError for a pool that is closed or sleeps, or a memory that is served already.
 */
export function serveOnnxRuntime(pool: Pool | HostPool, options: OnnxRuntimeOptions): ServedOnnxRuntime {
  if (!(pool instanceof Pool || pool instanceof HostPool)) {
    throw new WrongTypeError(`serveOnnxRuntime: pool must be a pool or a host pool, not ${describe(pool)}`)
  }
  checkOptionNames('serveOnnxRuntime', options, ['library', 'way', 'results'])
  const { library, way = 'stream', results = null } = options
  if (typeof library !== 'string') {
    throw new WrongTypeError(`serveOnnxRuntime: library must be a path, not ${describe(library)}`)
  }
  if (way !== 'stream' && way !== 'external') {
    throw new OutOfRangeError(`serveOnnxRuntime: way must be 'stream' or 'external', not ${describe(way)}`)
  }
  checkReady('serveOnnxRuntime', pool)
  if (results !== null) checkResults(results, pool)
  const host = pool instanceof HostPool
  if (!host && pool.context.driver.simulated) {
    throw new PoolError(
      'serveOnnxRuntime: a simulated device has no memory for CUDA; serve its host pool',
      'ERR_NOT_SUPPORTED',
    )
  }
  const memories = [host ? CPU : `cuda:${pool.context.ordinal}`, ...(results === null ? [] : [CPU])]
  for (const memory of memories) {
    if (!served.has(memory)) continue
    throw new PoolError(`serveOnnxRuntime: the memory of '${memory}' is served already; close that service first`)
  }
  const service = new ServedOnnxRuntime(pool, OnnxRuntimeLibrary.open(library), way, results, memories)
  for (const memory of memories) served.add(memory)
  return service
}

/** A pool that serves ONNX Runtime. Made by `serveOnnxRuntime()`. Close it after its sessions, and before its pool. */
export class ServedOnnxRuntime implements Disposable {
  /** the version of ONNX Runtime, such as `1.29.0` */
  readonly version: string
  private readonly blocks: Blocks
  private readonly registrations: Registration[] = []
  /** the pools of sessions that `as` has returned */
  private readonly guarded = new WeakMap<object, Set<AnyPool>>()
  private hasOtherPools = false
  private isClosed = false

  /** Use `serveOnnxRuntime`. */
  constructor(
    private readonly pool: Pool | HostPool,
    library: OnnxRuntimeLibrary,
    way: 'stream' | 'external',
    results: HostPool | null,
    private readonly memories: readonly string[],
  ) {
    this.version = library.version
    const { koffi } = library
    if (pool instanceof HostPool) {
      warmUpOnce(pool, koffi)
      this.blocks = new HostBlocks(pool, koffi)
      this.registrations.push(new Registration(library, HOST, this.blocks, 'plain'))
      return
    }
    checkCuda(library)
    warmUpOnce(pool, koffi)
    if (results !== null) warmUpOnce(results, koffi)
    this.blocks = new DeviceBlocks(pool, way === 'stream')
    const { ordinal } = pool.context
    this.registrations.push(new Registration(library, { kind: 'Cuda', ordinal }, this.blocks, way))
    if (results === null) return
    try {
      this.registrations.push(new Registration(library, HOST, new ResultBlocks(results, koffi), 'plain'))
    } catch (error) {
      for (const registration of this.registrations) registration.close()
      throw error
    }
  }

  /**
   * The options for `InferenceSession.create`: `options` and what makes the session use the pool. Throws RangeError for
   * `executionMode: 'parallel'` and for providers without the pool's device, PoolError after `close`.
   */
  sessionOptions<T extends OnnxSessionOptions>(options?: T): T {
    this.checkOpen('sessionOptions')
    checkReady('sessionOptions', this.pool)
    if (options?.executionMode === 'parallel') {
      throw new OutOfRangeError(
        "sessionOptions: executionMode 'parallel' would hang, since its threads wait for this one; use 'sequential'",
      )
    }
    const { executionProviders, extra = {} } = options ?? {}
    const session = { ...(extra.session as object | undefined), use_env_allocators: '1' }
    const all = { ...options, extra: { ...extra, session } } as unknown as T
    if (this.pool instanceof HostPool) return all
    const threads = served.has(CPU) ? { intraOpNumThreads: 1 } : {}
    return { ...threads, ...all, executionProviders: this.withCuda(executionProviders) }
  }

  /**
   * Runs `work`, such as `() => session.run(feeds)`. The memory it takes is named `name` in `live()` and in the pool's
   * own list. Rejects with OutOfMemoryError if the pool could not serve a request of it, and with the error of `work`
   * as `cause` if that failed, too. A session that `work` created then is released; if its release fails, that is the
   * `cause`. Rejects before the work with TypeError for a bad argument or a pool of another kind, with RangeError for a
   * name that is too long for a label of a shared pool, and with PoolError after `close`, for a pool that is closed or
   * sleeps, and for a pool of another device.
   *
   * Rejects with PoolError for a run while a pool sleeps that memory of `name` lies in. A session that was created here
   * with a pool of its own rejects its runs by itself while that pool sleeps.
   */
  async as<T>(name: string, work: () => T | Promise<T>, options: OnnxScopeOptions = {}): Promise<T> {
    if (typeof name !== 'string') throw new WrongTypeError(`as: name must be a text, not ${describe(name)}`)
    checkOptionNames('as', options, ['pool'])
    const { pool = null } = options
    this.checkOpen('as')
    if (pool === null) checkReady('as', this.pool)
    else this.checkServable(pool)
    checkName(name, pool ?? this.pool)
    this.hasOtherPools ||= pool !== null && pool !== this.pool
    const uses = this.hasOtherPools ? this.blocks.poolsOf(name) : new Set<AnyPool>()
    const result = await this.within({ name, pool, uses, failure: null }, work)
    uses.delete(this.pool) // it refuses by itself
    if (uses.size > 0) this.guard(result, uses)
    return result
  }

  /** Runs `work` in a scope. Rejects with the scope's failure, if it has one. */
  private async within<T>(scope: Scope, work: () => T | Promise<T>): Promise<T> {
    const { scopes, underWay } = this.blocks
    underWay.add(scope)
    try {
      const result = await scopes.run(scope, work)
      if (scope.failure === null) return result
      if (isSession(result)) await result.release() // a session beyond the limit
    } catch (error) {
      if (scope.failure === null) throw error
      scope.failure.cause = error
    } finally {
      underWay.delete(scope)
    }
    throw scope.failure
  }

  /** Lets a session refuse its runs while one of the pools sleeps, whoever calls `run`. Other values stay. */
  private guard(session: unknown, pools: ReadonlySet<AnyPool>): void {
    if (!isSession(session)) return
    const known = this.guarded.get(session)
    if (known !== undefined) {
      for (const pool of pools) known.add(pool)
      return
    }
    const own = new Set(pools)
    this.guarded.set(session, own)
    const run = session.run.bind(session)
    session.run = async (...args) => {
      if ([...own].some(sleeps)) throw asleepError('run', '')
      const scope = this.blocks.scopes.getStore()
      if (scope === undefined)
        return await this.within({ name: '', pool: null, uses: own, failure: null }, () => run(...args))
      for (const pool of own) scope.uses.add(pool)
      return await run(...args)
    }
  }

  /** The memory that sessions hold, by the names given to `as`; '' for memory without a name. Most bytes first. */
  live(): LiveGroup[] {
    return this.blocks.groups()
  }

  /** The counters of this service. */
  stats(): OnnxRuntimeStats {
    const groups = this.live()
    return {
      liveBytes: groups.reduce((sum, { bytes }) => sum + bytes, 0),
      liveBuffers: groups.reduce((sum, { buffers }) => sum + buffers, 0),
      allocations: this.blocks.allocations,
      failures: this.blocks.failures,
    }
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.isClosed
  }

  /**
   * Takes the pool away from ONNX Runtime. Throws PoolError, and changes nothing, while sessions hold memory of it. A
   * second close does nothing.
   */
  close(): void {
    if (this.isClosed) return
    const groups = this.live()
    if (groups.length > 0) {
      const who = groups.map(({ name, bytes }) => `${name === '' ? 'unnamed' : `'${name}'`} ${formatBytes(bytes)}`)
      throw new PoolError(
        `close: sessions hold memory (${who.join(', ')}); await session.release() for each one first`,
        'ERR_POOL_IN_USE',
      )
    }
    this.blocks.forgetStreams()
    for (const registration of this.registrations) registration.close()
    this.isClosed = true
    for (const memory of this.memories) served.delete(memory)
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `ServedOnnxRuntime { 1.29.0, open }`; console.log shows it. */
  toString(): string {
    return `ServedOnnxRuntime { ${this.version}, ${this.isClosed ? 'closed' : 'open'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { version: this.version, closed: this.isClosed }
  }

  private withCuda(
    providers: OnnxSessionOptions['executionProviders'] = ['cuda'],
  ): NonNullable<OnnxSessionOptions['executionProviders']> {
    const deviceId = this.pool.context.ordinal
    const at = providers.findIndex(each => (typeof each === 'string' ? each : each.name) === 'cuda')
    if (at === -1)
      throw new OutOfRangeError("sessionOptions: executionProviders must name 'cuda' to use a device's pool")
    const cuda = providers[at]
    const options = typeof cuda === 'string' ? { name: cuda } : cuda
    if ((options.deviceId ?? deviceId) !== deviceId) {
      throw new OutOfRangeError(`sessionOptions: deviceId of 'cuda' must be ${deviceId}, the device of the pool`)
    }
    return providers.map((each, index) => (index === at ? { ...options, deviceId } : each))
  }

  private checkServable(pool: Pool | HostPool): void {
    const host = this.pool instanceof HostPool
    if (!(pool instanceof (host ? HostPool : Pool))) {
      throw new WrongTypeError(`as: pool must be a ${host ? 'host pool' : "device's pool"}, not ${describe(pool)}`)
    }
    checkReady('as', pool)
    if (!(pool instanceof HostPool) && !(this.pool instanceof HostPool) && pool.context !== this.pool.context) {
      throw new PoolError('as: pool is of another device; make it from the device of the service', 'ERR_OTHER_DEVICE')
    }
  }

  private checkOpen(call: string): void {
    if (this.isClosed) {
      throw new PoolError(`${call}: the service is closed; call serveOnnxRuntime again`, 'ERR_POOL_CLOSED')
    }
  }
}

function isSession(value: unknown): value is GuardedSession {
  const session = value as Partial<GuardedSession> | null | undefined
  return typeof session?.run === 'function' && typeof session.release === 'function'
}

showAsText(ServedOnnxRuntime)

/** Throws RangeError if buffers of a device's pool, or of those behind a wrapper, cannot have the name as a label. */
function checkName(name: string, pool: AnyPool): void {
  if (pool instanceof HostPool) return
  for (const { labels } of pool.sources as readonly { readonly labels?: LabelStore }[]) labels?.check('as: name', name)
}

function checkReady(call: string, pool: Pool | HostPool): void {
  const { closed } = pool as { closed?: boolean }
  if (closed === true) throw new PoolError(`${call}: the pool is closed; serve another pool`, 'ERR_POOL_CLOSED')
  if (sleeps(pool)) throw new PoolError(`${call}: the pool sleeps; await pool.wake() first`, 'ERR_POOL_ASLEEP')
}

function checkResults(results: HostPool, pool: AnyPool): void {
  if (!(results instanceof HostPool)) {
    throw new WrongTypeError(`serveOnnxRuntime: results must be a host pool, not ${describe(results)}`)
  }
  if (pool instanceof HostPool) {
    throw new WrongTypeError(
      "serveOnnxRuntime: results are for a device's pool; a host pool serves the CPU's results anyway",
    )
  }
  checkReady('serveOnnxRuntime: results', results)
  if (results.context.ordinal !== pool.context.ordinal) {
    throw new PoolError(
      'serveOnnxRuntime: results is of another device; make it from the device of the pool',
      'ERR_OTHER_DEVICE',
    )
  }
}

/** Asks for the CUDA provider by a call that answers; others end the process without it. */
function checkCuda(library: OnnxRuntimeLibrary): void {
  const out: Pointer[] = [0]
  const failure = library.failure('CreateCUDAProviderOptions', out)
  if (failure !== null) {
    throw new NoLibraryError(
      `ONNX Runtime ${library.version} has no CUDA provider (${failure}); ` +
        'put libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so of that version beside ' +
        library.path,
    )
  }
  library.call('ReleaseCUDAProviderOptions', out[0])
}
