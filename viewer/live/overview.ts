// All pools of the process: the sum of those in device memory, and a line with a bar for each, all bars of one scale.

import { partsOf } from '../../src/live/memory-parts.js'
import type { ServedStats } from '../../src/live/process-stats.js'
import { element } from '../elements.js'
import { formatBytes, formatCount } from '../text.js'
import { Bar, legendOfUses } from './bar.js'

const TITLES = ['in use', 'reserved', 'limit', 'pending', 'out of memory', 'waits']
const REFUSED = TITLES.indexOf('out of memory')

/** A row whose elements stay, so that a link in it keeps the focus. */
class Row {
  readonly bar = new Bar()
  readonly row: HTMLElement
  private readonly cells = TITLES.map(title => element('td', { class: title.replaceAll(' ', '-') }))

  constructor(name: Node | string) {
    const bars = element('td', { class: 'bars' }, this.bar.track)
    this.row = element('tr', {}, element('th', { scope: 'row' }, name), bars, ...this.cells)
  }

  show(texts: readonly string[], refused: number): void {
    for (const [index, text] of texts.entries()) this.cells[index].textContent = text
    this.cells[REFUSED].classList.toggle('alarm', refused > 0)
  }
}

export class Overview {
  readonly section = element('section', { class: 'overview', 'aria-label': 'all pools' })
  private readonly sum = new Row('device memory')
  private readonly rows = new Map<string, Row>()
  private readonly body = element('tbody')
  private readonly scale = element('th', { scope: 'col' })

  constructor() {
    const heads = TITLES.map(name => element('th', { scope: 'col', class: name.replaceAll(' ', '-') }, name))
    const head = element('tr', {}, element('th', { scope: 'col' }, 'pool'), this.scale, ...heads)
    this.sum.bar.track.hidden = true
    this.section.append(element('table', {}, element('thead', {}, head), this.body), legendOfUses())
  }

  /** `idOf` is the id of the part of the page about a pool. */
  show(pools: readonly ServedStats[], idOf: (name: string) => string): void {
    this.section.hidden = pools.length < 2
    const whole = Math.max(1, ...pools.map(({ stats }) => Math.max(stats.peakReservedBytes, stats.reservedBytes)))
    this.scale.textContent = `0 to ${formatBytes(whole)}`
    for (const pool of pools) {
      const { name, stats, outOfMemory } = pool
      const row = this.rows.get(name) ?? new Row(element('a', { href: `#${idOf(name)}` }, name))
      this.rows.set(name, row)
      const { requested, rounding, cached, pending, free } = partsOf(pool)
      row.bar.show({ asked: requested + rounding, cached, pending, free }, whole)
      const limit = stats.maxPoolBytes === null ? 'none' : formatBytes(stats.maxPoolBytes)
      row.show(textsOf([pool], limit), outOfMemory)
    }
    const names = new Set(pools.map(({ name }) => name))
    for (const name of this.rows.keys()) if (!names.has(name)) this.rows.delete(name)
    const onDevice = pools.filter(({ kind }) => kind !== 'host')
    this.sum.show(textsOf(onDevice, ''), refusedBy(onDevice))
    const rows = [this.sum, ...pools.map(({ name }) => this.rows.get(name)!)].map(({ row }) => row)
    const isSame = rows.length === this.body.children.length && rows.every((row, at) => this.body.children[at] === row)
    if (!isSame) this.body.replaceChildren(...rows)
  }
}

function refusedBy(pools: readonly ServedStats[]): number {
  return pools.reduce((total, { outOfMemory }) => total + outOfMemory, 0)
}

function textsOf(pools: readonly ServedStats[], limit: string): string[] {
  const sum = (figure: 'liveBytes' | 'reservedBytes' | 'pendingBytes' | 'insertedWaits') =>
    pools.reduce((total, { stats }) => total + stats[figure], 0)
  return [
    formatBytes(sum('liveBytes')),
    formatBytes(sum('reservedBytes')),
    limit,
    formatBytes(sum('pendingBytes')),
    formatCount(refusedBy(pools)),
    formatCount(sum('insertedWaits')),
  ]
}
