// A recording as one SVG picture: verdict, curves, allocations and address maps, one below the other.

import { formatBytes } from '../../../core/base/bytes.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { fileName, shortened } from '../../../core/base/shown-text.js'
import { paintMap } from '../../picture/address-map.js'
import type { Painting } from '../../picture/cells.js'
import { type Colouring, colouringOf } from '../../picture/colouring.js'
import { inUseIn, reservedIn, roundTop } from '../../picture/columns.js'
import { drawByteAxis, drawLowerAxis } from '../../picture/drawing/axes.js'
import { drawCurves } from '../../picture/drawing/curves.js'
import {
  blockItems,
  curveItems,
  drawFailure,
  failureItems,
  type LegendItem,
  policyItem,
  UNUSED_ITEM,
} from '../../picture/drawing/legend.js'
import { drawSheet, type Sheet, type SheetPart, sheetSize } from '../../picture/drawing/sheet.js'
import type { Plot, Surface } from '../../picture/drawing/surface.js'
import { type Pixels, SvgSurface } from '../../picture/drawing/svg-surface.js'
import { channels, type Theme, themeOf } from '../../picture/drawing/theme.js'
import { LiveBlocks } from '../../picture/live-blocks.js'
import { type Moments, momentsOf, type View } from '../../picture/moments.js'
import { type Picture, type PolicyPicture, UNIT_BYTES, unitsOf } from '../../picture/picture.js'
import { Pyramid } from '../../picture/pyramid.js'
import { paintStacked } from '../../picture/stacked.js'
import { checkReport, type ReplayReport } from '../../trace/replay-result.js'
import { Action, checkTrace, type Trace } from '../../trace/trace.js'
import { formatNs } from '../number-format.js'
import { answerOf } from '../page/headline.js'
import { reportedPicture, SHOWN_FIRST } from '../page/page-picture.js'
import { counted } from '../trace-lines.js'
import { pngOf } from './png.js'

const [WIDTH, GUTTER, RIGHT, TOP, AXIS] = [1170, 68, 28, 12, 28]
const [CURVES_HEIGHT, STACKED_HEIGHT, MAP_HEIGHT] = [160, 320, 240]

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
  const pictures = new RecordingPictures(trace, replay, isDark)
  const { theme } = pictures
  const rows = pictures.parts().map(part => [part])
  const sheet: Sheet = { heading: answerOf({ trace, replay, tuned: null }).verdict, rows, foot: footOf(trace) }
  const { width, height } = sheetSize(sheet)
  const surface = new SvgSurface(width, height, theme, pixels => imageOf(pixels, theme.paper))
  drawSheet(surface, sheet, theme)
  return surface.toString()
}

/** The pictures of a recording: all have the same moments below each other. */
class RecordingPictures {
  readonly theme: Theme
  private readonly picture: Picture
  private readonly live: LiveBlocks
  private readonly colouring: Colouring
  private readonly moments: Moments
  private readonly inUse: Float64Array
  private readonly failures: readonly number[]
  private readonly view: View

  constructor(
    private readonly trace: Trace,
    private readonly replay: ReplayReport | null,
    isDark: boolean,
  ) {
    const picture = reportedPicture({ trace, replay })
    this.picture = picture
    this.live = new LiveBlocks(picture)
    this.colouring = colouringOf(this.live, picture.stacks.parent.length > 1 ? 'stack' : 'lifetime')
    this.theme = themeOf(isDark, this.colouring.isScale)
    this.view = { axis: 'event', from: 0, to: picture.events, width: WIDTH - GUTTER - RIGHT }
    this.moments = momentsOf(picture, new Pyramid(this.live.inUse), this.view)
    this.inUse = inUseIn(this.live, this.moments)
    this.failures = [...picture.action.keys()].filter(event => picture.action[event] === Action.outOfMemory)
  }

  parts(): SheetPart[] {
    return [this.curves(), this.stacked(), ...this.maps()]
  }

