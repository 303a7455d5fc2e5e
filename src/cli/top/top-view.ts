// The screen of `cuda-mempool top` as lines of text, from the figures of a process.

import { formatBytes } from '../../core/base/bytes.js'
import { printable } from '../../core/base/shown-text.js'
import type { PoolSnapshot } from '../../core/pool/caching/snapshot.js'
import { partsOf, StreamNumbers } from '../../live/memory-parts.js'
import { missShare, type ProcessStats, type ServedStats } from '../../live/process-stats.js'
import { formatCount, formatShare } from '../../recordings/report/number-format.js'
import { inLocale } from '../terminal.js'

const LEAST_COLUMNS = 8
const MOST_BAR = 66
const MOST_ROWS = 10
const SEPARATOR = '   '
const SPARKS = '▁▂▃▄▅▆▇█'
export const KEYS: readonly string[] = ['q quit', 'p pause', 't tags', 's streams', 'l live', 'e record 10 s']

/** The switches of the keys. */
export interface Shown {
  readonly tags: boolean
  readonly streams: boolean
  readonly live: boolean
  readonly paused: boolean
}

/** The snapshots of `/snapshot`. */
export interface ServedSnapshots {
  readonly pools: readonly { readonly name: string; readonly snapshot: PoolSnapshot }[]
}

/** The last figures of each pool, oldest first. */
export class History {
  readonly streams = new StreamNumbers()
  private readonly points = new Map<string, { live: number; reserved: number }[]>()
  private last: ProcessStats | null = null
  private before: ProcessStats | null = null

  constructor(private readonly most = 200) {}

  add(stats: ProcessStats): void {
    this.before = this.last
    this.last = stats
    for (const { name, stats: figures } of stats.pools) {
      const points = this.points.get(name) ?? []
      points.push({ live: figures.liveBytes, reserved: figures.reservedBytes })
      if (points.length > this.most) points.shift()
      this.points.set(name, points)
    }
  }

  /** The last values of one figure of a pool. */
  of(name: string, figure: 'live' | 'reserved'): number[] {
    return (this.points.get(name) ?? []).map(point => point[figure])
  }

  /** Allocations a second between the last two figures; null before the second ones. */
  rate(pool: ServedStats): number | null {
    const earlier = this.before?.pools.find(({ name }) => name === pool.name)
    const ms = (this.last?.timeMs ?? 0) - (this.before?.timeMs ?? 0)
    return earlier === undefined || ms <= 0 ? null : ((pool.stats.allocations - earlier.stats.allocations) * 1000) / ms
  }
}

interface TopScreen {
  readonly stats: ProcessStats
  readonly history: History
  readonly shown: Shown
  readonly snapshots: ServedSnapshots | null
  /** a line about what the last key did; '' for none */
  readonly message: string
  /** since the last answer of a process that is silent; 0 if it answers */
  readonly silentMs: number
  /** whether keys do something */
  readonly hasKeys: boolean
}

/** The lines for a terminal of `columns`, in the locale's letters, none longer than that. */
export function topLines(screen: TopScreen, columns: number, env: NodeJS.ProcessEnv = process.env): string[] {
  const width = Math.max(LEAST_COLUMNS, columns)
  const { stats, shown, hasKeys, message, silentMs } = screen
  const devices = stats.devices.map(({ ordinal, name }) => `device ${ordinal}: ${name}`)
  const silence = silentMs === 0 ? [] : [`last answer ${Math.floor(silentMs / 1000)} s ago`]
  const head = ['cuda-mempool top', ...silence, `pid ${stats.pid} ${stats.command}`, ...devices]
  const lines = [...wrapped(head, width), ...(hasKeys ? wrapped(KEYS, width) : [])]
  if (shown.paused) lines.push('paused; p goes on')
  if (message !== '') lines.push(...wrapped(message.split('; '), width))
  if (stats.pools.length === 0) lines.push('no pool is open now')
  const pools = stats.pools.flatMap(pool => ['', ...poolLines(pool, screen, width)])
  return [...lines, ...pools].map(line => inLocale(printable(line), env).slice(0, width))
}

function poolLines(pool: ServedStats, { history, shown, snapshots }: TopScreen, width: number): string[] {
  const { name, kind, device, tags } = pool
  const snapshot = snapshots?.pools.find(each => each.name === name)?.snapshot
  return [
    ...wrapped([`pool ${name}`, kind, `device ${device}`], width),
    ...memoryLines(pool, width),
    ...curves(pool, history, width),
    ...countLines(pool, history, width),
    ...(tags !== null && shown.tags ? tagLines(tags, width) : []),
    ...(snapshot !== undefined && shown.streams ? streamLines(snapshot, history.streams, width) : []),
    ...(snapshot !== undefined && shown.live ? largestLines(snapshot) : []),
  ]
}

