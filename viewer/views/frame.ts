// A picture with axes on a canvas of its own. It follows the pointer; a drawing fills it.

import { drawLowerAxis } from '../../src/recordings/picture/drawing/axes.js'
import type { LegendItem } from '../../src/recordings/picture/drawing/legend.js'
import type { SheetPart } from '../../src/recordings/picture/drawing/sheet.js'
import type { Plot, Surface } from '../../src/recordings/picture/drawing/surface.js'
import type { Page, ViewPart } from '../page.js'
import type { PlaceInfo } from '../protocol.js'
import { CanvasSurface, REM } from '../surface.js'
import { formatCount, formatUs } from '../text.js'
import { Latest } from '../worker-client.js'
import { heldText } from './holders.js'
import { drawEvents, drawMarkers, markItems } from './marks.js'
import { drawLife, drawPlace, type Span } from './outline.js'
import { Probe, type Probed } from './probe.js'
import { hideTip, type Point, placeLines, showTip } from './tip.js'

export const GUTTER = 68 * REM
const AXIS_HEIGHT = 25 * REM
const TOP = 12
/** The numbers of lines stand there; without lines it is as wide, so that moments lie below each other. */
const RIGHT = 24 * REM
const LEAST_DRAG = 5

/** The contents of a frame. */
export interface Drawing {
  readonly name: string
  readonly height: number
  /** whether it always shows the whole recording */
  readonly isOverview: boolean
  /** `life` is that of the selected block */
  draw(surface: Surface, plot: Plot, ratio: number, life: Span | null): void
  /** the bytes at the upper edge, of a picture that knows its places */
  top?(): number
  /** what is at a height of the plot */
  pick?(event: number, bytes: number): Promise<PlaceInfo | null>
  /** the text of a hint at an event */
  hint?(event: number): readonly string[]
}

export class Frame implements ViewPart {
  readonly canvas = document.createElement('canvas')
  private readonly selection = { from: 0, to: 0, isOn: false }
  private readonly hovering = new Latest()
  private hoverId = 0
  /** in pictures with places */
  private readonly probe: Probe | null

  constructor(
    private readonly page: Page,
    private readonly host: HTMLElement,
    readonly drawing: Drawing,
  ) {
    this.canvas.setAttribute('aria-hidden', 'true')
    host.append(this.canvas)
    host.setAttribute('role', 'slider')
    host.setAttribute('aria-label', `${drawing.name}: the moment shown below`)
    host.setAttribute('aria-valuemin', '0')
    host.addEventListener('pointerdown', event => this.press(event))
    host.addEventListener('pointermove', event => void this.hovering.run(() => this.hover(event)))
    host.addEventListener('pointerleave', () => this.leave())
    host.addEventListener('dblclick', () => page.zoom(0, page.end))
    host.addEventListener('wheel', event => this.wheel(event), { passive: false })
    this.probe = hasPlaces(drawing) ? new Probe(page, host, drawing, bytes => this.pointAt(bytes)) : null
    page.views.push(this)
  }

  get plot(): Plot {
    const { height } = this.drawing
    return { left: GUTTER, top: TOP, width: this.width - GUTTER - RIGHT, height: height - TOP - AXIS_HEIGHT }
  }

  /** Pixels of the screen in the width of the plot. */
  get pixels(): number {
    return Math.max(16, Math.round(this.plot.width * ratio()))
  }

  get pixelHeight(): number {
    return Math.round(this.plot.height * ratio())
  }

  /** The picture for a sheet; below a legend stand its lines too. */
  part(title: string, legend: readonly LegendItem[]): SheetPart {
    const { height } = this.drawing
    const marks = legend.length === 0 ? [] : markItems(this.plot, this.page, this.places)
    const items = [...legend, ...marks]
    return { title, width: this.width, height, left: GUTTER, legend: items, draw: surface => this.drawOn(surface) }
  }

