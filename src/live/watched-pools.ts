// What is served, by name, and its figures, which are read on demand. Each pool is listed once, however many wrappers
// of it are watched: those are parts of it. So sums over pools count no byte twice. Shelves and kept regions have
// figures of their own beside those of the pools.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { isPlain } from '../core/base/option-names.js'
import { isDriverError } from '../core/base/thrown.js'
import type { Context } from '../core/driver/context.js'
import { ArenaQueue } from '../core/pool/arena/arena-queue.js'
import { OUT_OF_MEMORY, type OutOfMemoryMessage } from '../core/pool/channels.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import { GrowableBuffer } from '../core/pool/mapped/growable-buffer.js'
import { Pool, type PoolStats } from '../core/pool/pool.js'
import { Shelf, type ShelfStats } from '../core/pool/shelf/shelf.js'
import type { TagStats } from '../core/pool/wrappers/counters.js'
import { CountingPool } from '../core/pool/wrappers/counting-pool.js'
import { SpillableSet } from '../core/pool/wrappers/spillable.js'
import { Wrapper } from '../core/pool/wrappers/wrapper.js'
import type { Keep } from '../keep/keep.js'
import { KeptRegions, type RegionFigures } from './kept-regions.js'

/**
 * A pool, wrapper, arena queue, growable buffer, set of spillable buffers, shelf of models, or connection to a keeper
 * with all its regions, which can be watched.
 */
export type WatchedPool = Pool | HostPool | ArenaQueue | GrowableBuffer | SpillableSet | Shelf | Keep

/** One pool, several, or several by name. */
export type WatchedPools = WatchedPool | readonly WatchedPool[] | Readonly<Record<string, WatchedPool>>

/** The figures of a pool at one moment. */
export interface PoolFigures {
  /** the name it is served under */
  readonly name: string
  /** the kind of the pool: `caching`, `shared`, `arena`, `block`, `plain`, `driver`, `host`, `arena-queue`, … */
  readonly kind: string
  /** the device's number */
  readonly device: number
  /** the pool's counters */
  readonly stats: PoolStats
  /**
   * the figures of each watched part, which the pool's counters contain: the tags of `tagged()`, and by the name of
   * their own other wrappers that count, and spillable buffers; null without one
   */
  readonly tags: Readonly<Record<string, TagStats>> | null
  /** requests that the pool or a watched part refused for want of memory, since pools are watched in this process */
  readonly outOfMemory: number
}

/** The figures of a shelf at one moment. */
export interface ShelfFigures extends ShelfStats {
  /** the name it is served under */
  readonly name: string
  /** the device's number */
  readonly device: number
}

/** All figures at one moment. */
export interface Figures {
  readonly pools: readonly PoolFigures[]
  readonly shelves: readonly ShelfFigures[]
  readonly regions: readonly RegionFigures[]
}

/** What has memory of its own. */
type Source = Pool | HostPool | ArenaQueue | GrowableBuffer

/** What counts a part of a source's memory. */
type Part = CountingPool | SpillableSet

interface Entry {
  readonly name: string
  readonly pool: Source
  readonly context: Context
  readonly kind: string
  /** by name */
  readonly parts: Map<string, Part>
}

const KINDS = [Pool, HostPool, ArenaQueue, GrowableBuffer, SpillableSet, Shelf] as const
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
  private shelves: { readonly name: string; readonly shelf: Shelf }[] = []
  private keeps: { readonly name: string; readonly regions: KeptRegions }[] = []

  /** `call` names the public function in errors. */
  constructor(
    private readonly call: string,
    pools: WatchedPools,
  ) {
    countRefusals()
    if (isWatchable(pools)) this.add(pools)
    else if (Array.isArray(pools)) for (const pool of pools) this.add(pool)
    else if (isPlain(pools)) {
      for (const [name, pool] of Object.entries(pools)) this.add(pool, name)
    } else
      throw new WrongTypeError(
        `${call}: pools must be a pool that can be watched, a list, or pools by name, not ${describe(pools)}`,
      )
  }

  /**
   * Adds a pool under `name`, or under a name by its kind. Of a name that is taken it becomes `name-2`. Pools behind a
   * wrapper are added, too, unless they are listed already; the wrapper is a part of the first of them. Returns the
   * name of the pool, or of the part if its pool was listed already.
   */
  add(pool: WatchedPool, name?: string): string {
    if (!isWatchable(pool)) {
      const which = name === undefined ? 'each of pools' : `the pool '${name}'`
      throw new WrongTypeError(`${this.call}: ${which} must be a pool, not ${describe(pool)}`)
    }
    if (name !== undefined && (typeof name !== 'string' || name === ''))
      throw new WrongTypeError(`${this.call}: name must be a text, not ${describe(name)}`)
    if (pool instanceof Shelf) return this.addShelf(pool, name)
    if (isKeep(pool)) return this.addKeep(pool, name)
    const [first, ...others] = [...new Set(sourcesOf(pool))]
    const known = this.open().find(entry => entry.pool === first)
    const entry = known ?? this.list(first, name)
    for (const other of others) if (!this.entries.some(each => each.pool === other)) this.list(other)
    let listed = entry.name
    for (const part of partsOf(pool)) {
      const partName = namePart(entry, part, name)
      if (entry === known && part === pool) listed = partName
    }
    return listed
  }

  /** The open pools, by name. */
  open(): Entry[] {
    this.entries = this.entries.filter(({ pool, context }) => !context.released && !isClosed(pool))
    return this.entries
  }

  /** The shelves that are not closed, by name. */
  openShelves(): readonly { readonly name: string; readonly shelf: Shelf }[] {
    this.shelves = this.shelves.filter(({ shelf }) => !shelf.isGone)
    return this.shelves
  }

  /** The figures of all that is open. Each region is listed once, however many connections lead to its keeper. */
  figures(): Figures {
    const shelves = this.openShelves().map(({ name, shelf }) => {
      return { name, device: shelf.context.ordinal, ...shelf.stats() }
    })
    this.keeps = this.keeps.filter(({ regions }) => !regions.closed)
    const regions = new Map<string, RegionFigures>()
    for (const each of this.keeps.flatMap(keep => keep.regions.figures())) {
      const key = `${each.generation} ${each.name}`
      if (each.here !== null || !regions.has(key)) regions.set(key, each)
    }
    return { pools: this.poolFigures(), shelves, regions: [...regions.values()] }
  }

  /** The figures of all open pools; pools whose driver does not answer are left out. */
  poolFigures(): PoolFigures[] {
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

  private addShelf(shelf: Shelf, name = 'shelf'): string {
    const known = this.openShelves().find(each => each.shelf === shelf)
    if (known !== undefined) return known.name
    const free = freeName(name, takenBy(this.shelves))
    this.shelves.push({ name: free, shelf })
    return free
  }

  private addKeep(keep: Keep, name = 'keep'): string {
    const known = this.keeps.find(({ regions }) => regions.keep === keep)
    if (known !== undefined) return known.name
    const free = freeName(name, takenBy(this.keeps))
    this.keeps.push({ name: free, regions: KeptRegions.of(keep) })
    return free
  }

  private list(pool: Source, name?: string): Entry {
    const kind = kindOf(pool)
    const entry = {
      name: freeName(name ?? kind, takenBy(this.entries)),
      pool,
      context: pool.context,
      kind,
      parts: new Map(),
    }
    this.entries.push(entry)
    return entry
  }
}

