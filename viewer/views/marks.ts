// The marks of moments in a picture: steps, failed requests, the cursor, and the markers A and B. `x` gives the pixel
// of a place of the axis.

import { drawFailure, type LegendItem, lineItem } from '../../src/recordings/picture/drawing/legend.js'
import type { Plot, Surface } from '../../src/recordings/picture/drawing/surface.js'
import type { Theme } from '../../src/recordings/picture/drawing/theme.js'
import type { Page } from '../page.js'
import { formatCount } from '../text.js'

/** Pixels from one step to the next, at least: many lines side by side would hide the picture. */
const LEAST_STEP = 14
const STEP_DASH = [2, 3]

/** Draws the marks that the recording has. */
export function drawEvents(surface: Surface, plot: Plot, page: Page, x: (place: number) => number): void {
  const { info, theme } = page
  const bottom = plot.top + plot.height
  for (const step of stepsIn(plot, page, x)) surface.line(step, plot.top, step, bottom, theme.quiet, STEP_DASH)
  let marked = Number.NEGATIVE_INFINITY
  for (const event of info.failures) {
    const failure = x(page.at(event))
    // Failures in one pixel are one mark.
    if (!isIn(plot, failure) || failure < marked + 1) continue
    drawFailure(surface, failure, bottom, theme)
    marked = failure
  }
}

/** The ends of steps that are drawn. */
function stepsIn(plot: Plot, page: Page, x: (place: number) => number): number[] {
  const steps = [...page.info.steps].map(event => x(page.at(event + 1))).filter(each => isIn(plot, each))
  return steps.length < plot.width / LEAST_STEP ? steps : []
}

/** The lines of a picture for its legend in a file, except those that have a letter. */
export function markItems(
  plot: Plot,
  page: Page,
  { x, cursor }: { readonly x: (place: number) => number; readonly cursor: number },
): LegendItem[] {
  const steps = stepsIn(plot, page, x).length > 0 ? [lineItem('end of a step', ({ quiet }) => quiet, STEP_DASH)] : []
  const text = `cursor at event ${formatCount(page.state.cursor)}`
  return isIn(plot, cursor) ? [...steps, lineItem(text, cursorColour)] : steps
}

/** Draws the marks that the reader sets. The cursor of a picture is at pixel `cursor`. */
export function drawMarkers(
  surface: Surface,
  plot: Plot,
  page: Page,
  { x, cursor }: { readonly x: (place: number) => number; readonly cursor: number },
): void {
  const { state, theme } = page
  const bottom = plot.top + plot.height
  if (isIn(plot, cursor)) {
    surface.line(cursor, plot.top - 2, cursor, bottom, cursorColour(theme))
    surface.path([cursor - 4, plot.top - 7, cursor + 4, plot.top - 7, cursor, plot.top - 1], theme.ink, 'fill')
  }
  for (const [name, event] of [
    ['A', state.a],
    ['B', state.b],
  ] as const) {
    if (event === null || !isIn(plot, x(page.at(event)))) continue
    const at = x(page.at(event))
    surface.line(at, plot.top, at, bottom, theme.accent, [], 1.5)
    surface.rectangle(at - 7, plot.top - 12, 14, 14, theme.accent)
    surface.text(at, plot.top - 4.5, name, theme.paper, { align: 'center', bold: true })
  }
}

function cursorColour({ isDark }: Theme): string {
  return isDark ? '#e6e7e9a0' : '#1d1f23a0'
}

function isIn({ left, width }: Plot, x: number): boolean {
  return x >= left - 1 && x <= left + width + 1
}
