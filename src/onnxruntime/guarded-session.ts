// Sessions of onnxruntime-node, and those whose runs refuse while a pool of theirs sleeps.

import { type AnyPool, asleepError, type Blocks, type Scope, sleeps } from './blocks.js'

/** The calls of an onnxruntime-node session that a service replaces. */
export interface OnnxSession {
  /** runs the model, in this thread or in another */
  run(...args: readonly unknown[]): Promise<unknown>
  /** runs it in this thread; only builds whose `run` leaves the thread have it */
  runSync?(...args: readonly unknown[]): unknown
  /** frees the weights */
  release(): Promise<void>
}

export function isSession(value: unknown): value is OnnxSession {
  const session = value as Partial<OnnxSession> | null | undefined
  return typeof session?.run === 'function' && typeof session.release === 'function'
}

/** Runs `work` as the work of a scope. Rejects with the scope's failure, if it has one. */
export async function within<T>(blocks: Blocks, scope: Scope, work: () => T | Promise<T>): Promise<T> {
  const { scopes, underWay } = blocks
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

/** The sessions that `as` has returned, with the pools that they have memory of. */
export class GuardedSessions {
  private readonly pools = new WeakMap<object, Set<AnyPool>>()

  constructor(private readonly blocks: Blocks) {}

  /** Lets a session refuse its runs while one of the pools sleeps, whoever calls `run`. Other values stay. */
  guard(session: unknown, pools: ReadonlySet<AnyPool>): void {
    if (!isSession(session)) return
    const known = this.pools.get(session)
    if (known !== undefined) {
      for (const pool of pools) known.add(pool)
      return
    }
    const own = new Set(pools)
    this.pools.set(session, own)
    const run = session.run.bind(session)
    session.run = async (...args) => {
      if ([...own].some(sleeps)) throw asleepError('run', '')
      const scope = this.blocks.scopes.getStore()
      if (scope === undefined)
        return await within(this.blocks, { name: '', pool: null, uses: own, failure: null }, () => run(...args))
      for (const pool of own) scope.uses.add(pool)
      return await run(...args)
    }
  }
}
