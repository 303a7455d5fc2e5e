// The pictures that the worker paints: curves, stacked blocks and address maps.

import { drawByteAxis } from '../../src/recordings/picture/drawing/axes.js'
import { drawCurves } from '../../src/recordings/picture/drawing/curves.js'
import type { Bitmap, Plot, Surface } from '../../src/recordings/picture/drawing/surface.js'
import { UNIT_BYTES } from '../../src/recordings/picture/picture.js'
import { byId, element } from '../elements.js'
import type { Page } from '../page.js'
import type { PaintAnswer, PolicyInfo } from '../protocol.js'
import { REM } from '../surface.js'
import { formatBytes, formatCount } from '../text.js'
import { type Drawing, Frame } from './frame.js'
import { drawBand, drawRuns, type Span } from './outline.js'

const [CURVES_HEIGHT, STACKED_HEIGHT, MAP_HEIGHT] = [178 * REM, 350 * REM, 270 * REM]

/** All pictures that the worker paints. */
export class Pictures {
  readonly curves: Frame
  readonly stacked: Frame
  maps: Frame[] = []
  private shownMaps = ''

  constructor(private readonly page: Page) {
    this.curves = new Frame(page, byId('curves'), new Curves(page))
    this.stacked = new Frame(page, byId('stacked'), new Stacked(page))
    page.curvesWidth = () => this.curves.pixels
    page.paint = raw => this.paint(raw)
    page.views.push({ show: () => this.showMaps() })
    new ResizeObserver(() => page.ask(new Set(['paint', 'curves']))).observe(byId('stacked'))
  }

  /** Makes the maps that the state names. */
  showMaps(): void {
    const { page } = this
    const { maps, recording } = page.state
    const known = page.info.policies.filter(({ hasMap }) => hasMap)
    byId('maps-section').hidden = known.length === 0
    const wanted = `${recording} ${maps.join()}`
    if (wanted === this.shownMaps) return
    this.shownMaps = wanted
    for (const frame of this.maps) page.views.splice(page.views.indexOf(frame), 1)
    const host = byId('maps')
    host.replaceChildren()
    this.maps = maps.map((policy, index) => {
      const picture = element('div', { class: 'picture', tabindex: '0' })
      host.append(element('div', { class: 'map' }, element('div', {}, this.chooser(known, index)), picture))
      const label = known.find(each => each.policy === policy)?.label ?? policy
      return new Frame(page, picture, new AddressMap(page, policy, label, index))
    })
    page.ask(new Set(['paint']))
  }

  private chooser(known: readonly PolicyInfo[], index: number): HTMLElement {
    const { page } = this
    const { maps } = page.state
    const select = element('select', { 'aria-label': `policy of map ${index + 1}` })
    for (const { policy, label } of known) select.append(new Option(label, policy, false, policy === maps[index]))
    select.addEventListener('change', () => {
      page.update({ maps: maps.map((each, i) => (i === index ? select.value : each)) })
    })
    const figures = page.recording.policies.find(each => each.policy === maps[index])
    const peak = figures?.peakBytes ?? null
    return element(
      'span',
      {},
      select,
      element('span', { class: 'quiet' }, peak === null ? '' : ` ${formatBytes(peak)}`),
    )
  }

  private async paint(raw: boolean): Promise<PaintAnswer | null> {
    const { page, stacked, maps } = this
    if (stacked.pixels <= 16) return null
    const { axis, from, to } = page.state
    return page.client.ask('paint', {
      view: { axis, from, to, width: stacked.pixels },
      stackedHeight: stacked.pixelHeight,
      maps: maps.map(map => ({
        policy: (map.drawing as AddressMap).policy,
        width: map.pixels,
        height: map.pixelHeight,
      })),
      palette: page.theme.palette,
      hatch: Math.max(1, Math.round(window.devicePixelRatio || 1)),
      selected: page.state.pinned,
      raw,
    })
  }
}

/** Where a painting of another range lies now. */
function shifted(plot: Plot, painted: PaintAnswer, { state }: Page): Span {
  const { from, to } = state
  const scale = plot.width / (to - from)
  const { view } = painted
  return { left: plot.left + (view.from - from) * scale, width: (view.to - view.from) * scale }
}

class Curves implements Drawing {
  readonly name = 'In use and reserved'
  readonly height = CURVES_HEIGHT
  readonly isOverview = true