function figuresOf({ name, pool, kind, context, parts }: Entry): PoolFigures {
  const tags = [...parts].filter(([, part]) => !isClosed(part)).flatMap(([key, part]) => figuresOfPart(key, part))
  return {
    name,
    kind,
    device: context.ordinal,
    stats: pool.stats(),
    tags: parts.size === 0 ? null : Object.fromEntries(tags),
    outOfMemory: [pool, ...parts.values()].reduce((sum, each) => sum + (refusals.get(each) ?? 0), 0),
  }
}

function figuresOfPart(name: string, part: Part): [string, TagStats][] {
  if (part instanceof CountingPool) return part.parts().map(([tag, stats]) => [tag || name, stats])
  const { onDeviceBytes, peakOnDeviceBytes, liveBuffers, allocations } = part.stats()
  const { maxPoolBytes } = part
  const bytes = { requestedBytes: onDeviceBytes, peakRequestedBytes: peakOnDeviceBytes, maxPoolBytes }
  return [[name, { ...bytes, liveBuffers, allocations }]]
}

/** Lists a part under a name that its pool has not yet; returns the name it has. */
function namePart({ parts }: Entry, part: Part, name: string | undefined): string {
  for (const [key, known] of parts) if (known === part) return key
  const free = freeName(name ?? kindOf(part), [...parts.keys()])
  parts.set(free, part)
  return free
}

function takenBy(listed: readonly { readonly name: string }[]): string[] {
  return listed.map(({ name }) => name)
}

function freeName(wanted: string, taken: readonly string[]): string {
  let free = wanted
  for (let number = 2; taken.includes(free); number++) free = `${wanted}-${number}`
  return free
}

/** Whether a value is something that can be watched. */
export function isWatchable(value: unknown): value is WatchedPool {
  return isKeep(value) || KINDS.some(kind => value instanceof kind)
}

/** By a method, since its class would bring the keeper's client into every program. */
function isKeep(value: unknown): value is Keep {
  return typeof (value as Partial<Keep> | null | undefined)?.held === 'function'
}

/** A pool, or what belongs to one. */
type OfPools = Exclude<WatchedPool, Shelf | Keep>

/** What has the memory behind a pool. */
function sourcesOf(pool: OfPools): readonly Source[] {
  if (pool instanceof SpillableSet) return [...pool.pool.sources, pool.host]
  return pool instanceof Wrapper ? pool.sources : [pool as Source]
}

/** The wrappers of a pool that count, the outermost first, and sets of spillable buffers. */
function partsOf(pool: OfPools): Part[] {
  if (pool instanceof SpillableSet) return [pool, ...partsOf(pool.pool)]
  if (!(pool instanceof Wrapper)) return []
  const inner = partsOf(pool.upstream)
  return pool instanceof CountingPool ? [pool, ...inner] : inner
}

function isClosed(pool: Source | Part): boolean {
  if (pool instanceof ArenaQueue) return pool.isGone
  return pool instanceof GrowableBuffer ? pool.freed : (pool as { readonly closed?: boolean }).closed === true
}

/** `CachingPool` is of the kind `caching`, `ArenaQueue` of the kind `arena-queue`. */
function kindOf(pool: Source | Part): string {
  return pool.constructor.name
    .replace(/^Own|Pool$|Set$/g, '')
    .replace(/(?<=[a-z])[A-Z]/g, letter => `-${letter}`)
    .toLowerCase()
}
