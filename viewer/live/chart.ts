// The curves of a pool, with its limit as a line and each refused request as a mark.

import uPlot from 'uplot'
import type { ServedStats } from '../../src/live/process-stats.js'
import { element } from '../elements.js'
import { formatBytes } from '../text.js'

const MOST_POINTS = 1200
const HEIGHT = 200
/** A limit further up would flatten the curves, so the legend alone shows it. */
const MOST_LIMIT_RATIO = 4
/** Half the width of a mark, in CSS pixels. */
const MARK = 5
/** Steps of the time axis in seconds: labels show whole seconds. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600]

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim()
}

export function clockTime(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString('en-GB')
}

export class PoolChart {
  readonly part = element('div', { class: 'chart' })
  private readonly plotPart = element('div')
  private readonly values = {
    time: element('b'),
    live: element('b'),
    reserved: element('b'),
    limit: element('b'),
  }
  private readonly data: [number[], number[], number[]] = [[], [], []]
  /** the seconds of the points at which requests had been refused */
  private refusals: number[] = []
  private plot: uPlot | null = null
  private last: ServedStats | null = null

  constructor() {
    const names = { live: 'in use', reserved: 'reserved', limit: 'limit' } as const
    const keys = Object.entries(names).map(([key, text]) =>
      element('li', {}, element('i', { class: `line ${key}` }), text, ' ', this.values[key as keyof typeof names]),
    )
    const mark = element('li', {}, element('i', { class: 'mark' }), 'out of memory')
    const legend = element('ul', { class: 'legend' }, ...keys, mark, element('li', {}, this.values.time))
    this.part.append(this.plotPart, legend)
    new ResizeObserver(() => this.resize()).observe(this.plotPart)
  }

  add(pool: ServedStats, timeMs: number): void {
    const seconds = timeMs / 1000
    const [times, live, reserved] = this.data
    times.push(seconds)
    live.push(pool.stats.liveBytes)
    reserved.push(pool.stats.reservedBytes)
    if (times.length > MOST_POINTS) for (const column of this.data) column.shift()
    if (this.last !== null && pool.outOfMemory > this.last.outOfMemory) this.refusals.push(seconds)
    this.refusals = this.refusals.filter(each => each >= times[0])
    this.last = pool
    this.plot ??= this.newPlot()
    this.plot.setData(this.data)
    this.showValues()
  }

  private resize(): void {
    this.plot?.setSize({ width: this.plotPart.clientWidth, height: HEIGHT })
  }

  /** The values under the pointer. */
  private showValues(): void {
    const index = this.plot?.cursor.idx ?? null
    const [times, live, reserved] = this.data.map(column => (index === null ? null : column[index]))
    const { values } = this
    values.time.textContent = times === null ? '' : clockTime(times)
    values.live.textContent = live === null ? '' : formatBytes(live)
    values.reserved.textContent = reserved === null ? '' : formatBytes(reserved)
    const isAbove = (this.last?.stats.maxPoolBytes ?? null) !== null && this.shownLimit() === null
    values.limit.textContent = isAbove ? 'above the chart' : ''
  }

  /** The limit as the chart shows it; null without a limit, or above the chart. */
  private shownLimit(): number | null {
    const limit = this.last?.stats.maxPoolBytes ?? null
    const isNear = limit !== null && limit <= MOST_LIMIT_RATIO * Math.max(1, ...this.data[2])
    return isNear ? limit : null
  }

  private newPlot(): uPlot {
    const bytes = (_: uPlot, values: number[]) => values.map(value => formatBytes(value))
    const clock = (_: uPlot, times: number[]) => times.map(clockTime)
    const points = { show: false }
    const axis = { stroke: () => colour('--quiet'), grid: { stroke: () => colour('--line'), width: 1 } }
    return new uPlot(
      {
        width: this.plotPart.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        scales: { y: { range: (_plot, _least, most) => [0, Math.max(most, this.shownLimit() ?? 1) * 1.05] } },
        axes: [
          { ...axis, values: clock, space: 90, incrs: TIME_STEPS },
          { ...axis, values: bytes, size: 90, incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) },
        ],
        series: [
          {},
          { stroke: () => colour('--asked'), width: 2, points },
          { stroke: () => colour('--reserved'), width: 1, points },
        ],
        hooks: { draw: [plot => this.drawMarks(plot)], setCursor: [() => this.showValues()] },
      },
      this.data,
      this.plotPart,
    )
  }

  /** Lines lie on whole pixels, so that they are sharp. */
  private drawMarks(plot: uPlot): void {
    const { ctx, bbox } = plot
    ctx.save()
    ctx.lineWidth = devicePixelRatio
    ctx.strokeStyle = ctx.fillStyle = colour('--alarm')
    const limit = this.shownLimit()
    if (limit !== null) {
      const y = Math.round(plot.valToPos(limit, 'y', true)) + 0.5
      ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio])
      ctx.stroke(new Path2D(`M${bbox.left} ${y}h${bbox.width}`))
      ctx.setLineDash([])
    }
    const size = MARK * devicePixelRatio
    for (const seconds of this.refusals) {
      const x = Math.round(plot.valToPos(seconds, 'x', true)) + 0.5
      ctx.fill(new Path2D(`M${x - size} ${bbox.top}h${2 * size}l${-size} ${2 * size}z`))
      ctx.stroke(new Path2D(`M${x} ${bbox.top}v${bbox.height}`))
    }
    ctx.restore()
  }
}
