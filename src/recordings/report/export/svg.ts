// A recording as one SVG picture: verdict, curves, allocations and address maps, one below the other.

import { formatBytes } from '../../../core/base/bytes.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { shortened } from '../../../core/base/shown-text.js'
import { paintMap } from '../../picture/address-map.js'
import type { Painting } from '../../picture/cells.js'
import { colouringOf } from '../../picture/colouring.js'
import { inUseIn, reservedIn, roundTop } from '../../picture/columns.js'
import { drawByteAxis, drawLowerAxis } from '../../picture/drawing/axes.js'
import { drawCurves } from '../../picture/drawing/curves.js'
import type { Plot } from '../../picture/drawing/surface.js'
import { type Rectangles, SvgSurface } from '../../picture/drawing/svg-surface.js'
import { channels, policyColour, type Theme, themeOf } from '../../picture/drawing/theme.js'
import { LiveBlocks } from '../../picture/live-blocks.js'
import { momentsOf, type View } from '../../picture/moments.js'
import { UNIT_BYTES, unitsOf } from '../../picture/picture.js'
import { Pyramid } from '../../picture/pyramid.js'
import { paintStacked } from '../../picture/stacked.js'
import { checkReport, type ReplayReport } from '../../trace/replay-result.js'
import { checkTrace, type Trace } from '../../trace/trace.js'
import { verdictLines } from '../page/headline.js'
import { reportedPicture, SHOWN_FIRST } from '../page/page-picture.js'
import { pngOf } from './png.js'

const WIDTH = 1200
const [GUTTER, MARGIN, LINE, AXIS] = [84, 16, 20, 30]
const [CURVES_HEIGHT, STACKED_HEIGHT, MAP_HEIGHT] = [160, 320, 240]
/** About the width of a letter, and the longest text of a legend. */
const [LETTER_WIDTH, LEGEND_LETTERS] = [6.6, 56]
const SWATCH = 11

interface LegendItem {
  readonly colour: string
  readonly text: string
}

interface Section {
  readonly title: string
  readonly plotHeight: number
  readonly legend: readonly LegendItem[]
  readonly draw: (surface: SvgSurface, plot: Plot) => void
}

/**
 * A recording as SVG, light or dark. With a replay that has placements it shows the policies' curves, and the map of
 * cuda-mempool beside that of the recorded allocator. Names are escaped: no markup of a recording has an effect.
 * Throws TypeError for wrong arguments.
 */
