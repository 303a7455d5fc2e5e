// Names at the right ends of lines, without overlaps.

import type { Plot, Surface } from './surface.js'
import type { Theme } from './theme.js'

/** Pixels from the plot to the names. */
const GAP = 9

export interface LineEnd {
  /** where the line ends, in pixels */
  readonly y: number
  readonly text: string
  readonly colour: string
  readonly isBold: boolean
}

/** Writes the names right of the plot, each joined to its line. */
export function drawLineEnds(surface: Surface, plot: Plot, ends: readonly LineEnd[], theme: Theme): void {
  const right = plot.left + plot.width
  const sorted = [...ends].sort((a, b) => a.y - b.y)
  const places = apart(
    sorted.map(({ y }) => y),
    plot.top + plot.height,
    surface.lineHeight,
  )
  for (const [i, { y, text, colour, isBold }] of sorted.entries()) {
    surface.line(right, y, right + GAP - 2, places[i], colour)
    surface.text(right + GAP, places[i], text, theme.ink, { bold: isBold })
  }
}

/** Places from the top down, at least `distance` apart and near to the wanted ones; the last is at most at `bottom`. */
export function apart(wanted: readonly number[], bottom: number, distance: number): number[] {
  const places = [...wanted]
  for (let i = 1; i < places.length; i++) places[i] = Math.max(places[i], places[i - 1] + distance)
  for (let i = places.length - 1, most = bottom; i >= 0; i--, most = places[i + 1] - distance) {
    places[i] = Math.min(places[i], most)
  }
  return places
}