  show(): void {
    const { canvas, drawing, page, host } = this
    if (this.width === 0) return
    const [width, height] = [Math.round(this.width * ratio()), Math.round(drawing.height * ratio())]
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width
      canvas.height = height
      canvas.style.height = `${drawing.height}px`
    }
    const context = canvas.getContext('2d')!
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0)
    context.clearRect(0, 0, this.width, drawing.height)
    this.drawOn(new CanvasSurface(context))
    const { cursor } = page.state
    host.setAttribute('aria-valuemax', String(page.info.events - 1))
    host.setAttribute('aria-valuenow', String(cursor))
    host.setAttribute('aria-valuetext', this.spoken())
  }

  /** The moment and the place at the cursor, for readers of the screen. */
  private spoken(): string {
    const { drawing, page, probe } = this
    const { cursor } = page.state
    const time = page.info.spanUs > 0 ? `, ${formatUs(page.info.timeUs[cursor] ?? 0)}` : ''
    const place = probe?.place ?? null
    const lines = place !== null ? placeLines(place) : [heldText(page), ...(drawing.hint?.(cursor).slice(1) ?? [])]
    return [`event ${formatCount(cursor)}${time}`, ...lines].filter(line => line !== '').join('; ')
  }

  /** Draws the picture with its axes and marks. */
  drawOn(surface: Surface): void {
    const { plot, drawing, page } = this
    const { theme, state } = page
    const { life } = this
    drawing.draw(surface, plot, ratio(), life)
    const { from, to } = this.range
    drawLowerAxis(surface, plot, { axis: state.axis, from, to }, theme)
    const { x, cursor } = this.places
    drawEvents(surface, plot, page, x)
    if (life !== null) drawLife(surface, plot, life, theme)
    if (this.selection.isOn || drawing.isOverview) this.drawRange(surface)
    const place = this.probe?.place ?? null
    if (place !== null) drawPlace(surface, plot, { x: cursor, ...place, top: drawing.top?.() ?? 1 }, theme)
    drawMarkers(surface, plot, page, { x, cursor })
  }

  /** The pixel of a place of the axis, and that of the cursor. */
  private get places(): { readonly x: (place: number) => number; readonly cursor: number } {
    const { plot, page, range } = this
    const { from, to } = range
    // To ask for the width of an element takes long: once, and not for each of thousands of marks.
    const x = (place: number) => plot.left + ((place - from) * plot.width) / (to - from)
    const { cursor, axis } = page.state
    return { x, cursor: x(page.at(cursor) + (axis === 'event' ? 0.5 : 0)) }
  }

  private drawRange(surface: Surface): void {
    const { plot, selection, page } = this
    const { from, to } = page.state
    const isAll = from <= 0 && to >= page.end
    if (!selection.isOn && isAll) return
    const [start, end] = selection.isOn
      ? [selection.from, selection.to].sort((a, b) => a - b)
      : [this.x(from), this.x(to)]
    const veil = page.theme.isDark ? '#15171bb0' : '#ffffffb8'
    surface.rectangle(plot.left, plot.top, Math.max(0, start - plot.left), plot.height, veil)
    surface.rectangle(end, plot.top, Math.max(0, plot.left + plot.width - end), plot.height, veil)
    for (const x of [start, end]) surface.line(x, plot.top, x, plot.top + plot.height, page.theme.accent)
  }

  private get width(): number {
    return this.host.clientWidth
  }

  private get range(): { from: number; to: number } {
    return this.drawing.isOverview ? { from: 0, to: this.page.end } : this.page.state
  }

  /** Where the selected block lives. */
  private get life(): Span | null {
    const { painted } = this.page
    if (painted?.outline == null) return null
    const [left, end] = [painted.outline.from, painted.outline.to].map(event => this.x(this.page.at(event)))
    return { left, width: end - left }
  }

  private x(place: number): number {
    const { from, to } = this.range
    return this.plot.left + ((place - from) * this.plot.width) / (to - from)
  }

  private placeAt(x: number): number {
    const { from, to } = this.range
    return from + ((x - this.plot.left) * (to - from)) / this.plot.width
  }

  /** The event that the picture shows at a pixel: of its column, the event with most in use. */
  private eventAt(x: number): number {
    const shown = this.drawing.isOverview ? this.page.curves : this.page.painted
    const place = this.placeAt(x)
    if (shown === null) return this.page.eventAt(place)
    const pixel = ((x - this.plot.left) / this.plot.width) * (shown.left.at(-1) ?? 1)
    let column = shown.left.findIndex(left => left > pixel) - 1
    if (column < 0) column = 0
    const event = shown.event[Math.min(column, shown.event.length - 1)] ?? -1
    return event < 0 ? this.page.eventAt(place) : event
  }

  private press(down: PointerEvent): void {
    if (down.button !== 0) return
    const { host, selection, page } = this
    const box = host.getBoundingClientRect()
    const clamp = (x: number) => Math.min(this.plot.left + this.plot.width, Math.max(this.plot.left, x - box.left))
    const start = clamp(down.clientX)
    host.setPointerCapture(down.pointerId)
    const move = (event: PointerEvent) => {
      selection.from = start
      selection.to = clamp(event.clientX)
      selection.isOn = Math.abs(selection.to - start) >= LEAST_DRAG
      this.leave()
      page.draw()
    }
    const up = () => {
      host.removeEventListener('pointermove', move)
      host.removeEventListener('pointerup', up)
      host.removeEventListener('pointercancel', up)
      if (selection.isOn) {
        selection.isOn = false
        const [from, to] = [selection.from, selection.to].sort((a, b) => a - b)
        if (down.shiftKey) page.mark(this.placeAt(from), this.placeAt(to))
        else page.zoom(this.placeAt(from), this.placeAt(to))
      } else void this.click(down, start)
    }
    host.addEventListener('pointermove', move)
    host.addEventListener('pointerup', up)
    host.addEventListener('pointercancel', up)
  }

  private async click(down: PointerEvent, x: number): Promise<void> {
    const event = this.eventAt(x)
    this.page.moveCursor(event)
    const place = await this.pickAt(event, down)
    if (place?.block == null) return
    this.leave()
    this.page.update({ pinned: place.block.block })
  }

  private pickAt(event: number, { clientY }: PointerEvent): Promise<PlaceInfo | null> {
    const { plot, drawing, host } = this
    const height = 1 - (clientY - host.getBoundingClientRect().top - plot.top) / plot.height
    if (drawing.pick === undefined || height < 0 || height > 1) return Promise.resolve(null)
    return drawing.pick(event, height * (drawing.top?.() ?? 0))
  }

  /** The point of the window at a height and the cursor. */
  private pointAt(bytes: number): Point {
    const { plot, host, drawing, page } = this
    const { left, top } = host.getBoundingClientRect()
    const clientY = top + plot.top + plot.height * (1 - bytes / (drawing.top?.() ?? 1))
    return { clientX: left + this.x(page.at(page.state.cursor)), clientY }
  }

  private async hover(move: PointerEvent): Promise<void> {
    if (move.buttons !== 0) return
    const id = ++this.hoverId
    const x = move.clientX - this.host.getBoundingClientRect().left
    if (x < this.plot.left || x > this.plot.left + this.plot.width) return this.leave()
    const event = this.eventAt(x)
    const place = await this.pickAt(event, move)
    if (id !== this.hoverId) return
    const lines = [...(this.drawing.hint?.(event) ?? []), ...(place === null ? [] : placeLines(place))]
    if (lines.length > 0) showTip(move, lines)
    else this.leave()
  }

  private leave(): void {
    this.hoverId++
    hideTip()
  }

  /** A plain wheel scrolls the page; with Ctrl or a pinch it zooms, sideways or with Shift it pans. */
  private wheel(event: WheelEvent): void {
    const { page, plot } = this
    const { from, to } = page.state
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault()
      const x = event.clientX - this.host.getBoundingClientRect().left
      page.scale(1.002 ** event.deltaY, this.placeAt(x))
      return
    }
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX
    if (Math.abs(sideways) < Math.abs(event.deltaY) && !event.shiftKey) return
    event.preventDefault()
    const by = (sideways * (to - from)) / plot.width
    page.zoom(from + by, to + by)
  }
}

function hasPlaces(drawing: Drawing): drawing is Drawing & Probed {
  return drawing.pick !== undefined
}

function ratio(): number {
  return window.devicePixelRatio || 1
}