  private curves(): SheetPart {
    const { picture, live, trace, replay, moments, inUse, failures } = this
    const leastBytes = replay === null ? trace.peakRequestedBytes : trace.peakWithFailedBytes
    const legend = [
      ...picture.policies.map((each, i) => policyItem(each.policy, i + 1, figuresText(each, replay))),
      ...curveItems(live.peakBytes, leastBytes),
      ...failureItems(failures.length),
    ]
    const lines = picture.policies.map((each, i) => {
      return { policy: each.policy, name: String(i + 1), reserved: reservedIn(each, moments) }
    })
    return this.part('In use and reserved', CURVES_HEIGHT, legend, (surface, plot) => {
      drawCurves(surface, plot, { left: moments.left, inUse, lines, leastBytes }, this.theme)
    })
  }

  private stacked(): SheetPart {
    const { live, moments, colouring, inUse, theme } = this
    const legend = blockItems(colouring.legend)
    return this.part('Allocations, with bytes at the peak', STACKED_HEIGHT, legend, (surface, plot) => {
      const { width, height } = plot
      const topBytes = roundTop(inUse)
      drawByteAxis(surface, plot, topBytes, theme, 6)
      paint(surface, plot, paintStacked(live, moments, colouring.cellOf, { width, height, topBytes }))
    })
  }

  private maps(): SheetPart[] {
    const { live, moments, colouring, picture, theme } = this
    const maps = picture.policies.filter(({ policy, place }) => place !== null && SHOWN_FIRST.includes(policy))
    const units = Math.max(1, ...maps.map(unitsOf))
    return maps.map((policy, i) => {
      const legend = i === maps.length - 1 ? [UNUSED_ITEM] : []
      return this.part(`Where they lie: ${policy.label}`, MAP_HEIGHT, legend, (surface, plot) => {
        const { width, height } = plot
        drawByteAxis(surface, plot, units * UNIT_BYTES, theme, 5)
        paint(surface, plot, paintMap(live, policy, moments, colouring.cellOf, { width, height, units }))
      })
    })
  }

  /** A picture with its lower axis, and with a mark for each failed request. */
  private part(
    title: string,
    plotHeight: number,
    legend: readonly LegendItem[],
    draw: (surface: Surface, plot: Plot) => void,
  ): SheetPart {
    const { view, theme, failures } = this
    const plot = { left: GUTTER, top: TOP, width: view.width, height: plotHeight }
    const drawAll = (surface: Surface) => {
      draw(surface, plot)
      drawLowerAxis(surface, plot, view, theme)
      for (const event of failures) {
        drawFailure(surface, GUTTER + ((event + 0.5) / view.to) * plot.width, TOP + plotHeight, theme)
      }
    }
    return { title, width: WIDTH, height: TOP + plotHeight + AXIS, left: GUTTER, legend, draw: drawAll }
  }
}

function paint(surface: Surface, { left, top, width, height }: Plot, painting: Painting): void {
  surface.bitmap(left, top, width, height, { ...painting, rgba: new Uint32Array(0) })
}

/** The name of a policy, the most that it reserved, and the most that it had granted if it was replayed. */
function figuresText({ policy, label, reserved }: PolicyPicture, replay: ReplayReport | null): string {
  const run = replay?.runs.find(each => each.policy === policy)
  // A failed request, which a policy serves between two events, is in its peak only.
  const most = run?.peakReservedBytes ?? reserved.bytes.reduce((top, bytes) => Math.max(top, bytes), 0)
  const granted = run?.peakGrantedBytes ?? null
  return `${label} ${formatBytes(most)}${granted === null ? '' : `, ${formatBytes(granted)} allocated`}`
}

/** The file, and the extent of the recording. */
function footOf(trace: Trace): string {
  const { events, spanSeconds, device, otherDevices } = trace
  return [
    shortened(fileName(trace.file)),
    ...(device > 0 || otherDevices.length > 0 ? [`device ${device}`] : []),
    counted(events, 'event'),
    ...(spanSeconds > 0 ? [formatNs(spanSeconds * 1e9)] : []),
    'by cuda-mempool',
  ].join(' · ')
}

/** The URL of a PNG image of the pixels on paper of a colour. */
function imageOf({ width, height, rgba }: Pixels, background: string): string {
  const paper = channels(background)
  const rgb = new Uint8Array(width * height * 3)
  for (const [i, pixel] of rgba.entries()) {
    rgb.set(pixel === 0 ? paper : [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255], i * 3)
  }
  return `data:image/png;base64,${pngOf(width, height, rgb).toString('base64')}`
}
