import { disposeOf, warnOfDisposal } from '../core/base/disposal.js'
import { PoolError } from '../core/base/errors.js'
import { checkFlag } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import type { Device } from '../core/device/device.js'
import { untilDone } from '../core/order/polling.js'
import { relaxed } from '../core/order/relaxed.js'
import type { Stream } from '../core/order/stream.js'
import type { PlainPool } from '../core/pool/driver-owned/plain-pool.js'
import { CapturedCalls } from './captured-calls.js'
import type { Plan } from './collective-memory.js'
import { Collectives } from './collectives.js'
import { CommunicatorError } from './communicator-error.js'
import {
  arenaBytesOf,
  type CommunicatorOptions,
  type JoinOptions,
  placeOf,
  type SymmetricArenaOptions,
  waitOf,
} from './communicator-options.js'
import { type Communicators, ranksHere } from './communicators.js'
import { NCCL_RESULT, NCCL_SINCE, STAT_TOTAL, SUSPEND_MEMORY, versionText } from './constants.js'
import { addToGroup, isGrouping, runGroup } from './group.js'
import { type JoinedRank, MOST_POLL_MS, type Wait } from './joined-rank.js'
import { type Arrival, joinAlone, joinTogether } from './joins.js'
import { MeetingPlace } from './meeting.js'
import { Cell, type Nccl } from './nccl.js'
import { checkRegistrable, follow, type RegistrablePool, Registration } from './registrations.js'
import { SymmetricArena } from './symmetric-arena.js'

/** The counters of a communicator. */
export interface CommunicatorStats {
  /** the number of this rank */
  readonly rank: number
  /** how many ranks there are */
  readonly ranks: number
  /** the version of NCCL, such as `2.28.9` */
  readonly version: string
  /** collectives, sends and receives so far, captured ones among them */
  readonly collectives: number
  /** segments of pools that NCCL has registered */
  readonly registeredSegments: number
  /** their bytes */
  readonly registeredBytes: number
  /** bytes of symmetric arenas */
  readonly symmetricBytes: number
  /** device memory that NCCL itself holds; null before NCCL 2.29.7, and while a call is in progress or has failed */
  readonly ncclBytes: number | null
}

/**
 * One rank among several GPUs. Made by `Communicator.join()` or `Communicator.joinAll()`. It belongs to the thread
 * that made it. All ranks make the same calls in the same order; several ranks of one thread make each call within
 * `Communicator.group`.
 *
 * A collective is work of its stream, like a kernel: the call submits it and does not block, except that the first
 * message between two ranks does (`send`). Memory of other streams is kept until the work is complete. The methods
 * throw TypeError or RangeError for a bad argument, PoolError for memory, a stream or a communicator that does not
 * allow the call, and CommunicatorError where NCCL refuses it; then memory is as it was.
 */
export class Communicator extends Collectives implements Disposable, AsyncDisposable {
  /** the number of this rank, from 0 */
  readonly rank: number
  /** how many ranks there are */
  readonly ranks: number
  private state: 'open' | 'closing' | 'closed' | 'aborted' = 'open'
  private collectives = 0
  private readonly registrations = new Map<RegistrablePool, { registration: Registration; stop: () => void }>()
  /**
   * Those that are open.
   * @internal
   */
  readonly arenas = new Set<SymmetricArena>()
  /**
   * Those of calls that wait.
   * @internal
   */
  readonly pools = new Set<PlainPool>()
  private readonly streams = new Set<Stream>()
  private lastStream: Stream | null = null
  private readonly meeting: MeetingPlace
  private readonly captured: CapturedCalls

  /** the device of this rank */
  readonly device: Device
  private readonly joined: JoinedRank
  private readonly part: Communicators

  private constructor(
    { device, joined, part }: Arrival,
    private readonly timeoutMs: number,
  ) {
    super()
    this.device = device
    this.joined = joined
    this.part = part
    this.rank = joined.rank
    this.ranks = joined.ranks
    this.meeting = new MeetingPlace(device, joined)
    this.captured = new CapturedCalls(part.clocks)
    part.add(this)
  }

