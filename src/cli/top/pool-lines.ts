// The details of a pool in `top`.

import { formatBytes } from '../../core/base/bytes.js'
import type { PoolSnapshot } from '../../core/pool/caching/snapshot.js'
import { type MemoryParts, partsOf, type StreamBytes } from '../../live/memory-parts.js'
import { missShare, type ServedStats } from '../../live/process-stats.js'
import { formatCount, formatShare } from '../../recordings/report/number-format.js'
import { flow, type Line, type Span, span, type Tone } from './styled-lines.js'
import type { History, ServedSnapshots, Shown } from './top-model.js'

const MOST_ROWS = 10
const LEAST_BAR = 10
const SPARKS = '▁▂▃▄▅▆▇█'
/** The parts of a bar, in their order. */
const LETTERS: readonly (readonly [part: keyof MemoryParts, letter: string, tone: Tone, name: string])[] = [
  ['requested', '█', 'live', 'asked for'],
  ['rounding', '▓', 'live', 'rounding'],
  ['cached', '▒', 'cached', 'cached'],
  ['pending', '▞', 'pending', 'pending'],
  ['free', '░', 'plain', 'free'],
]
/** Columns of the bytes of a stream. */
const BYTES_COLUMNS = 9
const STREAM_COLUMNS = 6

export interface Details {
  readonly history: History
  readonly shown: Shown
  readonly snapshots: ServedSnapshots | null
}

export function poolLines(pool: ServedStats, { history, shown, snapshots }: Details, width: number): Line[] {
  const { name, kind, device, tags } = pool
  const snapshot = snapshots?.pools.find(each => each.name === name)?.snapshot
  return [
    ...flow([span(`pool ${name}`, 'strong'), span(kind), span(`device ${device}`)], width),
    ...memoryLines(pool, width),
    ...curves(pool, history, width),
    ...countLines(pool, history, width),
    ...(tags !== null && shown.tags ? tagLines(tags, width) : []),
    ...(snapshot !== undefined && shown.streams ? streamLines(history.streams.bytesIn(snapshot), width) : []),
    ...(snapshot !== undefined && shown.live ? largestLines(snapshot) : []),
  ]
}

/**
 * The parts of a pool's memory, of `whole` bytes in `width` letters. A part with any bytes has at least one letter, as
 * long as there is room.
 */
export function barOf(parts: MemoryParts, whole: number, width: number): Span[] {
  const spans: Span[] = []
  let [sum, used] = [0, 0]
  for (const [part, letter, tone] of LETTERS) {
    sum += parts[part]
    const letters = Math.max(Math.round((sum / whole) * width) - used, parts[part] > 0 ? 1 : 0)
    const text = letter.repeat(Math.min(letters, width - used))
    used += text.length
    spans.push(span(text, tone))
  }
  return [...spans, span('·'.repeat(width - used), 'quiet')]
}

/** `1023 MiB`, `1.25 GiB`: at most eight letters. */
export function shortBytes(bytes: number): string {
  const [amount, unit] = formatBytes(bytes).split(' ')
  return `${Number(Number(amount).toPrecision(3))} ${unit}`
}

/** The bar of all memory that the pool may have, and its parts. */
function memoryLines(pool: ServedStats, width: number): Line[] {
  const { maxPoolBytes, peakReservedBytes, reservedBytes } = pool.stats
  const whole = maxPoolBytes ?? Math.max(peakReservedBytes, reservedBytes, 1)
  const parts = partsOf(pool)
  const limit = maxPoolBytes === null ? `peak      ${formatBytes(whole)}` : `limit     ${formatBytes(whole)}`
  const barWidth = width - limit.length - 4
  const names = LETTERS.map(([part, letter, tone, name]) => span(`${letter} ${name} ${formatBytes(parts[part])}`, tone))
  const rest = span(`· not taken ${formatBytes(Math.max(0, whole - reservedBytes))}`)
  const bar = barWidth < LEAST_BAR ? [] : [span('  ['), ...barOf(parts, whole, barWidth), span(']')]
  return [[span(limit), ...bar], ...flow([...names, rest], width)]
}

