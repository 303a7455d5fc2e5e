// The axes of a picture: bytes upwards, events or time to the right.

import { formatBytes } from '../../../core/base/bytes.js'
import type { Axis } from '../moments.js'
import type { Plot, Surface } from './surface.js'
import type { Theme } from './theme.js'

/** Pixels from one label of the lower axis to the next, at least. */
const LABEL_WIDTH = 110

/** Draws lines at round numbers of bytes, about `count` up to `top`, with labels at their left. */
export function drawByteAxis(surface: Surface, plot: Plot, top: number, theme: Theme, count: number): void {
  for (const bytes of byteTicks(top, count)) {
    const y = plot.top + plot.height * (1 - bytes / top)
    if (y < plot.top - 1) continue
    surface.line(plot.left, Math.round(y) + 0.5, plot.left + plot.width, Math.round(y) + 0.5, theme.grid)
    surface.text(plot.left - 8, Math.min(plot.top + plot.height - 4, y), formatBytes(bytes), theme.quiet, {
      align: 'right',
    })
  }
}

/** Draws the lower axis of a view with its labels. */
export function drawLowerAxis(
  surface: Surface,
  plot: Plot,
  { axis, from, to }: { readonly axis: Axis; readonly from: number; readonly to: number },
  theme: Theme,
): void {
  const { places, step } = ticksOf(from, to, plot.width / LABEL_WIDTH)
  const bottom = plot.top + plot.height
  for (const place of places) {
    const x = plot.left + ((place - from) / (to - from)) * plot.width
    surface.line(x, bottom, x, bottom + 4, theme.quiet)
    surface.text(x, bottom + 16, axisLabel(axis, place, step), theme.quiet, { align: alignAt(x, plot) })
  }
  surface.line(plot.left, bottom + 0.5, plot.left + plot.width, bottom + 0.5, theme.quiet)
}

/** A label of the axis at `place`, of a view that has labels `step` apart. */
function axisLabel(axis: Axis, place: number, step: number): string {
  if (axis === 'event') return place.toLocaleString('en-US')
  const [unit, size] = step >= 1e6 ? ['s', 1e6] : step >= 1e3 ? ['ms', 1e3] : ['µs', 1]
  return `${Number((place / (size as number)).toFixed(3)).toLocaleString('en-US')} ${unit}`
}

/** About `count` round places from `from` to `to`. */
function ticksOf(from: number, to: number, count: number): { places: number[]; step: number } {
  const wanted = (to - from) / Math.max(1, count)
  const power = 10 ** Math.floor(Math.log10(wanted))
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= wanted) ?? 10 * power
  const places: number[] = []
  for (let i = Math.ceil(from / step); i * step <= to; i++) places.push(i * step)
  return { places, step }
}

/** About `count` round byte counts up to `top`. */
export function byteTicks(top: number, count: number): number[] {
  const unit = 2 ** (10 * Math.floor(Math.log2(Math.max(1, top)) / 10))
  const { places } = ticksOf(0, top / unit, count)
  return places.map(place => place * unit)
}

function alignAt(x: number, { left, width }: Plot): 'left' | 'center' | 'right' {
  if (x < left + 24) return 'left'
  return x > left + width - 30 ? 'right' : 'center'
}
