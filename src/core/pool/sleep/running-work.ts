// Work that goes on submitting calls, such as a run of ONNX Runtime in another thread. The host cannot wait for its
// end, because that thread may wait for the host. So pools with memory of such work refuse to sleep and to close.

import { PoolError } from '../../base/errors.js'

/** What runs, by pool. */
const running = new WeakMap<object, string[]>()

/** Notes that work uses memory of the pool, until `endRunning`. Errors name it as `work`, such as `a run of 'bert'`. */
export function beginRunning(pool: object, work: string): void {
  for (const source of sourcesOf(pool)) {
    const works = running.get(source)
    if (works === undefined) running.set(source, [work])
    else works.push(work)
  }
}

export function endRunning(pool: object, work: string): void {
  for (const source of sourcesOf(pool)) {
    const works = running.get(source)!
    works.splice(works.lastIndexOf(work), 1)
  }
}

/** Throws PoolError in the name of `call` while such work uses memory of the pool. */
export function checkNotRunning(call: 'sleep' | 'close', pool: object): void {
  const work = running.get(pool)?.at(-1)
  if (work === undefined) return
  throw new PoolError(`${call}: ${work} uses memory of the pool; await it first`, 'ERR_POOL_IN_USE')
}

/** The pools behind a wrapper; any other pool is its own. */
function sourcesOf(pool: object): readonly object[] {
  return (pool as { readonly sources?: readonly object[] }).sources ?? [pool]
}