export function pictureSvg(
  trace: Trace,
  replay: ReplayReport | null = null,
  options: { readonly isDark?: boolean } = {},
): string {
  checkTrace('pictureSvg', trace)
  checkOptionNames('pictureSvg', options, ['isDark'])
  const { isDark = false } = options
  if (replay !== null) checkReport('pictureSvg: replay', replay)
  const picture = reportedPicture({ trace, replay })
  const live = new LiveBlocks(picture)
  const pyramid = new Pyramid(live.inUse)
  const colouring = colouringOf(live, picture.stacks.parent.length > 1 ? 'stack' : 'lifetime')
  const theme = themeOf(isDark, colouring.isScale)
  const cellOf = colouring.cellOf
  const view = { axis: 'event', from: 0, to: picture.events, width: WIDTH - GUTTER - MARGIN } as const
  const moments = momentsOf(picture, pyramid, view)
  const maps = picture.policies.filter(({ policy, place }) => place !== null && SHOWN_FIRST.includes(policy))
  const verdict = verdictLines(trace, replay)
  // A failed request, which a policy serves between two events, is in its peak only.
  const peakOf = (name: string) => replay?.runs.find(({ policy }) => policy === name)?.peakReservedBytes ?? null
  const curveLegend = picture.policies.map(({ policy, label, reserved }) => ({
    colour: policyColour(policy, theme),
    text: `${label} ${formatBytes(peakOf(policy) ?? reserved.bytes.reduce((most, bytes) => Math.max(most, bytes), 0))}`,
  }))
  const blockLegend = colouring.legend.map(({ cell, label, bytes }) => ({
    colour: theme.cells[cell],
    text: `${shortened(label, LEGEND_LETTERS)} ${formatBytes(bytes)}`,
  }))
  const paint = (surface: SvgSurface, { left, top, width, height }: Plot, painting: Painting) =>
    surface.bitmap(left, top, width, height, { ...painting, rgba: new Uint32Array(0) })
  const units = Math.max(1, ...maps.map(unitsOf))
  const sections: Section[] = [
    {
      title: 'In use and reserved',
      plotHeight: CURVES_HEIGHT,
      legend: curveLegend,
      draw: (surface, plot) => {
        const lines = picture.policies.map(each => ({ policy: each.policy, reserved: reservedIn(each, moments) }))
        const leastBytes = replay === null ? trace.peakRequestedBytes : trace.peakWithFailedBytes
        drawCurves(surface, plot, { left: moments.left, inUse: inUseIn(live, moments), lines, leastBytes }, theme)
      },
    },
    {
      title: 'Allocations, with bytes at the peak',
      plotHeight: STACKED_HEIGHT,
      legend: blockLegend,
      draw: (surface, plot) => {
        const { width, height } = plot
        const topBytes = roundTop(inUseIn(live, moments))
        drawByteAxis(surface, plot, topBytes, theme, 6)
        paint(surface, plot, paintStacked(live, moments, cellOf, { width, height, topBytes }))
      },
    },
    ...maps.map(
      (policy): Section => ({
        title: `Where they lie: ${policy.label}`,
        plotHeight: MAP_HEIGHT,
        legend: [],
        draw: (surface, plot) => {
          const { width, height } = plot
          drawByteAxis(surface, plot, units * UNIT_BYTES, theme, 5)
          paint(surface, plot, paintMap(live, policy, moments, cellOf, { width, height, units }))
        },
      }),
    ),
  ]
  const height = MARGIN * 2 + verdict.length * LINE + sections.reduce((sum, each) => sum + heightOf(each), 0)
  const surface = new SvgSurface(WIDTH, height, theme.cells, theme.paper, painted => imageOf(painted, theme.paper))
  let y = MARGIN
  for (const [i, line] of verdict.entries()) {
    surface.text(MARGIN, y + LINE / 2, line, theme.ink, { bold: i === 0 })
    y += LINE
  }
  for (const section of sections) {
    drawSection(surface, section, y, view, theme)
    y += heightOf(section)
  }
  return surface.toString()
}

function heightOf({ plotHeight, legend }: Section): number {
  const rows = 1 + (laidOut(legend).at(-1)?.row ?? -1)
  return LINE * 2 + plotHeight + AXIS + rows * LINE
}

/** Draws a section with its title, lower axis and legend from `y` on downwards. */
function drawSection(surface: SvgSurface, section: Section, y: number, view: View, theme: Theme): void {
  const { title, plotHeight, legend, draw } = section
  surface.text(MARGIN, y + LINE, title, theme.ink, { bold: true })
  const plot = { left: GUTTER, top: y + LINE * 2, width: view.width, height: plotHeight }
  draw(surface, plot)
  drawLowerAxis(surface, plot, view, theme)
  for (const { x, row, item } of laidOut(legend)) {
    const at = plot.top + plotHeight + AXIS + row * LINE
    surface.rectangle(x, at, SWATCH, SWATCH, item.colour)
    surface.text(x + SWATCH + 6, at + SWATCH / 2, item.text, theme.ink)
  }
}

/** The places of a legend's items, from left to right in rows. */
function laidOut(legend: readonly LegendItem[]): { x: number; row: number; item: LegendItem }[] {
  let [x, row] = [GUTTER, 0]
  return legend.map(item => {
    const width = SWATCH + 6 + item.text.length * LETTER_WIDTH + 18
    if (x > GUTTER && x + width > WIDTH - MARGIN) {
      x = GUTTER
      row++
    }
    const place = { x, row, item }
    x += width
    return place
  })
}

/** The URL of a PNG image of the rectangles on paper of a colour. */
function imageOf({ width, height, boxes }: Rectangles, background: string): string {
  const paper = channels(background)
  const rgb = new Uint8Array(width * height * 3)
  for (let i = 0; i < rgb.length; i++) rgb[i] = paper[i % 3]
  for (const box of boxes) {
    const colour = channels(box.colour)
    for (let y = box.y; y < box.y + box.height; y++) {
      for (let x = box.x; x < box.x + box.width; x++) rgb.set(colour, (y * width + x) * 3)
    }
  }
  return `data:image/png;base64,${pngOf(width, height, rgb).toString('base64')}`
}
