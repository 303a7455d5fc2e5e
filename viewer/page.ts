// The state of the page, and what changes with it. Views read it and draw; only `update` writes it.

import { firstIndex } from '../src/core/base/binary-search.js'
import type { Grouping } from '../src/recordings/picture/colouring.js'
import { type Theme, themeOf } from '../src/recordings/picture/drawing/theme.js'
import type { Axis } from '../src/recordings/picture/moments.js'
import type { Question } from '../src/recordings/picture/questions.js'
import type { PageData, PageRecording } from '../src/recordings/report/page/page-data.js'
import type { ColourAnswer, CurvesAnswer, FlowAnswer, HoldersAnswer, PaintAnswer, RecordingInfo } from './protocol.js'
import type { Zoom } from './views/icicle.js'
import { Latest, WorkerClient } from './worker-client.js'

export interface State {
  recording: number
  axis: Axis
  /** the part of the axis that is shown */
  from: number
  to: number
  /** the event whose holders are shown */
  cursor: number
  grouping: Grouping
  only: readonly number[]
  without: readonly number[]
  group: number | null
  find: string
  a: number | null
  b: number | null
  question: Question | 'at' | 'step'
  step: number
  pinned: number | null
  inverted: boolean
  machinery: boolean
  /** the call of the icicle that is shown as the whole */
  zoom: Zoom
  /** policies without a line */
  hidden: readonly string[]
  maps: readonly string[]
  /** whether the list of events is open */
  listed: boolean
}

/** The requests that a change makes necessary. */
type Part = 'colour' | 'paint' | 'curves' | 'holders' | 'flow' | 'pinned'
const PARTS: Readonly<Partial<Record<keyof State, readonly Part[]>>> = {
  recording: ['colour', 'curves'],
  axis: ['paint', 'curves'],
  from: ['paint'],
  to: ['paint'],
  cursor: ['holders'],
  grouping: ['colour'],
  only: ['colour'],
  without: ['colour'],
  group: ['colour'],
  find: ['colour'],
  a: ['holders', 'flow'],
  b: ['holders', 'flow'],
  question: ['holders'],
  step: ['holders'],
  pinned: ['pinned', 'paint'],
  inverted: ['holders'],
  machinery: ['holders'],
  zoom: ['holders'],
  maps: ['paint', 'pinned'],
}

/** A view that follows the page. */
export interface ViewPart {
  /** called after each change of the state or of an answer */
  show(): void
}

const LEAST_SPAN = 4

export class Page {
  readonly client = new WorkerClient()
  readonly views: ViewPart[] = []
  /** called when the state has changed */
  changed: () => void = () => {}
  state!: State
  info!: RecordingInfo
  theme: Theme = themeOf(false, false)
  colours: ColourAnswer | null = null
  painted: PaintAnswer | null = null
  curves: CurvesAnswer | null = null
  holders: HoldersAnswer | null = null
  /** the event that `holders` is of; null for another set of blocks */
  heldAt: number | null = null
  /** between A and B; null without both */
  flow: FlowAnswer | null = null
  /** makes the requests whose answers depend on the layout */
  paint: (raw: boolean) => Promise<PaintAnswer | null> = async () => null
  curvesWidth: () => number = () => 1000
  onPinned: () => Promise<void> = async () => {}
  /** shows another recording */
  open: (recording: number, given?: Partial<State>) => Promise<void> = async () => {}
  /** chooses the colours anew */
  restyle: () => void = () => {}
  private readonly jobs = {
    colour: new Latest(),
    paint: new Latest(),
    curves: new Latest(),
    holders: new Latest(),
    flow: new Latest(),
  }
  private isDrawing = false

  constructor(readonly data: PageData) {}

  get recording(): PageRecording {
    return this.data.recordings[this.state.recording]
  }

  /** The number of a policy's line: its row in the table. */
  numberOf(policy: string): number {
    return this.recording.policies.findIndex(each => each.policy === policy) + 1
  }

  /** The end of the axis. */
  get end(): number {
    return this.state.axis === 'event' ? this.info.events : this.info.spanUs
  }

  /** The place of an event on the axis. */
  at(event: number): number {
    return this.state.axis === 'event' ? event : (this.info.timeUs[Math.min(event, this.info.events - 1)] ?? 0)
  }

  /** The last event at a place of the axis. */
  eventAt(place: number): number {
    const { events, timeUs } = this.info
    if (this.state.axis === 'event') return Math.min(events - 1, Math.max(0, Math.floor(place)))
    const next = firstIndex(events, event => timeUs[event] > place)
    return Math.min(events - 1, Math.max(0, next - 1))
  }

