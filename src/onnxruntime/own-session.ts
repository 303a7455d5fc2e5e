// A session with an allocator of its own: its memory comes from one pool, and any thread may ask. Its runs take turns,
// so only one is under way when the pool refuses a request, and fails for it.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { RunningWork } from '../core/pool/sleep/running-work.js'
import type { AnyPool, Blocks, Scope } from './blocks.js'
import { checkReady } from './checks.js'
import { isSession, type OnnxSession } from './guarded-session.js'

/** All sessions of their own. */
const taken = new WeakSet<object>()

/** Throws TypeError for anything but a session, and PoolError for a session of an earlier call. */
export function checkNewSession(name: string, made: unknown): asserts made is OnnxSession {
  if (!isSession(made)) {
    throw new WrongTypeError(`createSession: create must return a session, not ${describe(made)}; use as()`)
  }
  if (!taken.has(made)) return
  throw new PoolError(`createSession: create of '${name}' must make a session, not return an earlier one`)
}

export class OwnSession {
  private readonly scope: Scope
  private readonly work: RunningWork
  /** of the run that was called last */
  private last: Promise<unknown> = Promise.resolve()
  /** runs that were called, and have not begun */
  private waiting = 0
  private isReleased = false
  /** the release: a second call gets the same, since the allocator is dropped once */
  private releasing: Promise<void> | null = null

  constructor(
    private readonly blocks: Blocks,
    private readonly pool: AnyPool,
    /** called when the session has freed all its memory */
    private readonly drop: () => void,
  ) {
    this.scope = blocks.owner!
    this.work = new RunningWork(pool, `a run of '${this.scope.name}'`)
  }

  /** Replaces the calls of a new session. */
  takeOver(session: OnnxSession): void {
    taken.add(session)
    const run = session.run.bind(session)
    const runSync = session.runSync?.bind(session)
    const release = session.release.bind(session)
    session.run = (...args) => this.inTurn(() => run(...args))
    if (runSync !== undefined) session.runSync = (...args) => this.runAlone(() => runSync(...args))
    session.release = async () => {
      if (this.isBusy) throw this.busy('release')
      this.isReleased = true
      this.releasing ??= this.release(release)
      await this.releasing
    }
  }

  /** One that failed may be tried again. */
  private async release(release: () => Promise<void>): Promise<void> {
    try {
      await release()
    } catch (error) {
      this.releasing = null
      throw error
    }
    this.work.forget()
    this.blocks.forgetStreams()
    if (this.blocks.isEmpty) this.drop()
  }

  /** Whether a run that was called has not ended. */
  private get isBusy(): boolean {
    return this.work.isUnderWay || this.waiting > 0
  }

  /** A run that need not wait begins at once: a wait for nothing takes longer than the requests of a small model. */
  private inTurn(work: () => Promise<unknown>): Promise<unknown> {
    this.last = this.isBusy ? this.runNext(work) : this.run(work)
    return this.last
  }

  private runNext(work: () => Promise<unknown>): Promise<unknown> {
    const next = () => {
      this.waiting--
      return this.run(work)
    }
    this.waiting++
    return this.last.then(next, next)
  }

  private async run(work: () => Promise<unknown>): Promise<unknown> {
    this.begin('run')
    try {
      return this.checked(await work())
    } catch (error) {
      throw this.explained(error)
    } finally {
      this.end()
    }
  }

  /** A run that this thread waits for, so that requests come by its own stack and cost what they do in one thread. */
  private runAlone(work: () => unknown): unknown {
    if (this.isBusy) throw this.busy('runSync')
    this.begin('runSync')
    try {
      return this.checked(work())
    } catch (error) {
      throw this.explained(error)
    } finally {
      this.end()
    }
  }

  private begin(call: string): void {
    if (this.isReleased) throw new PoolError(`${call}: the session '${this.scope.name}' is released; create another`)
    checkReady(call, this.pool)
    this.scope.failure = null
    this.blocks.underWay.add(this.scope)
    this.work.isUnderWay = true
  }

  private end(): void {
    this.work.isUnderWay = false
    this.blocks.underWay.delete(this.scope)
  }

  /** The result of a run, unless a request of it was refused. */
  private checked(result: unknown): unknown {
    if (this.scope.failure !== null) throw this.scope.failure
    return result
  }

  /** ONNX Runtime's error follows from a refused request; without one it is the error of the run. */
  private explained(error: unknown): unknown {
    const { failure } = this.scope
    if (failure !== null && error !== failure) failure.cause = error
    return failure ?? error
  }

  private busy(call: string): PoolError {
    return new PoolError(`${call}: ${this.work.what} is under way; await it first`, 'ERR_POOL_IN_USE')
  }
}
