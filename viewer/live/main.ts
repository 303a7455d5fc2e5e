// The live page: curves, tags and the address map of the pools of a running process. It asks only the server that it
// came from, and texts enter the page as text.

import uPlot from 'uplot'
import type { PoolSnapshot } from '../../src/core/pool/caching/snapshot.js'
import { type StreamBytes, StreamNumbers } from '../../src/live/memory-parts.js'
import { missShare, type ProcessStats, type ServedStats } from '../../src/live/process-stats.js'
import { byId, element } from '../elements.js'
import { formatBytes, formatCount, formatShare } from '../text.js'
import { Cell, mapCells } from './address-map.js'

const MOST_POINTS = 1200
const SNAPSHOT_MS = 1000
const EVENTS_MS = 250
/** A process that sends no event for so long is silent. */
const SILENT_MS = 2000
const CURVE_HEIGHT = 200
const MAP_ROWS = 12
const COLOURS: Readonly<Record<number, string>> = {
  [Cell.live]: '--asked',
  [Cell.cached]: '--cached',
  [Cell.pending]: '--pending',
  [Cell.free]: '--free',
}

const query = location.search
const at = (path: string, more = '') => `${path}${query}${more === '' ? '' : `${query === '' ? '?' : '&'}${more}`}`
const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** The part of the page about one pool. */
class PoolCard {
  readonly section = element('section')
  private readonly figures = element('dl')
  private readonly tags = element('div')
  private readonly map = element('canvas', { class: 'map', role: 'img' })
  private readonly mapPart = element('div')
  private readonly streams = element('div')
  private readonly curve = element('div')
  private readonly data: [number[], number[], number[]] = [[], [], []]
  private plot: uPlot | null = null
  private last: ServedStats | null = null
  private lastMs = 0

  constructor(readonly name: string) {
    this.section.setAttribute('aria-label', `pool ${name}`)
    const legend = [
      ['asked', 'in use'],
      ['cached', 'cached'],
      ['pending', 'freed, work may still run'],
      ['free', 'obtained and unused'],
    ].map(([kind, text]) => element('li', {}, element('i', { class: kind }), text))
    this.mapPart.append(
      element('h3', {}, 'Addresses now, without those that have no memory'),
      this.map,
      element('ul', { class: 'legend' }, ...legend),
    )
    this.mapPart.hidden = true
    this.section.append(element('h2', {}, name), this.curve, this.figures, this.tags, this.mapPart, this.streams)
  }

  show(pool: ServedStats, timeMs: number): void {
    const { stats } = pool
    const [times, live, reserved] = this.data
    times.push(timeMs / 1000)
    live.push(stats.liveBytes)
    reserved.push(stats.reservedBytes)
    if (times.length > MOST_POINTS) for (const column of this.data) column.shift()
    this.plot ??= this.newPlot()
    this.plot.setData(this.data)
    const seconds = (timeMs - this.lastMs) / 1000
    const rate = this.last === null ? 0 : (stats.allocations - this.last.stats.allocations) / seconds
    this.fill([
      ['in use', formatBytes(stats.liveBytes)],
      ['reserved', formatBytes(stats.reservedBytes)],
      ['limit', stats.maxPoolBytes === null ? 'none' : formatBytes(stats.maxPoolBytes)],
      ['cached', formatBytes(stats.cachedBytes)],
      ['pending', formatBytes(stats.pendingBytes)],
      ['largest free at least', formatBytes(stats.largestFreeBytes)],
      ['buffers', formatCount(stats.liveBuffers)],
      ['allocations a second', formatCount(Math.round(rate))],
      ['misses', formatShare(missShare(stats))],
      ['growths', formatCount(stats.growths)],
      ['waits', formatCount(stats.insertedWaits)],
      ['out of memory', formatCount(pool.outOfMemory)],
    ])
    this.showTags(pool)
    this.last = pool
    this.lastMs = timeMs
  }

  /** The memory that the pool has, row by row from the lowest address on. */
  showMap(snapshot: PoolSnapshot): void {
    this.mapPart.hidden = false
    const columns = Math.max(1, Math.floor(this.map.clientWidth / 2))
    const { cells, bytes } = mapCells(snapshot, columns * MAP_ROWS)
    this.map.width = columns
    this.map.height = MAP_ROWS
    this.map.style.imageRendering = 'pixelated'
    this.map.setAttribute('aria-label', `address map of ${formatBytes(bytes)}; the figures above add it up`)
    const context = this.map.getContext('2d')!
    for (const [state, name] of Object.entries(COLOURS)) {
      context.fillStyle = colour(name)
      for (let cell = 0; cell < cells.length; cell++) {
        if (cells[cell] === Number(state)) context.fillRect(cell % columns, Math.floor(cell / columns), 1, 1)
      }
    }
  }

  showStreams(rows: readonly StreamBytes[]): void {
    const table = element('table', { class: 'streams' }, headOf(['stream', 'in use', 'cached', 'pending']))
    for (const { stream, live, cached, pending } of rows) {
      const cells = [live, cached, pending].map(bytes => element('td', {}, formatBytes(bytes)))
      table.append(element('tr', {}, element('th', { scope: 'row' }, String(stream)), ...cells))
    }
    this.streams.replaceChildren(...(rows.length === 0 ? [] : [element('h3', {}, 'By stream'), table]))
  }