/** The bar of all memory that the pool may have, and its parts. */
function memoryLines({ stats }: ServedStats, width: number): string[] {
  const { reservedBytes, maxPoolBytes } = stats
  const whole = maxPoolBytes ?? Math.max(stats.peakReservedBytes, reservedBytes, 1)
  const { requested, rounding, cached, pending, free } = partsOf({ stats })
  const rest = Math.max(0, whole - reservedBytes)
  const limit = maxPoolBytes === null ? `peak      ${formatBytes(whole)}` : `limit     ${formatBytes(whole)}`
  const barWidth = Math.min(MOST_BAR, width - limit.length - 4)
  const parts = [requested, rounding, cached, pending, free, rest]
  const names = [
    `█ asked for ${formatBytes(requested)}`,
    `▓ rounding ${formatBytes(rounding)}`,
    `▒ cached ${formatBytes(cached)}`,
    `▞ pending ${formatBytes(pending)}`,
    `░ free ${formatBytes(free)}`,
    `· not taken ${formatBytes(rest)}`,
  ]
  return [barWidth < 10 ? limit : `${limit}  [${barOf(parts, whole, barWidth)}]`, ...wrapped(names, width)]
}

function countLines(pool: ServedStats, history: History, width: number): string[] {
  const { stats, outOfMemory } = pool
  const rate = history.rate(pool)
  return wrapped(
    [
      `buffers ${formatCount(stats.liveBuffers)}`,
      ...(rate === null ? [] : [`${formatCount(Math.round(rate))} allocations/s`]),
      `misses ${formatShare(missShare(stats))}`,
      `growths ${formatCount(stats.growths)}`,
      `waits ${formatCount(stats.insertedWaits)}`,
      `largest free ≥ ${formatBytes(stats.largestFreeBytes)}`,
      ...(outOfMemory === 0 ? [] : [`out of memory ${formatCount(outOfMemory)}`]),
    ],
    width,
  )
}

function tagLines(tags: NonNullable<ServedStats['tags']>, width: number): string[] {
  const rows = Object.entries(tags).sort(([, a], [, b]) => b.requestedBytes - a.requestedBytes)
  const most = rows[0]?.[1].requestedBytes ?? 0
  const texts = rows.map(
    ([tag, { requestedBytes }]) =>
      `${tag} ${formatBytes(requestedBytes)} ${'▇'.repeat(share(requestedBytes, most, 8))}`,
  )
  return wrapped(texts, width)
}

function curves({ name, stats }: ServedStats, history: History, width: number): string[] {
  const live = `in use    ${formatBytes(stats.liveBytes)}`
  const reserved = `reserved  ${formatBytes(stats.reservedBytes)}`
  const label = Math.max(live.length, reserved.length, 21)
  const room = width - label - 1
  if (room < 4) return [live, reserved]
  const most = Math.max(...history.of(name, 'reserved'), 1)
  const line = (text: string, values: readonly number[]) =>
    `${text.padEnd(label)} ${values.map(value => SPARKS[Math.min(7, Math.floor((value / most) * 8))]).join('')}`
  return [line(live, history.of(name, 'live').slice(-room)), line(reserved, history.of(name, 'reserved').slice(-room))]
}

/** A part with any bytes has at least one letter, as long as there is room. */
function barOf(parts: readonly number[], whole: number, width: number): string {
  let text = ''
  let sum = 0
  for (const [index, part] of parts.entries()) {
    sum += part
    const end = Math.round((sum / whole) * width)
    const letters = Math.max(end - text.length, part > 0 && index < parts.length - 1 ? 1 : 0)
    text += '█▓▒▞░·'[index].repeat(Math.min(letters, width - text.length))
  }
  return text.padEnd(width, '·')
}

/** Bytes of each stream's blocks. */
function streamLines(snapshot: PoolSnapshot, numbers: StreamNumbers, width: number): string[] {
  return numbers
    .bytesIn(snapshot)
    .flatMap(({ stream, live, cached, pending }) =>
      wrapped(
        [
          `stream ${stream}`,
          `in use ${formatBytes(live)}`,
          `cached ${formatBytes(cached)}`,
          `pending ${formatBytes(pending)}`,
        ],
        width,
      ),
    )
}

/** The largest live buffers. */
function largestLines({ ranges }: PoolSnapshot): string[] {
  return ranges
    .flatMap(({ blocks }) => blocks)
    .filter(({ state }) => state === 'live')
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, MOST_ROWS)
    .map(({ ptr, bytes }) => `live ${formatBytes(bytes).padStart(11)} at 0x${ptr.toString(16)}`)
}

function share(value: number, most: number, letters: number): number {
  return value === 0 ? 0 : Math.max(1, Math.round((value / most) * letters))
}

/** Texts beside each other, on as many lines as they need. */
function wrapped(texts: readonly string[], width: number): string[] {
  const lines: string[] = []
  for (const text of texts) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + SEPARATOR.length + text.length <= width)
      lines[lines.length - 1] = last + SEPARATOR + text
    else lines.push(text)
  }
  return lines
}
