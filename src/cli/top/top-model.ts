// The state of `top`: the figures so far, the selected pool, and the switches of the keys.

import type { PoolSnapshot } from '../../core/pool/caching/snapshot.js'
import { StreamNumbers } from '../../live/memory-parts.js'
import type { ProcessStats, ServedStats } from '../../live/process-stats.js'

/** The snapshots of `/snapshot`. */
export interface ServedSnapshots {
  readonly pools: readonly { readonly name: string; readonly snapshot: PoolSnapshot }[]
}

interface Point {
  readonly live: number
  readonly reserved: number
  /** requests that were refused since the point before */
  readonly refused: number
}

/** The last figures of each pool, oldest first. */
export class History {
  readonly streams = new StreamNumbers()
  private readonly points = new Map<string, Point[]>()
  /** the time of the last refused request that was seen, by pool */
  private readonly refusedMs = new Map<string, number>()
  private last: ProcessStats | null = null
  private before: ProcessStats | null = null

  constructor(private readonly most = 200) {}

  add(stats: ProcessStats): void {
    this.before = this.last
    this.last = stats
    for (const { name, stats: figures, outOfMemory } of stats.pools) {
      const points = this.points.get(name) ?? []
      const earlier = this.before?.pools.find(pool => pool.name === name)
      const refused = earlier === undefined ? 0 : outOfMemory - earlier.outOfMemory
      if (refused > 0) this.refusedMs.set(name, stats.timeMs)
      points.push({ live: figures.liveBytes, reserved: figures.reservedBytes, refused })
      if (points.length > this.most) points.shift()
      this.points.set(name, points)
    }
  }

  /** The last values of one figure of a pool. */
  of(name: string, figure: keyof Point): number[] {
    return (this.points.get(name) ?? []).map(point => point[figure])
  }

  /** Milliseconds since `top` saw the pool refuse a request; Infinity before the first one. */
  sinceRefusal(name: string): number {
    return (this.last?.timeMs ?? 0) - (this.refusedMs.get(name) ?? -Infinity)
  }

  /** Allocations a second between the last two figures; null before the second ones. */
  rate(pool: ServedStats): number | null {
    const earlier = this.before?.pools.find(({ name }) => name === pool.name)
    const ms = (this.last?.timeMs ?? 0) - (this.before?.timeMs ?? 0)
    return earlier === undefined || ms <= 0 ? null : ((pool.stats.allocations - earlier.stats.allocations) * 1000) / ms
  }
}

/** The switches of the keys. */
export interface Shown {
  readonly tags: boolean
  readonly streams: boolean
  readonly live: boolean
  readonly keys: boolean
}

/** The orders of the table, by the key `o`: as the process opened the pools, by name, or by a figure, most first. */
const ORDERS = ['opened', 'name', 'in use', 'reserved', 'OOM'] as const
export type Order = (typeof ORDERS)[number]

const FIGURES: Readonly<Partial<Record<Order, (pool: ServedStats) => number>>> = {
  'in use': ({ stats }) => stats.liveBytes,
  reserved: ({ stats }) => stats.reservedBytes,
  OOM: ({ outOfMemory }) => outOfMemory,
}

function ordered(pools: readonly ServedStats[], order: Order): readonly ServedStats[] {
  if (order === 'name') return pools.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const figure = FIGURES[order]
  return figure === undefined ? pools : pools.toSorted((a, b) => figure(b) - figure(a))
}

const SWITCHES: Readonly<Record<string, keyof Shown>> = { t: 'tags', s: 'streams', l: 'live', '?': 'keys' }
const STEPS: Readonly<Record<string, number>> = { up: -1, k: -1, down: 1, j: 1, pageUp: -10, pageDown: 10 }

export class TopModel {
  readonly history = new History()
  stats: ProcessStats | null = null
  snapshots: ServedSnapshots | null = null
  shown: Shown = { tags: true, streams: false, live: false, keys: false }
  isPaused = false
  order: Order = 'opened'
  /** whether the details of the selected pool fill the screen */
  isDetailed = false
  /** the first line of the details that is shown; the picture sets it back if there are fewer */
  scroll = 0
  /** a line about what the last key did; '' for none */
  message = ''
  /** since the last answer of a process that is silent; 0 if it answers */
  silentMs = 0
  private selectedName = ''

  add(stats: ProcessStats): void {
    if (this.isPaused) return
    this.stats = stats
    this.history.add(stats)
  }

  get pools(): readonly ServedStats[] {
    return ordered(this.stats?.pools ?? [], this.order)
  }

  /** The place of the selected pool: the first one if it is closed, or none was selected. */
  get selection(): number {
    return Math.max(
      0,
      this.pools.findIndex(({ name }) => name === this.selectedName),
    )
  }

  press(key: string): void {
    const step = STEPS[key]
    if (key === 'p') this.isPaused = !this.isPaused
    else if (key === 'o') this.order = ORDERS[(ORDERS.indexOf(this.order) + 1) % ORDERS.length]
    else if (key in SWITCHES) this.shown = { ...this.shown, [SWITCHES[key]]: !this.shown[SWITCHES[key]] }
    else if (key === 'enter' || key === 'escape') {
      this.isDetailed = key === 'enter' && !this.isDetailed
      this.scroll = 0
    } else if (step !== undefined && this.isDetailed) this.scroll = Math.max(0, this.scroll + step)
    else if (step !== undefined && this.pools.length > 0) {
      const place = Math.min(this.pools.length - 1, Math.max(0, this.selection + step))
      this.selectedName = this.pools[place].name
    }
  }
}