  constructor(private readonly page: Page) {}

  draw(surface: Surface, plot: Plot): void {
    const { page } = this
    const { curves, theme, state, info, recording } = page
    if (curves === null) return
    const lines = info.policies
      .map(({ policy }, i) => ({ policy, name: String(page.numberOf(policy)), reserved: curves.reserved[i] }))
      .filter(({ policy }) => !state.hidden.includes(policy))
    drawCurves(surface, plot, { ...curves, lines, leastBytes: recording.leastBytes }, theme)
  }

  hint(event: number): readonly string[] {
    const { curves, info, state } = this.page
    if (curves === null) return []
    const column = curves.event.indexOf(event)
    if (column < 0) return []
    const lines = info.policies.flatMap(({ label, policy }, i) => {
      const bytes = curves.reserved[i][column]
      return state.hidden.includes(policy) || Number.isNaN(bytes) ? [] : [`${formatBytes(bytes)} reserved — ${label}`]
    })
    return [`event ${formatCount(event)}: ${formatBytes(curves.inUse[column])} in use`, ...lines]
  }
}

class Stacked implements Drawing {
  readonly name = 'Allocations'
  readonly height = STACKED_HEIGHT
  readonly isOverview = false

  constructor(private readonly page: Page) {}

  draw(surface: Surface, plot: Plot, ratio: number): void {
    const { page } = this
    const { painted } = page
    if (painted === null) return
    drawByteAxis(surface, plot, painted.topBytes, page.theme, 6)
    const place = shifted(plot, painted, page)
    const size = { width: painted.view.width, height: Math.round(plot.height * ratio) }
    clipped(surface, plot, place, { ...size, rgba: painted.stacked, cells: painted.rawStacked })
    drawBand(surface, plot, painted, place, page.theme)
  }

  top(): number {
    return this.page.painted?.topBytes ?? 0
  }

  async pick(event: number, bytes: number) {
    const { painted, client } = this.page
    if (painted === null) return null
    return client.ask('pick', { event, bytes, topBytes: painted.topBytes, height: painted.rows })
  }

  hint(event: number): readonly string[] {
    const { painted } = this.page
    const column = painted?.event.indexOf(event) ?? -1
    return painted === null || column < 0
      ? []
      : [`event ${formatCount(event)}: ${formatBytes(painted.inUse[column])} in use`]
  }
}

class AddressMap implements Drawing {
  readonly height = MAP_HEIGHT
  readonly isOverview = false

  constructor(
    private readonly page: Page,
    readonly policy: string,
    readonly name: string,
    private readonly index: number,
  ) {}

  draw(surface: Surface, plot: Plot, ratio: number, life: Span | null): void {
    const { page, index } = this
    const { painted } = page
    if (painted === null) return
    drawByteAxis(surface, plot, Math.max(1, painted.mapUnits * UNIT_BYTES), page.theme, 5)
    const rgba = painted.maps[index]
    const cells = painted.rawMaps[index] ?? null
    if (rgba === undefined && cells === null) return
    const height = Math.round(plot.height * ratio)
    const pixels = cells === null ? rgba.length : cells.length
    if (pixels % height !== 0) return
    clipped(surface, plot, shifted(plot, painted, page), { width: pixels / height, height, rgba, cells })
    const { outline, mapUnits: units } = painted
    if (life !== null) drawRuns(surface, plot, outline?.runs[index], { life, units, theme: page.theme })
  }

  top(): number {
    return (this.page.painted?.mapUnits ?? 0) * UNIT_BYTES
  }

  pick(event: number, bytes: number) {
    return this.page.client.ask('pick', { event, bytes, policy: this.policy })
  }
}

/** A bitmap that may lie partly outside of the plot, while the sharp one is painted. */
function clipped(surface: Surface, plot: Plot, { left, width }: Span, bitmap: Bitmap): void {
  if (Math.abs(left - plot.left) < 0.5 && Math.abs(width - plot.width) < 0.5) {
    surface.bitmap(plot.left, plot.top, plot.width, plot.height, bitmap)
    return
  }
  if (!surface.within) return
  surface.within(plot.left, plot.top, plot.width, plot.height, () =>
    surface.bitmap(left, plot.top, width, plot.height, bitmap),
  )
}
