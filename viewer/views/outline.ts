// Marks the selected block in the pictures.

import type { Plot, Surface } from '../../src/recordings/picture/drawing/surface.js'
import type { Theme } from '../../src/recordings/picture/drawing/theme.js'
import type { PaintAnswer } from '../protocol.js'

/** Pixels of the shortest life, so that it is seen. */
const LEAST_WIDTH = 3

/** A part of a picture's width, in pixels. */
export interface Span {
  readonly left: number
  readonly width: number
}

/** Draws its life on the lower axis. */
export function drawLife(surface: Surface, plot: Plot, life: Span, theme: Theme): void {
  const { left, width } = within(plot, life)
  if (width > 0) surface.rectangle(left, plot.top + plot.height - 1, width, 4, theme.ink)
}

/** Draws a line around its band in a painting of the stacked blocks, which lies at `place`. */
export function drawBand(surface: Surface, plot: Plot, painted: PaintAnswer, place: Span, theme: Theme): void {
  const bands = painted.outline?.bands
  if (bands === undefined) return
  const height = painted.rows
  const [upper, lower]: [number[], number[]] = [[], []]
  const scale = place.width / painted.view.width
  for (let column = 0; column < painted.event.length; column++) {
    if (bands[2 * column] < 0) continue
    const [x, end] = [0, 1].map(i => clamped(plot, place.left + painted.left[column + i] * scale))
    const [bottom, top] = [0, 1].map(i => plot.top + plot.height * (1 - bands[2 * column + i] / height))
    upper.push(x, top, end, top)
    lower.unshift(end, bottom, x, bottom)
  }
  drawLoop(surface, [...upper, ...lower], theme)
}

/** Draws lines around the runs of its addresses; `units` is the height of the map. */
export function drawRuns(
  surface: Surface,
  plot: Plot,
  runs: Float64Array | undefined,
  { life, units, theme }: { readonly life: Span; readonly units: number; readonly theme: Theme },
): void {
  const { left, width } = within(plot, life)
  if (runs === undefined || width <= 0) return
  for (let i = 0; i < runs.length; i += 2) {
    const bottom = plot.top + plot.height * (1 - runs[i] / units)
    const top = Math.min(bottom - 1, bottom - (plot.height * runs[i + 1]) / units)
    drawLoop(surface, [left, top, left + width, top, left + width, bottom, left, bottom], theme)
  }
}

/** Draws a line around the place at the cursor that keys have reached. */
export function drawPlace(
  surface: Surface,
  plot: Plot,
  { x, from, to, top }: { readonly x: number; readonly from: number; readonly to: number; readonly top: number },
  theme: Theme,
): void {
  const [lower, upper] = [from, Math.min(to, top)].map(bytes => plot.top + plot.height * (1 - bytes / top))
  const [left, right] = [clamped(plot, x - 5), clamped(plot, x + 5)]
  drawLoop(surface, [left, upper, right, upper, right, lower, left, lower], theme)
}

/** A closed line that is seen on light and on dark areas. */
function drawLoop(surface: Surface, points: readonly number[], theme: Theme): void {
  const closed = [...points, ...points.slice(0, 4)]
  surface.path(closed, theme.paper, 4)
  surface.path(closed, theme.ink, 2)
}

function clamped(plot: Plot, x: number): number {
  return Math.min(plot.left + plot.width, Math.max(plot.left, x))
}

function within(plot: Plot, { left, width }: Span): Span {
  const start = clamped(plot, left)
  const end = clamped(plot, left + width)
  const isIn = left < plot.left + plot.width && left + width > plot.left
  return { left: start, width: isIn ? Math.max(LEAST_WIDTH, end - start) : 0 }
}