  async load(index: number): Promise<void> {
    const element = document.getElementById(`picture-${index}`)
    this.info = await this.client.ask('load', { index, packed: element?.textContent ?? null })
    if (element !== null) element.textContent = ''
    this.colours = this.painted = this.curves = this.holders = null
  }

  /** Changes the state, and asks for all that depends on it. */
  update(change: Partial<State>): void {
    const parts = new Set<Part>()
    for (const key of Object.keys(change) as (keyof State)[]) {
      if (change[key] !== this.state[key]) for (const part of PARTS[key] ?? []) parts.add(part)
    }
    Object.assign(this.state, change)
    this.changed()
    this.ask(parts)
    this.draw()
  }

  /** Shows a range of the axis, within its ends. */
  zoom(from: number, to: number): void {
    const end = this.end
    const least = this.state.axis === 'event' ? LEAST_SPAN : Math.min(1, end)
    const span = Math.min(end, Math.max(least, to - from))
    const start = Math.min(end - span, Math.max(0, (from + to - span) / 2))
    this.update({ from: start, to: start + span })
  }

  /** Sets the markers to a range of the axis. */
  mark(from: number, to: number): void {
    this.update({ a: this.eventAt(from), b: this.eventAt(to) })
  }

  /** Zooms around the cursor, if it is in view. */
  scale(factor: number, around?: number): void {
    const { from, to, cursor } = this.state
    const place = around ?? this.at(cursor)
    const centre = place >= from && place <= to ? place : (from + to) / 2
    this.zoom(centre - (centre - from) * factor, centre + (to - centre) * factor)
  }

  /** Moves the cursor, and the range with it if it leaves. */
  moveCursor(event: number): void {
    const cursor = Math.min(this.info.events - 1, Math.max(0, event))
    const { from, to, question } = this.state
    const place = this.at(cursor)
    this.update({ cursor, question: question === 'step' ? 'at' : question })
    if (place < from || place >= to) this.zoom(place - (to - from) / 2, place + (to - from) / 2)
  }

  ask(parts: ReadonlySet<Part>): void {
    if (parts.has('colour')) void this.jobs.colour.run(() => this.askColours())
    if (parts.has('curves')) void this.jobs.curves.run(() => this.askCurves())
    // The worker answers the others by the colours and the filter that it has.
    if (this.colours === null) return
    if (parts.has('paint')) void this.jobs.paint.run(() => this.askPaint())
    if (parts.has('holders')) void this.jobs.holders.run(() => this.askHolders())
    if (parts.has('flow')) void this.jobs.flow.run(() => this.askFlow())
    if (parts.has('pinned')) void this.client.during(this.onPinned())
  }

  askAll(): void {
    this.ask(new Set(['colour', 'curves']))
  }

  /** Draws all views before the next frame. */
  draw(): void {
    if (this.isDrawing) return
    this.isDrawing = true
    void this.client.during(
      new Promise<void>(resolve => {
        requestAnimationFrame(() => {
          this.isDrawing = false
          for (const view of this.views) view.show()
          resolve()
        })
      }),
    )
  }

  /** The events of the markers, the first one as `a`. */
  private get marked(): { a: number; b: number } | null {
    const { a, b } = this.state
    return a === null || b === null ? null : { a: Math.min(a, b), b: Math.max(a, b) }
  }

  private async askFlow(): Promise<void> {
    const { marked } = this
    this.flow = marked === null ? null : await this.client.ask('flow', marked)
    this.draw()
  }

  private async askColours(): Promise<void> {
    const { grouping, only, without, group, find } = this.state
    const wasScale = this.colours?.isScale ?? grouping === 'age'
    this.colours = await this.client.ask('colour', { grouping, only, without, group, find })
    if (this.colours.isScale !== wasScale) this.restyle()
    this.ask(new Set(['paint', 'holders', 'flow', 'pinned']))
    this.draw()
  }

  private async askPaint(): Promise<void> {
    const painted = await this.paint(false)
    if (painted !== null) this.painted = painted
    this.draw()
  }

  private async askCurves(): Promise<void> {
    const { axis } = this.state
    this.curves = await this.client.ask('curves', { view: { axis, from: 0, to: this.end, width: this.curvesWidth() } })
    this.draw()
  }

  private async askHolders(): Promise<void> {
    const { cursor, a, question, step, inverted, machinery, zoom } = this.state
    const options = { inverted, machinery, under: zoom.path }
    const { marked } = this
    const set =
      question === 'step'
        ? ({ kind: 'step', step } as const)
        : question === 'at' || marked === null
          ? ({ kind: 'at', event: cursor, before: a } as const)
          : ({ kind: 'question', question, ...marked } as const)
    this.holders = await this.client.ask('holders', { set, ...options })
    this.heldAt = set.kind === 'at' ? set.event : null
    this.draw()
  }
}
