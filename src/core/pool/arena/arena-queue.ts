import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { disposeOf, warnOfDisposal } from '../../base/disposal.js'
import { PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { showAsText } from '../../base/readable.js'
import type { Context } from '../../driver/context.js'
import type { Clocks } from '../../order/clocks.js'
import { untilDone } from '../../order/polling.js'
import type { Stream } from '../../order/stream.js'
import { checkMaxWaiting, onAbort, signalOf, tooManyWait, type WaitOptions } from '../../order/wait-options.js'
import { type PoolStats, sumOfStats } from '../pool.js'
import type { ArenaOptions } from './arena-options.js'
import { ArenaPool } from './arena-pool.js'

/** Options of `createArenaQueue`. */
export interface ArenaQueueOptions extends ArenaOptions {
  /** how many arenas there are at most; each is made at its first need */
  readonly count: number
  /** how many requests may wait at a time; one more rejects at once with PoolError; default no limit */
  readonly maxWaiting?: number
}

/** One arena of a queue, lent until `close()` or the end of a `using` block, which resets it. */
export class ArenaLease implements Disposable {
  private isOver = false

  /** Made by `queue.take()`. */
  constructor(
    /** the arena, for the holder of the lease alone */
    readonly arena: ArenaPool,
    private readonly giveBack: (arena: ArenaPool) => void,
  ) {}

  /**
   * Resets the arena, in the order of its streams, and gives it to the next request. A second close does nothing, but
   * after an error of the driver it tries again.
   */
  close(): void {
    if (this.isOver) return
    this.giveBack(this.arena)
    this.isOver = true
  }

  /** The same as `close()`, once: an arena that cannot be reset is closed, and the next request gets another. */
  [Symbol.dispose](): void {
    try {
      this.close()
    } catch (error) {
      warnOfDisposal(this, error, '. Its arena is closed, and the next request gets another')
      disposeOf(this.arena, () => this.arena.close())
      disposeOf(this, () => this.close())
    }
  }

  /** One line for people, such as `ArenaLease { of ArenaPool { … } }`; console.log shows it. */
  toString(): string {
    return this.isOver ? 'ArenaLease { closed }' : `ArenaLease { of ${this.arena} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { arena: this.arena, closed: this.isOver }
  }
}

interface Waiter {
  readonly resolve: (lease: ArenaLease) => void
  readonly reject: (error: unknown) => void
  /** ends the watch of its signal */
  readonly forget: () => void
}

/**
 * A few arenas for many requests: each request takes one for itself, and waits in turn while all are lent. Made by
 * the device: `device.createArenaQueue({ bytes, count })`.
 */
export class ArenaQueue implements Disposable, AsyncDisposable {
  private readonly idle: ArenaPool[] = []
  /** in turn */
  private readonly waiters = new Set<Waiter>()
  private readonly arenas = new Set<ArenaPool>()
  private readonly arenaOptions: ArenaOptions
  /** how many arenas there are at most */
  readonly count: number
  /** how many requests may wait at a time */
  readonly maxWaiting: number
  private isClosed = false

  /** Use `device.createArenaQueue(options)`. */
  constructor(
    private readonly clocks: Clocks,
    private readonly defaultStream: Stream,
    options: ArenaQueueOptions,
  ) {
    checkOptionNames('createArenaQueue', options, ['bytes', 'maxPoolBytes', 'backing', 'count', 'maxWaiting'])
    const { count, maxWaiting = Infinity, ...arenaOptions } = options
    if (!Number.isInteger(count) || count < 1) {
      throw new OutOfRangeError(`createArenaQueue: count must be a whole number of at least 1, not ${describe(count)}`)
    }
    checkMaxWaiting('createArenaQueue', maxWaiting)
    this.count = count
    this.maxWaiting = maxWaiting
    this.arenaOptions = arenaOptions
    this.idle.push(this.newArena())
  }

  /** How many arenas could be lent at once now. */
  get availableArenas(): number {
    return this.isClosed ? 0 : this.idle.length + this.count - this.arenas.size
  }

  /** How many calls of `take` wait. */
  get waiting(): number {
    return this.waiters.size
  }

  /** True as soon as `close` was called: no request gets an arena any more. */
  get closed(): boolean {
    return this.isClosed
  }

  /** @internal */
  get context(): Context {
    return this.clocks.context
  }

  /** The sums of the counters of all arenas. A peak is the sum of their peaks, at different times perhaps. */
  stats(): PoolStats {
    return sumOfStats([...this.arenas].map(arena => arena.stats()))
  }

  /**
   * Whether `close` has ended, and all arenas are closed.
   * @internal
   */
  get isGone(): boolean {
    return this.isClosed && [...this.arenas].every(({ closed }) => closed)
  }

  /**
   * Lends an arena, once one is free; waiting requests come in turn. Rejects with OutOfMemoryError if the device has
   * no room for a further arena, with PoolError once the queue is closed and if `maxWaiting` requests wait already, and
   * with the reason of `signal` when it is aborted: the request then leaves its place to the next one.
   */
  async take(options: WaitOptions = {}): Promise<ArenaLease> {
    const signal = signalOf('take', options)
    if (this.isClosed) throw closedError('take')
    signal?.throwIfAborted()
    const arena = this.idle.pop() ?? (this.arenas.size < this.count ? this.newArena() : undefined)
    if (arena !== undefined) return this.lend(arena)
    if (this.waiting >= this.maxWaiting) throw tooManyWait('take', this.waiting, 'an arena')
    return new Promise((resolve, reject) => {
      const forget = onAbort(signal, () => {
        this.waiters.delete(waiter)
        reject(signal!.reason)
      })
      const waiter = { resolve, reject, forget }
      this.waiters.add(waiter)
    })
  }

  /**
   * Runs `work` with an arena of its own, which is reset when `work` has ended. Resolves to its result, and rejects
   * with its error, or as `take` does. An abort of `signal` ends only the wait for an arena; `work` may use the signal,
   * too. Rejects with TypeError at once if `work` is no function.
   */
  async use<R>(work: (arena: ArenaPool) => R | Promise<R>, options: WaitOptions = {}): Promise<R> {
    if (typeof work !== 'function') {
      throw new WrongTypeError(`use: work must be a function, not ${describe(work)}; pass arena => …`)
    }
    const signal = signalOf('use', options)
    using lease = await this.take(signal === undefined ? {} : { signal })
    signal?.throwIfAborted() // at the moment of the lease
    return await work(lease.arena)
  }

  /**
   * Rejects new and waiting requests, and resolves when the lent arenas have come back, their work is complete, and
   * all arenas are closed. Node goes on meanwhile. When `signal` is aborted, this closes the arenas that are still
   * lent, and rejects with its reason. A second close waits as well. The work of `use` must not await it: each would
   * wait for the other.
   */
  async close(options: WaitOptions = {}): Promise<void> {
    const signal = signalOf('close', options)
    this.refuse()
    try {
      await untilDone(() => [...this.arenas].every(arena => arena.closed || this.idle.includes(arena)), { signal })
      await this.clocks.finishForClose(signal)
    } finally {
      this.closeNow()
    }
  }

  /**
   * Closes all arenas, lent ones too, and rejects waiting requests.
   * @internal
   */
  closeNow(): void {
    this.refuse()
    for (const arena of this.arenas) arena.close()
  }

  private refuse(): void {
    this.isClosed = true
    for (let next = this.nextWaiter(); next !== undefined; next = this.nextWaiter()) next.reject(closedError('take'))
  }

  /** Closes all arenas at once, lent ones too, and rejects waiting requests. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.closeNow())
  }

  /** `close()` at the end of an `await using` block. Where that rejects, this warns. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch(() => {})
    this[Symbol.dispose]()
  }

  /** One line for people, such as `ArenaQueue { 2 of 8 arenas available, 0 waiting }`; console.log shows it. */
  toString(): string {
    if (this.closed) return 'ArenaQueue { closed }'
    return `ArenaQueue { ${this.availableArenas} of ${this.count} arenas available, ${this.waiting} waiting }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { count, availableArenas, waiting, closed } = this
    return { device: this.clocks.context.ordinal, count, availableArenas, waiting, closed }
  }

  private newArena(): ArenaPool {
    const arena = new ArenaPool(this.clocks, this.defaultStream, this.arenaOptions)
    this.arenas.add(arena)
    return arena
  }

  private lend(arena: ArenaPool): ArenaLease {
    return new ArenaLease(arena, () => this.takeBack(arena))
  }

  private takeBack(arena: ArenaPool): void {
    if (arena.closed) {
      this.arenas.delete(arena) // by its holder, or with the queue
      this.serveNext()
      return
    }
    arena.reset()
    const next = this.nextWaiter()
    if (next === undefined) this.idle.push(arena)
    else next.resolve(this.lend(arena))
  }

  /** Takes the first request out of the line; none waits once the queue is closed. */
  private nextWaiter(): Waiter | undefined {
    const [next] = this.waiters
    if (next === undefined) return undefined
    this.waiters.delete(next)
    next.forget()
    return next
  }

  /**
   * A place became free: the next waiting request gets a new arena. If that fails while no other arena is lent, the
   * same is tried for the requests behind it, which would wait for ever.
   */
  private serveNext(): void {
    do {
      const next = this.nextWaiter()
      if (next === undefined) return
      try {
        next.resolve(this.lend(this.newArena()))
      } catch (error) {
        next.reject(error)
      }
    } while (this.arenas.size === 0)
  }
}

function closedError(call: string): PoolError {
  return new PoolError(`${call}: the arenas are closed; create others`, 'ERR_POOL_CLOSED')
}

showAsText(ArenaQueue, ArenaLease)
