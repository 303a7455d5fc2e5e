// The part of the live page about one pool: curves, figures, tags, addresses and streams.

import type { PoolSnapshot } from '../../src/core/pool/caching/snapshot.js'
import type { StreamBytes } from '../../src/live/memory-parts.js'
import { missShare, type ServedStats } from '../../src/live/process-stats.js'
import { element } from '../elements.js'
import { formatBytes, formatCount, formatShare } from '../text.js'
import { Cell, mapCells } from './address-map.js'
import { Bar, legendOfUses } from './bar.js'
import { colour, PoolChart } from './chart.js'

const MAP_ROWS = 12
const COLOURS: Readonly<Record<number, string>> = {
  [Cell.live]: '--asked',
  [Cell.cached]: '--cached',
  [Cell.pending]: '--pending',
  [Cell.free]: '--free',
}

/** The part of the page about one pool. */
export class PoolCard {
  readonly section = element('section')
  private readonly figures = element('dl')
  private readonly tags = element('div')
  private readonly map = element('canvas', { class: 'map', role: 'img' })
  private readonly mapPart = element('div')
  private readonly streams = element('div')
  private readonly chart = new PoolChart()
  private last: ServedStats | null = null
  private lastMs = 0

  constructor(
    name: string,
    readonly id: string,
  ) {
    this.section.id = id
    this.section.setAttribute('aria-label', `pool ${name}`)
    this.mapPart.append(element('h3', {}, 'Addresses now, without those that have no memory'), this.map, legendOfUses())
    this.mapPart.hidden = true
    this.section.append(element('h2', {}, name), this.chart.part, this.figures, this.tags, this.mapPart, this.streams)
  }

  /** Shows the figures; returns how many requests were refused since the last ones. */
  show(pool: ServedStats, timeMs: number): number {
    const { stats } = pool
    this.chart.add(pool, timeMs)
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
    this.figures.lastElementChild!.classList.toggle('alarm', pool.outOfMemory > 0)
    this.showTags(pool)
    const refused = this.last === null ? 0 : pool.outOfMemory - this.last.outOfMemory
    this.last = pool
    this.lastMs = timeMs
    return refused
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
    const most = Math.max(...rows.map(({ live, cached, pending }) => live + cached + pending))
    const items = rows.map(({ stream, live, cached, pending }) => {
      const bar = new Bar()
      bar.show({ asked: live, cached, pending }, most)
      const parts = [formatBytes(live)]
      if (cached > 0) parts.push(`cached ${formatBytes(cached)}`)
      if (pending > 0) parts.push(`pending ${formatBytes(pending)}`)
      return element('li', {}, element('b', {}, String(stream)), bar.track, element('span', {}, parts.join(' · ')))
    })
    const list = element('ul', { class: 'streams' }, ...items)
    this.streams.replaceChildren(...(rows.length === 0 ? [] : [element('h3', {}, 'In use by stream'), list]))
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