  /**
   * Joins a world of ranks, and connects them. Resolves when all have come; Node goes on until then. Rejects with
   * CommunicatorError when they have not come within `timeoutMs`, or when NCCL refuses, such as for a second rank with
   * the same number, and with the reason of `signal` when it is aborted. Rejects with NoLibraryError without NCCL 2.19
   * or later.
   */
  static async join(device: Device, options: JoinOptions): Promise<Communicator> {
    const call = 'Communicator.join'
    const wait = waitOf(call, options, ['id', 'rank', 'ranks'])
    const place = placeOf(call, options)
    checkNoGroup(call)
    return new Communicator(await joinAlone(call, device, place, wait), wait.timeoutMs)
  }

  /**
   * Makes a world of the `devices` of this thread, one rank for each, in their order. Make their calls within
   * `Communicator.group`. Rejects like `join`.
   */
  static async joinAll(devices: readonly Device[], options: CommunicatorOptions = {}): Promise<Communicator[]> {
    const call = 'Communicator.joinAll'
    const wait = waitOf(call, options)
    checkNoGroup(call)
    const arrivals = await joinTogether(call, devices, wait)
    return arrivals.map(arrival => new Communicator(arrival, wait.timeoutMs))
  }

  /**
   * Runs `work`, which makes calls of several communicators of this thread, and begins them together. Needed where a
   * thread has several ranks, and for sends and receives that depend on each other. If a call within throws, or `work`
   * does, none has begun. Throws PoolError for captured streams of several devices.
   */
  static group(work: () => void): void {
    runGroup(work)
  }

  /**
   * Lets NCCL use the memory of a pool with `backing: 'registrable'` directly: what it has, and what it gets later, as
   * long as both are open. All ranks register their pools, or none does. Returns how many segments the pool has now.
   * During a capture new segments wait for its end. Throws PoolError for pools of another kind or device, for shared
   * pools, and for a pool that is registered here already.
   */
  register(pool: RegistrablePool): number {
    this.checkOpen('register')
    checkNoGroup('register')
    if (pool instanceof SymmetricArena) {
      throw new PoolError('register: NCCL knows a symmetric arena as a window already; use its buffers as they are')
    }
    checkRegistrable('register', pool, this.device.context)
    if (this.registrations.has(pool)) throw new PoolError('register: the pool is registered here already')
    const { captures } = this.part.clocks
    const registration = new Registration(this.joined, () => captures.size > 0)
    const stop = relaxed(this.device.context.activate(), () => follow(pool, registration))
    this.registrations.set(pool, { registration, stop })
    return registration.handles.size
  }

  /**
   * Ends `register`: the pool's memory stays, and NCCL copies it through memory of its own again. Work that uses it
   * must be complete. Does nothing for a pool that is not registered.
   */
  deregister(pool: RegistrablePool): void {
    this.registrations.get(pool)?.stop()
    this.registrations.delete(pool)
  }

  /**
   * An arena in memory that NCCL knows as one window, the fastest for small collectives. All ranks make it together,
   * with the same bytes, and allocate the same sizes in the same order, so that offsets agree. Close it before the
   * communicator, on all ranks. Resolves when all have come; Node goes on until then. Rejects with PoolError before
   * NCCL 2.27, or where the device has no windows, and with CommunicatorError when a rank does not come within
   * `timeoutMs`.
   */
  async createSymmetricArena(options: SymmetricArenaOptions): Promise<SymmetricArena> {
    const call = 'createSymmetricArena'
    const bytes = arenaBytesOf(call, options)
    this.checkOpen(call)
    checkNoGroup(call)
    this.needs(call, 'ncclCommWindowRegister', 'register(pool) works from 2.19 on')
    const { debug = false } = options
    checkFlag(`${call}: debug`, debug)
    return await SymmetricArena.create(this, this.joined, this.meeting, bytes, debug, this.timeoutMs)
  }

  /**
   * Gives memory that NCCL itself holds back to the device, until `resume`. All ranks call it, with no work under way.
   * Resolves when all have; Node goes on until then. Rejects with CommunicatorError when a rank does not come within
   * `timeoutMs`, and with PoolError before NCCL 2.29.7, or where this thread has another rank.
   */
  async suspend(): Promise<void> {
    this.checkAlone('suspend', 'ncclCommSuspend')
    const work = () => this.nccl.ncclCommSuspend(this.handle, SUSPEND_MEMORY)
    await this.meeting.call('suspend', work, { timeoutMs: this.timeoutMs })
  }