  resize(): void {
    this.plot?.setSize({ width: this.curve.clientWidth, height: CURVE_HEIGHT })
  }

  private newPlot(): uPlot {
    const bytes = (_: uPlot, values: number[]) => values.map(value => formatBytes(value))
    const clock = (_: uPlot, times: number[]) => times.map(clockTime)
    const points = { show: false }
    const axis = { stroke: () => colour('--quiet'), grid: { stroke: () => colour('--line'), width: 1 } }
    const value = (_: uPlot, bytesThen: number | null) => (bytesThen === null ? '–' : formatBytes(bytesThen))
    return new uPlot(
      {
        width: this.curve.clientWidth,
        height: CURVE_HEIGHT,
        scales: { y: { range: (_plot, _least, most) => [0, Math.max(most, 1) * 1.05] } },
        axes: [
          { ...axis, values: clock, space: 90 },
          { ...axis, values: bytes, size: 90, incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) },
        ],
        series: [
          { value: (_, seconds) => (seconds === null ? '–' : clockTime(seconds)) },
          { label: 'in use', stroke: () => colour('--asked'), width: 2, points, value },
          { label: 'reserved', stroke: () => colour('--reserved'), width: 1, points, value },
        ],
      },
      this.data,
      this.curve,
    )
  }

  private fill(rows: readonly (readonly [string, string])[]): void {
    this.figures.replaceChildren(
      ...rows.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))),
    )
  }

  private showTags({ tags }: ServedStats): void {
    if (tags === null) return
    const rows = Object.entries(tags).sort(([, a], [, b]) => b.requestedBytes - a.requestedBytes)
    const most = Math.max(1, rows[0]?.[1].requestedBytes ?? 0)
    const table = element('table')
    for (const [tag, { requestedBytes, liveBuffers }] of rows) {
      const bar = element('i', { class: 'bar' })
      bar.style.width = `${(requestedBytes / most) * 100}%`
      table.append(
        element(
          'tr',
          {},
          element('th', { scope: 'row' }, tag),
          element('td', { class: 'bytes' }, formatBytes(requestedBytes)),
          element('td', { class: 'bars' }, bar),
          element('td', {}, `${liveBuffers} buffers`),
        ),
      )
    }
    this.tags.replaceChildren(element('h3', {}, 'By tag'), table)
  }
}

function headOf(names: readonly string[]): HTMLElement {
  return element('tr', {}, ...names.map(name => element('th', { scope: 'col' }, name)))
}

function clockTime(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString('en-GB')
}

const cards = new Map<string, PoolCard>()
const streams = new StreamNumbers()
let isPaused = false

function showStats(stats: ProcessStats): void {
  byId('process').textContent = [
    `pid ${stats.pid}`,
    ...stats.devices.map(({ ordinal, name }) => `device ${ordinal}: ${name}`),
    stats.command,
  ].join(' · ')
  byId('state').textContent = stats.pools.length === 0 ? 'No pool is open now.' : ''
  for (const pool of stats.pools) {
    let card = cards.get(pool.name)
    if (card === undefined) {
      card = new PoolCard(pool.name)
      cards.set(pool.name, card)
      byId('pools').append(card.section)
    }
    card.show(pool, stats.timeMs)
  }
  for (const [name, card] of cards) {
    if (stats.pools.some(pool => pool.name === name)) continue
    card.section.remove()
    cards.delete(name)
  }
}

async function askSnapshots(): Promise<void> {
  if (!isPaused && !document.hidden) {
    try {
      const response = await fetch(at('/snapshot'))
      const { pools = [] } = (await response.json()) as { pools?: { name: string; snapshot: PoolSnapshot }[] }
      for (const { name, snapshot } of pools) {
        cards.get(name)?.showMap(snapshot)
        cards.get(name)?.showStreams(streams.bytesIn(snapshot))
      }
    } catch {
      // The process has ended; the events say so.
    }
  }
  setTimeout(askSnapshots, SNAPSHOT_MS)
}

let answeredMs = performance.now()
let isSilent = false

/** Says so if the process does not answer, and how long ago it did. */
function showSilence(isBroken: boolean): void {
  const ms = performance.now() - answeredMs
  const before = isSilent
  isSilent = isBroken || ms >= SILENT_MS
  document.body.classList.toggle('silent', isSilent)
  byId('age').textContent = isSilent ? `Last answer ${Math.floor(ms / 1000)} s ago.` : ''
  if (isSilent === before) return
  byId('state').textContent = isSilent
    ? 'The process does not answer: it is stopped, is busy, or has ended. The page goes on when it answers.'
    : ''
}

const events = new EventSource(at('/events', `ms=${EVENTS_MS}`))
events.onmessage = ({ data }) => {
  answeredMs = performance.now()
  showSilence(false)
  if (!isPaused) showStats(JSON.parse(data))
}
events.onerror = () => showSilence(true)
setInterval(() => showSilence(events.readyState !== EventSource.OPEN && isSilent), EVENTS_MS)
byId('pause').onclick = () => {
  isPaused = !isPaused
  byId('pause').setAttribute('aria-pressed', String(isPaused))
}
addEventListener('resize', () => {
  for (const card of cards.values()) card.resize()
})
void askSnapshots()
