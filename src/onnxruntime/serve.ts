// Serves a pool to ONNX Runtime: registers an allocator in the environment that all sessions of the process share.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe, formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { PoolError } from '../core/base/errors.js'
import { checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import { groupLive, type LiveGroup } from '../core/pool/labels.js'
import { Pool } from '../core/pool/pool.js'
import { type MemoryPlace, Registration } from './allocator.js'
import { type AnyPool, type Blocks, DeviceBlocks, HostBlocks, ResultBlocks, type Scope } from './blocks.js'
import { checkCuda, checkName, checkNotWithinCreate, checkReady, checkResults, checkServable } from './checks.js'
import { GuardedSessions, type OnnxSession, within } from './guarded-session.js'
import { OnnxRuntimeLibrary } from './library.js'
import { checkNewSession, OwnSession } from './own-session.js'
import { type Closing, holdMemory } from './serving-thread.js'
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

/** Options of `as` and `createSession`. */
export interface OnnxScopeOptions {
  /**
   * where the memory of the work or the session comes from; default the service's pool. A pool of its own for each
   * session lets them sleep apart. It must be of the same kind, and of the same device
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

const CPU = 'cpu'
const HOST: MemoryPlace = { kind: 'Cpu', ordinal: 0 }

/** the memories that this thread serves now, as `cpu` or `cuda:0` */
const served = new Map<string, Closing>()

/**
 * Lets ONNX Runtime take the memory of its sessions from `pool`: a device's pool serves the CUDA provider, a host pool
 * the CPU's. Only sessions made with `sessionOptions` of the result use it, in this thread. Throws TypeError or
 * RangeError for a bad argument, NoLibraryError if the library or its CUDA provider is missing or below 1.23, and
 * PoolError for a pool that is closed or sleeps, or a memory that a thread of the process serves already.
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
  try {
    for (const memory of memories) served.set(memory, heldMemory(memory))
    return new ServedOnnxRuntime(pool, OnnxRuntimeLibrary.open(library), way, results, memories)
  } catch (error) {
    endServing(memories)
    throw error
  }
}

/** Throws PoolError if another thread serves the memory. */
function heldMemory(memory: string): Closing {
  const hold = holdMemory(memory)
  if (hold !== null) return hold
  throw new PoolError(
    `serveOnnxRuntime: another thread serves the memory of '${memory}', or was terminated while it did; ` +
      'make all sessions there, or close that service before its thread ends',
    'ERR_POOL_IN_USE',
  )
}

function endServing(memories: readonly string[]): void {
  for (const memory of memories) {
    served.get(memory)?.close()
    served.delete(memory)
  }
}

/** A pool that serves ONNX Runtime. Made by `serveOnnxRuntime()`. Close it after its sessions, and before its pool. */
export class ServedOnnxRuntime implements Disposable {
  /** the version of ONNX Runtime, such as `1.29.0` */
  readonly version: string
  private readonly blocks: Blocks
  /** for the pool, and for results */
  private readonly registrations: Registration[] = []
  private readonly guarded: GuardedSessions
  /** of sessions with an allocator of their own, while they have memory */
  private readonly owned = new Set<Blocks>()
  /** requests of sessions that have no memory any more */
  private readonly past = { allocations: 0, failures: 0 }
  /** resolves when the sessions that `createSession` was called for so far are made */
  private made: Promise<unknown> = Promise.resolve()
  private making = 0
  private isClosed = false

  /** Use `serveOnnxRuntime`. */
  constructor(
    private readonly pool: Pool | HostPool,
    private readonly library: OnnxRuntimeLibrary,
    private readonly way: 'stream' | 'external',
    results: HostPool | null,
    private readonly memories: readonly string[],
  ) {
    this.version = library.version
    const { koffi } = library
    const isHost = pool instanceof HostPool
    if (!isHost) checkCuda(library)
    warmUpOnce(pool, koffi)
    if (results !== null) warmUpOnce(results, koffi)
    this.blocks = this.blocksFor(pool, null)
    this.guarded = new GuardedSessions(this.blocks)
    const place: MemoryPlace = isHost ? HOST : { kind: 'Cuda', ordinal: pool.context.ordinal }
    this.registrations.push(new Registration(library, place, this.blocks, isHost ? 'plain' : way))
    if (results === null) return
    try {
      this.registrations.push(new Registration(library, HOST, new ResultBlocks(results, koffi), 'plain'))
    } catch (error) {
      for (const registration of this.registrations) registration.close()
      throw error
    }
  }

  /** Blocks of the pool: of all sessions in their scopes, or of the session that owns them. */
  private blocksFor(pool: AnyPool, owner: Scope | null): Blocks {
    const scopes = owner === null ? undefined : this.blocks.scopes
    if (pool instanceof HostPool) return new HostBlocks(pool, this.library.koffi, owner, scopes)
    return new DeviceBlocks(pool, this.way === 'stream', owner, scopes)
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
    const pool = this.checkWork('as', name, options)
    if (typeof work !== 'function') throw new WrongTypeError(`as: work must be a function, not ${describe(work)}`)
    this.blocks.hasOtherPools ||= pool !== this.pool
    const uses = this.blocks.hasOtherPools ? this.blocks.poolsOf(name) : new Set<AnyPool>()
    const given = options.pool ?? null
    const result = await within(this.blocks, { name, pool: given, uses, failure: null }, work)
    uses.delete(this.pool) // it refuses by itself
    if (uses.size > 0) this.guarded.guard(result, uses)
    return result
  }

  /**
   * Makes a session by `create`, such as `() => InferenceSession.create(path, served.sessionOptions())`. All its memory
   * comes from one pool, and is named `name`, also where its runs leave this thread. `as` does not change that.
   *
   * Its runs take turns. A run rejects with OutOfMemoryError if the pool could not serve a request of it, and with
   * PoolError while the pool sleeps. `runSync` throws these errors, where the session has it. While a run is under way,
   * its `release`, and `sleep` and `close` of the pool, are refused with PoolError.
   *
   * Sessions are made one after another. Rejects like `as`. Rejects with PoolError for a service of way 'external', if
   * `create` calls it, if it returns a session of an earlier call, and if the program makes a session without this call
   * meanwhile. Rejects with TypeError for a result without `run`.
   */
  async createSession<T extends OnnxSession>(
    name: string,
    create: () => T | Promise<T>,
    options: OnnxScopeOptions = {},
  ): Promise<T> {
    const pool = this.checkWork('createSession', name, options)
    if (typeof create !== 'function')
      throw new WrongTypeError(`createSession: create must be a function, not ${describe(create)}`)
    checkNotWithinCreate(this.owned, this.blocks.scopes.getStore())
    this.making++
    const turn = this.made.then(() => this.make({ name, pool, uses: new Set(), failure: null }, pool, create))
    this.made = turn.catch(() => {})
    return turn.finally(() => this.making--)
  }

  private async make<T extends OnnxSession>(scope: Scope, pool: AnyPool, create: () => T | Promise<T>): Promise<T> {
    const blocks = this.blocksFor(pool, scope)
    const [registration] = this.registrations
    const allocator = registration.lend(blocks)
    this.owned.add(blocks)
    const drop = () => {
      registration.drop(allocator)
      this.forget(blocks)
    }
    blocks.isMaking = true
    try {
      const session = await within(blocks, scope, create)
      checkNewSession(scope.name, session)
      new OwnSession(blocks, pool, drop).takeOver(session)
      return session
    } catch (error) {
      if (blocks.isEmpty && !blocks.isMixed) drop()
      throw error
    } finally {
      blocks.isMaking = false
      registration.restore()
    }
  }

  /** Keeps the counts of a session that has no memory any more. */
  private forget(blocks: Blocks): void {
    this.past.allocations += blocks.allocations
    this.past.failures += blocks.failures
    this.owned.delete(blocks)
  }

  /** The pool that the work's memory comes from; throws what `as` rejects with before its work. */
  private checkWork(call: string, name: string, options: OnnxScopeOptions): AnyPool {
    if (typeof name !== 'string') throw new WrongTypeError(`${call}: name must be a text, not ${describe(name)}`)
    checkOptionNames(call, options, ['pool'])
    const pool = options.pool ?? this.pool
    this.checkOpen(call)
    checkServable(call, pool, this.pool)
    checkName(call, name, pool)
    return pool
  }

  /** The memory that sessions hold, by the names given to `as` and `createSession`; '' without a name. Most first. */
  live(): LiveGroup[] {
    const blocks = [this.blocks, ...this.owned].flatMap(({ live }) => live)
    return groupLive(blocks, ({ name }) => name)
  }

  /** The counters of this service. */
  stats(): OnnxRuntimeStats {
    const groups = this.live()
    const all = [this.past, this.blocks, ...this.owned]
    return {
      liveBytes: groups.reduce((sum, { bytes }) => sum + bytes, 0),
      liveBuffers: groups.reduce((sum, { buffers }) => sum + buffers, 0),
      allocations: all.reduce((sum, { allocations }) => sum + allocations, 0),
      failures: all.reduce((sum, { failures }) => sum + failures, 0),
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
    if (this.making > 0) {
      throw new PoolError('close: a session is being made; await createSession() first', 'ERR_POOL_IN_USE')
    }
    const groups = this.live()
    if (groups.length > 0) {
      const who = groups.map(({ name, bytes }) => `${name === '' ? 'unnamed' : `'${name}'`} ${formatBytes(bytes)}`)
      throw new PoolError(
        `close: sessions hold memory (${who.join(', ')}); await session.release() for each one first`,
        'ERR_POOL_IN_USE',
      )
    }
    for (const blocks of [this.blocks, ...this.owned]) blocks.forgetStreams()
    for (const registration of this.registrations) registration.close()
    this.isClosed = true
    endServing(this.memories)
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

  private checkOpen(call: string): void {
    if (this.isClosed) {
      throw new PoolError(`${call}: the service is closed; call serveOnnxRuntime again`, 'ERR_POOL_CLOSED')
    }
  }
}

showAsText(ServedOnnxRuntime)
