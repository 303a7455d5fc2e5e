// The pools that are served, by name, and their figures. Figures are read on demand.

import { describe } from '../core/base/bytes.js'
import { isDriverError } from '../core/base/driver-error.js'
import { OUT_OF_MEMORY, type OutOfMemoryMessage } from '../core/pool/channels.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import { Pool, type PoolStats } from '../core/pool/pool.js'
import { type TagStats, taggedPoolOf } from '../core/pool/wrappers/tagged.js'

/** A pool or wrapper that can be watched. */
export type WatchedPool = Pool | HostPool

/** One pool, several, or several by name. */
export type WatchedPools = WatchedPool | readonly WatchedPool[] | Readonly<Record<string, WatchedPool>>

/** The figures of a pool at one moment. */
export interface PoolFigures {
  /** the name it is served under */
  readonly name: string
  /** the kind of the pool, below its wrappers: `caching`, `shared`, `arena`, `block`, `plain`, `driver`, `host`, … */
  readonly kind: string
  /** the device's number */
  readonly device: number
  /** the pool's counters */
  readonly stats: PoolStats
  /** the figures of each tag; null without a `tagged()` wrapper */
  readonly tags: Readonly<Record<string, TagStats>> | null
  /** requests that the pool refused for want of memory, since pools are watched in this process */
  readonly outOfMemory: number
}

interface Entry {
  readonly name: string
  readonly pool: WatchedPool
  readonly kind: string
}

const refusals = new WeakMap<object, number>()
let isCounting = false

/** Counts refused requests from the first call on. */
function countRefusals(): void {
  if (isCounting) return
  isCounting = true
  OUT_OF_MEMORY.subscribe(message => {
    const { pool } = message as OutOfMemoryMessage
    refusals.set(pool, (refusals.get(pool) ?? 0) + 1)
  })
}

/** The pools of a server or a registry. Closed pools leave by themselves. */
export class PoolList {
  private entries: Entry[] = []

  /** `call` names the public function in errors. */
  constructor(
    private readonly call: string,
    pools: WatchedPools,
  ) {
    countRefusals()
    if (isPool(pools)) this.add(pools)
    else if (Array.isArray(pools)) for (const pool of pools) this.add(pool)
    else if (isPlain(pools)) {
      for (const [name, pool] of Object.entries(pools)) this.add(pool, name)
    } else
      throw new TypeError(
        `${call}: pools must be a pool that can be watched, a list, or pools by name, not ${describe(pools)}`,
      )
  }

  /** Adds a pool under `name`, or under a name by its kind. Of a name that is taken it becomes `name-2`. */
  add(pool: WatchedPool, name?: string): string {
    if (!isPool(pool)) {
      const which = name === undefined ? 'each of pools' : `the pool '${name}'`
      throw new TypeError(`${this.call}: ${which} must be a pool, not ${describe(pool)}`)
    }
    if (name !== undefined && (typeof name !== 'string' || name === ''))
      throw new TypeError(`${this.call}: name must be a text, not ${describe(name)}`)
    const entries = this.open()
    const known = entries.find(entry => entry.pool === pool)
    if (known !== undefined && (name === undefined || name === known.name)) return known.name
    const kind = kindOf(pool)
    const wanted = name ?? kind
    let free = wanted
    for (let number = 2; entries.some(entry => entry.name === free); number++) free = `${wanted}-${number}`
    entries.push({ name: free, pool, kind })
    return free
  }

  /** The open pools, by name. */
  open(): Entry[] {
    this.entries = this.entries.filter(({ pool }) => !isClosed(pool))
    return this.entries
  }

  /** The figures of all open pools; pools whose driver does not answer are left out. */
  figures(): PoolFigures[] {
    return this.open().flatMap(entry => {
      try {
        return [figuresOf(entry)]
      } catch (error) {
        // Driver pools ask the driver for their counters. Other errors are defects, and end the process like any.
        if (isDriverError(error)) return []
        throw error
      }
    })
  }
}

function figuresOf({ name, pool, kind }: Entry): PoolFigures {
  const tags = pool instanceof Pool ? (taggedPoolOf(pool)?.statsByTag() ?? null) : null
  const sources: readonly object[] = pool instanceof Pool ? [...new Set([pool, ...pool.sources])] : [pool]
  const outOfMemory = sources.reduce<number>((sum, source) => sum + (refusals.get(source) ?? 0), 0)
  return { name, kind, device: pool.context.ordinal, stats: pool.stats(), tags, outOfMemory }
}

function isPool(value: unknown): value is WatchedPool {
  return value instanceof Pool || value instanceof HostPool
}

/** Whether a value has the prototype of `{}`, of whichever realm, or none. */
function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function isClosed(pool: WatchedPool): boolean {
  const sources: readonly object[] = pool instanceof Pool ? pool.sources : [pool]
  return pool.context.released || sources.every(source => (source as { readonly closed?: boolean }).closed === true)
}

/** `CachingPool` is of the kind `caching`; a wrapper is of the kind of the pool below. */
function kindOf(pool: WatchedPool): string {
  const [source] = pool instanceof Pool ? pool.sources : [pool]
  return source.constructor.name
    .replace(/^Own|Pool$/g, '')
    .replace(/(?<=[a-z])[A-Z]/g, letter => `-${letter}`)
    .toLowerCase()
}
