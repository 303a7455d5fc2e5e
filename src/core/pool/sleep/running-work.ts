// Work that goes on submitting calls, such as a run of ONNX Runtime in another thread. The host cannot wait for its
// end, because that thread may wait for the host. So pools with memory of such work refuse to sleep and to close.

import { PoolError } from '../../base/errors.js'

/** The works of each pool, whether they run or not. */
const worksOf = new WeakMap<object, Set<RunningWork>>()

/** Work that uses memory of a pool while it runs. It is kept, so that each begin and end is one store. */
export class RunningWork {
  isUnderWay = false

  /** Errors name it as `what`, such as `a run of 'bert'`. */
  constructor(
    private readonly pool: object,
    readonly what: string,
  ) {
    for (const source of sourcesOf(pool)) {
      const works = worksOf.get(source)
      if (works === undefined) worksOf.set(source, new Set([this]))
      else works.add(this)
    }
  }

  /** It will not run any more. */
  forget(): void {
    for (const source of sourcesOf(this.pool)) worksOf.get(source)!.delete(this)
  }
}

/** Throws PoolError in the name of `call` while such work uses memory of the pool. */
export function checkNotRunning(call: 'sleep' | 'close', pool: object): void {
  for (const { isUnderWay, what } of worksOf.get(pool) ?? []) {
    if (!isUnderWay) continue
    throw new PoolError(`${call}: ${what} uses memory of the pool; await it first`, 'ERR_POOL_IN_USE')
  }
}

/** The pools behind a wrapper; any other pool is its own. */
function sourcesOf(pool: object): readonly object[] {
  return (pool as { readonly sources?: readonly object[] }).sources ?? [pool]
}