function countLines(pool: ServedStats, history: History, width: number): Line[] {
  const { stats } = pool
  const rate = history.rate(pool)
  const counts = [
    `buffers ${formatCount(stats.liveBuffers)}`,
    ...(rate === null ? [] : [`${formatCount(Math.round(rate))} allocations/s`]),
    `misses ${formatShare(missShare(stats))}`,
    `growths ${formatCount(stats.growths)}`,
    `waits ${formatCount(stats.insertedWaits)}`,
    `largest free ≥ ${formatBytes(stats.largestFreeBytes)}`,
  ]
  return flow(
    counts.map(text => span(text)),
    width,
  )
}

function tagLines(tags: NonNullable<ServedStats['tags']>, width: number): Line[] {
  const rows = Object.entries(tags).sort(([, a], [, b]) => b.requestedBytes - a.requestedBytes)
  const most = rows[0]?.[1].requestedBytes ?? 0
  const texts = rows.map(([tag, { requestedBytes }]) => {
    const letters = requestedBytes === 0 ? 0 : Math.max(1, Math.round((requestedBytes / most) * 8))
    return span(`${tag} ${formatBytes(requestedBytes)} ${'▇'.repeat(letters)}`)
  })
  return flow(texts, width)
}

/** The bytes in use and reserved over time, and marks where requests were refused. */
function curves({ name, stats, outOfMemory }: ServedStats, history: History, width: number): Line[] {
  const live = `in use    ${formatBytes(stats.liveBytes)}`
  const reserved = `reserved  ${formatBytes(stats.reservedBytes)}`
  const refused = `out of memory ${formatCount(outOfMemory)}`
  const label = Math.max(live.length, reserved.length, refused.length, 21)
  const room = Math.max(0, width - label - 1)
  const most = Math.max(...history.of(name, 'reserved'), 1)
  const spark = (value: number) => SPARKS[Math.min(7, Math.floor((value / most) * 8))]
  const curve = (text: string, figure: 'live' | 'reserved', tone: Tone) => {
    const letters = room === 0 ? [] : history.of(name, figure).slice(-room).map(spark)
    return [span(letters.length === 0 ? text : `${text.padEnd(label)} `), span(letters.join(''), tone)]
  }
  const lines: Line[] = [curve(live, 'live', 'live'), curve(reserved, 'reserved', 'plain')]
  if (outOfMemory === 0) return lines
  const marks = room === 0 ? [] : history.of(name, 'refused').slice(-room)
  return [...lines, [span(`${refused.padEnd(label)} ${marks.map(count => (count > 0 ? '!' : ' ')).join('')}`, 'alarm')]]
}

/** Bytes of each stream's blocks, in as many columns as there is room for. */
function streamLines(rows: readonly StreamBytes[], width: number): Line[] {
  const head = `stream${['in use', 'cached', 'pending'].map(name => name.padStart(BYTES_COLUMNS)).join('')}`
  const cell = ({ stream, live, cached, pending }: StreamBytes): Line => {
    const text = (bytes: number) => shortBytes(bytes).padStart(BYTES_COLUMNS)
    const number = String(stream).padEnd(STREAM_COLUMNS)
    return [span(number + text(live) + text(cached)), span(text(pending), pending > 0 ? 'pending' : 'plain')]
  }
  const columns = Math.min(rows.length, Math.max(1, Math.floor((width + 3) / (head.length + 3))))
  const height = Math.ceil(rows.length / columns)
  const heads = Array.from({ length: Math.ceil(rows.length / height) }, () => head)
  return [
    [span(heads.join('   '), 'quiet')],
    ...Array.from({ length: height }, (_, row) =>
      heads.flatMap((_head, column) => {
        const stream = rows[column * height + row]
        return stream === undefined ? [] : [...(column === 0 ? [] : [span('   ')]), ...cell(stream)]
      }),
    ),
  ]
}

/** The largest live buffers. */
function largestLines({ ranges }: PoolSnapshot): Line[] {
  return ranges
    .flatMap(({ blocks }) => blocks)
    .filter(({ state }) => state === 'live')
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, MOST_ROWS)
    .map(({ ptr, bytes }) => [span(`live ${formatBytes(bytes).padStart(11)} at 0x${ptr.toString(16)}`)])
}
