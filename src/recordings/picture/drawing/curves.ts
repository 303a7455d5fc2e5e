// The curves of a recording: memory in use as an area, and what each policy reserved as a line.

import type { Moments } from '../moments.js'
import { drawByteAxis } from './axes.js'
import { drawLineEnds, type LineEnd } from './line-ends.js'
import type { Plot, Surface } from './surface.js'
import { policyColour, policyLine, type Theme } from './theme.js'

/** Room above the highest line. */
const HEADROOM = 1.06

/** The memory that a policy reserved, and the name of its line at the right end. */
export interface CurveLine {
  readonly policy: string
  readonly name: string
  readonly reserved: Float64Array
}

/** The lines to draw. All arrays have a value for each column of `left`. */
export interface Curves extends Pick<Moments, 'left'> {
  readonly inUse: Float64Array
  readonly lines: readonly CurveLine[]
  /** no policy can do with less */
  readonly leastBytes: number
}

/** Draws the curves with their byte axis. */
export function drawCurves(surface: Surface, plot: Plot, curves: Curves, theme: Theme): void {
  const { left, inUse, lines, leastBytes } = curves
  let most = leastBytes
  // Columns before the first event have no figure.
  for (const { reserved } of lines) for (const bytes of reserved) if (bytes > most) most = bytes
  const top = most * HEADROOM || 1
  drawByteAxis(surface, plot, top, theme, 4)
  const y = (bytes: number) => plot.top + plot.height * (1 - bytes / top)
  const scale = plot.width / (left.at(-1) || 1)
  const area = stairs(curves, inUse, plot.left, scale, y)
  surface.path([plot.left, y(0), ...area, plot.left + plot.width, y(0)], theme.inUse, 'fill')
  const ends: LineEnd[] = []
  const widthOf = ({ policy }: CurveLine) => policyLine(policy).width
  for (const { policy, name, reserved } of [...lines].sort((a, b) => widthOf(a) - widthOf(b))) {
    const [line, colour] = [stairs(curves, reserved, plot.left, scale, y), policyColour(policy, theme)]
    const { width, dash } = policyLine(policy)
    surface.path(line, colour, width, dash)
    if (line.length > 0) ends.push({ y: line[line.length - 1], text: name, colour, isBold: dash.length === 0 })
  }
  const least = y(leastBytes)
  surface.line(plot.left, least, plot.left + plot.width, least, theme.ink, [2, 4])
  drawLineEnds(surface, plot, ends, theme)
}

/** A value for each column, as a line with steps. */
function stairs(
  { left }: Pick<Moments, 'left'>,
  values: Float64Array,
  start: number,
  scale: number,
  y: (bytes: number) => number,
): number[] {
  const points: number[] = []
  let before = Number.NaN
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i]) || values[i] === before) continue
    const x = start + left[i] * scale
    if (!Number.isNaN(before)) points.push(x, y(before))
    points.push(x, y(values[i]))
    before = values[i]
  }
  if (!Number.isNaN(before)) points.push(start + (left.at(-1) ?? 0) * scale, y(before))
  return points
}
