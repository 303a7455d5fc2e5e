// The legend of a picture in a file, and marks below its axis: what the page says beside its pictures.

import { formatBytes } from '../../../core/base/bytes.js'
import { Cell } from '../cells.js'
import type { LegendEntry } from '../colouring.js'
import { coloured } from '../patterns.js'
import { legendText } from '../stack-text.js'
import type { Plot, Surface } from './surface.js'
import { policyColour, policyLine, type Theme } from './theme.js'

const [ROW, SIGN, LINE_SIGN] = [20, 14, 28]
/** About the width of a letter. */
export const LETTER = 6.8
const SPACE = 18

/** A sign of a picture, and its meaning. */
export interface LegendItem {
  readonly text: string
  readonly width: number
  /** draws the sign, whose middle is at `y` */
  readonly draw: (surface: Surface, x: number, y: number, theme: Theme) => void
}

/** A policy's line by its number, with its figures. */
export function policyItem(policy: string, number: number, text: string): LegendItem {
  const { width, dash } = policyLine(policy)
  return {
    text: `${number} ${text}`,
    width: LINE_SIGN,
    draw: (surface, x, y, theme) => surface.line(x, y, x + LINE_SIGN, y, policyColour(policy, theme), dash, width),
  }
}

/** An upright line of a picture. */
export function lineItem(text: string, colourOf: (theme: Theme) => string, dash: readonly number[] = []): LegendItem {
  const draw = (surface: Surface, x: number, y: number, theme: Theme) =>
    surface.line(x + 4, y - SIGN / 2, x + 4, y + SIGN / 2, colourOf(theme), dash)
  return { text, width: 9, draw }
}

/** The area in use, and the least that any policy needs. */
export function curveItems(inUseBytes: number, leastBytes: number): LegendItem[] {
  const inUse: LegendItem = {
    text: `in use, at most ${formatBytes(inUseBytes)}`,
    width: SIGN,
    draw: (surface, x, y, theme) => surface.rectangle(x, y - SIGN / 2, SIGN, SIGN, theme.inUse),
  }
  const least: LegendItem = {
    text: `the least for all requests, ${formatBytes(leastBytes)}`,
    width: LINE_SIGN,
    draw: (surface, x, y, theme) => surface.line(x, y, x + LINE_SIGN, y, theme.ink, [2, 4]),
  }
  return [inUse, least]
}

/** The colours of blocks, with their bytes at the peak. */
export function blockItems(legend: readonly LegendEntry[]): LegendItem[] {
  const items = legend.map(({ cell, label, bytes }) => cellItem(cell, `${legendText(label)} ${formatBytes(bytes)}`))
  return [...items, cellItem(Cell.small, 'blocks below half a pixel, together')]
}

export const UNUSED_ITEM = cellItem(Cell.unused, 'obtained and unused')

function cellItem(cell: number, text: string): LegendItem {
  const size = { width: SIGN, height: SIGN }
  const cells = new Uint8Array(SIGN * SIGN).fill(cell)
  return {
    text,
    width: SIGN,
    draw: (surface, x, y, theme) => {
      const rgba = coloured({ ...size, cells }, theme.palette, 1)
      surface.bitmap(x, y - SIGN / 2, SIGN, SIGN, { ...size, rgba, cells })
    },
  }
}

/** The marks of failed requests, if there are any. */
export function failureItems(failures: number): LegendItem[] {
  if (failures === 0) return []
  const text = failures === 1 ? 'out of memory' : `out of memory, ${failures.toLocaleString('en-US')} times`
  const draw = (surface: Surface, x: number, y: number, theme: Theme) => drawFailure(surface, x + 4, y - 4, theme)
  return [{ text, width: 9, draw }]
}

/** Marks the moment `x` of a failed request, below the axis of a picture. */
export function drawFailure(surface: Surface, x: number, bottom: number, theme: Theme): void {
  surface.path([x - 4, bottom + 8, x + 4, bottom + 8, x, bottom + 1], theme.alarm, 'fill')
}

/** The height of a legend. */
export function legendHeight(items: readonly LegendItem[], width: number): number {
  return items.length === 0 ? 0 : ROW * (1 + placesOf(items, width)[items.length - 1].row)
}

/** Draws a legend into a plot's width, from `plot.top` on downwards. */
export function drawLegend(
  surface: Surface,
  items: readonly LegendItem[],
  { left, top, width }: Omit<Plot, 'height'>,
  theme: Theme,
): void {
  for (const [i, { x, row }] of placesOf(items, width).entries()) {
    const y = top + row * ROW + ROW / 2
    items[i].draw(surface, left + x, y, theme)
    surface.text(left + x + items[i].width + 6, y, items[i].text, theme.ink)
  }
}

/** From left to right in rows. */
function placesOf(items: readonly LegendItem[], width: number): { readonly x: number; readonly row: number }[] {
  let [x, row] = [0, 0]
  return items.map(item => {
    const itemWidth = item.width + 6 + item.text.length * LETTER
    if (x > 0 && x + itemWidth > width) {
      x = 0
      row++
    }
    const place = { x, row }
    x += itemWidth + SPACE
    return place
  })
}