  /** Ends `suspend`. All ranks call it, and NCCL blocks the thread until all have. */
  async resume(): Promise<void> {
    this.checkAlone('resume', 'ncclCommResume')
    const work = () => this.nccl.ncclCommResume(this.handle)
    await this.meeting.call('resume', work, { timeoutMs: this.timeoutMs }, true)
  }

  /**
   * Resolves when all ranks have called it; Node goes on until then. Work on streams is not waited for: `finished` does
   * that. Rejects with CommunicatorError when a rank does not come within `timeoutMs`.
   */
  async barrier(): Promise<void> {
    this.checkOpen('barrier')
    checkNoGroup('barrier')
    await this.meeting.call('barrier', () => NCCL_RESULT.ncclSuccess, { timeoutMs: this.timeoutMs })
  }

  /**
   * Resolves when the work of all collectives so far is complete; Node goes on until then. Rejects with
   * CommunicatorError when NCCL notices that a rank is gone, or after `timeoutMs`: a stream alone would never tell.
   * `abort` is left then.
   */
  async finished(options: CommunicatorOptions = {}): Promise<void> {
    const wait = waitOf('finished', options, [], this.timeoutMs)
    this.checkOpen('finished')
    await this.workDone('finished', wait)
  }

  /** The counters of this communicator. */
  stats(): CommunicatorStats {
    const registrations = [...this.registrations.values()].map(({ registration }) => registration)
    return {
      rank: this.rank,
      ranks: this.ranks,
      version: versionText(this.nccl.version),
      collectives: this.collectives,
      registeredSegments: registrations.reduce((sum, { segments }) => sum + segments, 0),
      registeredBytes: registrations.reduce((sum, { bytes }) => sum + bytes, 0),
      symmetricBytes: [...this.arenas].reduce((sum, arena) => sum + arena.stats().reservedBytes, 0),
      ncclBytes: this.memoryOfNccl(),
    }
  }

  /** True after `close` or `abort`. */
  get closed(): boolean {
    return this.state === 'closed' || this.state === 'aborted'
  }

  /**
   * Waits for the work of all collectives, deregisters memory, closes symmetric arenas and graphs with collectives, and
   * leaves the world; Node goes on meanwhile. All ranks call it. Rejects with CommunicatorError if a rank is gone, or
   * after `timeoutMs`: call `abort` then.
   */
  async close(): Promise<void> {
    if (this.closed) return
    checkNoGroup('close')
    if (this.state === 'closing') throw new PoolError('close: the communicator is being closed; await that call')
    this.captured.check('close')
    this.state = 'closing'
    try {
      if (this.joined.failure !== null) throw this.failedBefore('close', this.joined.failure)
      await this.meeting.idle()
      await this.workDone('close', { timeoutMs: this.timeoutMs })
      this.captured.close('close')
      this.forgetMemory()
      const wait = { timeoutMs: this.timeoutMs }
      await this.joined.settle('close', this.nccl.ncclCommFinalize(this.handle), wait)
      this.joined.check('close', this.nccl.ncclCommDestroy(this.handle))
      this.joined.isOver = true
      this.ended('closed')
    } catch (error) {
      if (!this.closed) this.state = 'open'
      throw error
    }
  }

  /**
   * Ends the communicator at once, whatever other ranks do: kernels of NCCL that wait for them end, and what they would
   * have written is undefined. Graphs with collectives are closed. Memory of pools stays whole and usable. A second
   * call does nothing.
   */
  abort(): void {
    if (this.closed) return
    this.captured.close('abort')
    this.leave()
  }

  /**
   * At the close of the device. Where a graph of another library would keep NCCL from ending the rank, its memory is
   * lost.
   * @internal
   */
  end(): void {
    if (this.captured.hasForeignGraphs) this.joined.isOver = true
    this.leave()
  }

  private leave(): void {
    const { context } = this.device
    if (!this.joined.isOver) context.giveBack(() => this.nccl.ncclCommAbort(this.handle))
    this.joined.isOver = true
    this.forgetMemory()
    this.ended('aborted')
  }

  /**
   * The end of an `await using` block: `close()`, or `abort()` if the communicator has failed. Where `close` rejects,
   * this warns and aborts.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.joined.failure === null) {
      await this.close().catch(error => warnOfDisposal(this, error, '. It is aborted'))
    }
    this[Symbol.dispose]()
  }

  /** The end of a `using` block: `abort()`, unless `close` was awaited before. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.abort())
  }

  /** One line for people, such as `Communicator { rank 0 of 2, open }`; console.log shows it. */
  override toString(): string {
    return `Communicator { rank ${this.rank} of ${this.ranks}, ${this.condition} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { rank: this.rank, ranks: this.ranks, device: this.device.ordinal, state: this.condition }
  }

  /**
   * Names the world of ranks.
   * @internal
   */
  get world(): string {
    return this.joined.world
  }

  /** @internal */
  get hasFailed(): boolean {
    return this.joined.failure !== null
  }

  /** @internal */
  get nccl(): Nccl {
    return this.joined.nccl
  }

  /**
   * NCCL's handle.
   * @internal
   */
  get handle(): number {
    return this.joined.handle
  }

  private get condition(): string {
    return this.state === 'open' && this.joined.failure !== null ? 'failed' : this.state
  }

  /** Lets NCCL begin a checked call, or the open group take it. */
  protected override submit(call: string, plan: Plan, work: (stream: number) => number): void {
    const { stream } = plan
    const counted = (handle: number) => {
      this.collectives++
      if (stream !== this.lastStream) this.streams.add(stream)
      this.lastStream = stream
      this.captured.note(stream)
      return work(handle)
    }
    for (const { registration } of this.registrations.values()) registration.catchUp()
    if (isGrouping()) {
      addToGroup({ call, rank: this.joined, plan, work: counted })
      return
    }
    this.device.context.activate()
    this.joined.check(call, stream.submit(call, counted))
  }

  /** Waits for the work of collectives, as long as NCCL knows of no failure. */
  private async workDone(call: string, { timeoutMs, signal }: Wait): Promise<void> {
    const { joined, streams } = this
    const end = performance.now() + timeoutMs
    const isDone = () => {
      if (!joined.isOver || streams.size > 0) joined.stateFor(call)
      for (const stream of streams) if (!stream.isOpen || stream.query()) streams.delete(stream)
      if (streams.size > 0 && performance.now() > end) throw joined.timedOut(call, timeoutMs)
      return streams.size === 0
    }
    this.lastStream = null
    await untilDone(isDone, { signal, mostMs: MOST_POLL_MS })
  }

  /** NCCL's handles are no longer used, and arenas give their memory back. */
  private forgetMemory(): void {
    for (const pool of [...this.registrations.keys()]) this.deregister(pool)
    for (const arena of [...this.arenas]) arena.close()
    for (const pool of this.pools) pool.close()
    this.meeting.close()
  }

  private ended(state: 'closed' | 'aborted'): void {
    this.state = state
    this.part.delete(this)
  }

  protected checkOpen(call: string): void {
    if (this.state !== 'open') {
      throw new PoolError(`${call}: the communicator is ${this.state}; join again`, 'ERR_POOL_CLOSED')
    }
    if (this.joined.failure !== null) throw this.failedBefore(call, this.joined.failure)
  }

  /** The error of a call after `failure`. */
  private failedBefore(call: string, { result, resultName, last }: CommunicatorError): CommunicatorError {
    const remedy = 'the communicator has failed before; abort() it, and join again'
    return new CommunicatorError(call, result, resultName, last, remedy)
  }

  private checkAlone(call: string, name: keyof typeof NCCL_SINCE): void {
    this.checkOpen(call)
    checkNoGroup(call)
    this.needs(call, name, 'close the communicator, and join again')
    if (ranksHere(this.joined.world).length === 1) return
    throw new PoolError(
      `${call}: this thread has several ranks, and NCCL would wait for the others in each; use one process or thread a rank`,
      'ERR_NOT_SUPPORTED',
    )
  }

  private memoryOfNccl(): number | null {
    if (this.closed || !this.joined.isWell || this.nccl.version < NCCL_SINCE.ncclCommMemStats) return null
    if (this.joined.ask() !== NCCL_RESULT.ncclSuccess) return null // NCCL tells it between calls only
    const value = new Cell()
    this.joined.check('stats', this.nccl.ncclCommMemStats(this.handle, STAT_TOTAL, value))
    return value.value
  }
}

function checkNoGroup(call: string): void {
  if (isGrouping()) throw new PoolError(`${call}: a group has calls that begin together; call it before or after`)
}

showAsText(Communicator)
