// An icicle of calls as a tree of boxes. A click, or Enter, shows a box as wide as the whole; Escape, Backspace and the
// names above it lead back.

import type { Box } from '../../src/recordings/picture/drawing/icicle.js'
import {
  boxesOn,
  labelOf,
  pathTo,
  type ShownBox,
  shownBoxes,
} from '../../src/recordings/picture/drawing/icicle-rows.js'
import { button, element } from '../elements.js'
import { formatCount } from '../text.js'
import { hideTip, showTip } from './tip.js'

/** A browser takes seconds to draw more. */
const MOST_ROWS = 1000
/** Room for less than the shortest name, which then need not be measured. */
const LEAST_LABEL = 14
/** Calls of a chain that its hint lists. */
const MOST_LISTED = 8
/** In the first line of a hint, and for screen readers. */
const MOST_LETTERS = 400
const NOT_FOUND = 'The call that was zoomed to is not found here.'
/** Pixels of a box beside its text. */
const PADDING = 14

/** The box that is shown as the whole. */
export interface Zoom {
  /** the keys of its callers and its own, the outermost first; none for all calls */
  readonly path: readonly string[]
  /** how long the path was after each step inwards */
  readonly levels: readonly number[]
}
export const NO_ZOOM: Zoom = { path: [], levels: [] }

interface Icicle<Call> {
  readonly boxes: readonly Call[]
  readonly isCut: boolean
}

/** The texts of a box, and its colour. */
export interface Told {
  /** its bytes, behind its name */
  readonly bytes: string
  /** more lines of its hint */
  readonly lines: readonly string[]
  readonly background: string
}

export class IcicleView<Call extends Box> {
  private readonly crumbs = element('nav', { class: 'crumbs', 'aria-label': 'Zoomed calls' })
  private readonly tree: HTMLElement
  private readonly cut = element('p', { class: 'quiet' })
  private readonly measure = document.createElement('canvas').getContext('2d')!
  private boxes: readonly Call[] = []
  private shown: readonly ShownBox<Call>[] = []
  /** of the boxes that are drawn, which are those of the first rows */
  private drawn: readonly number[] = []
  private readonly elements = new Map<number, HTMLElement>()
  private readonly numbers = new WeakMap<object, number>()
  private zoom = NO_ZOOM
  private told: (box: ShownBox<Call>) => Told = () => ({ bytes: '', lines: [], background: '' })
  private focused = 0

  constructor(
    host: HTMLElement,
    name: string,
    private readonly onZoom: (zoom: Zoom) => void,
  ) {
    const { crumbs, cut } = this
    this.tree = element('div', { class: 'boxes', role: 'tree', 'aria-label': name })
    host.append(crumbs, this.tree, cut)
    const { tree } = this
    tree.addEventListener('click', ({ target }) => this.zoomTo(this.indexOf(target)))
    tree.addEventListener('keydown', event => this.key(event))
    tree.addEventListener('pointermove', event => this.hint(this.indexOf(event.target), event))
    tree.addEventListener('pointerleave', hideTip)
    tree.addEventListener('focusout', hideTip)
    tree.addEventListener('focusin', ({ target }) => {
      const made = target as HTMLElement
      if (!made.matches(':focus-visible')) return
      const { left, bottom } = made.getBoundingClientRect()
      this.hint(this.indexOf(made), { clientX: Math.max(0, left), clientY: bottom })
    })
  }

  get width(): number {
    return this.tree.clientWidth
  }

  /** Draws the boxes in the last call of `zoom` that exists, and says if some do not. It is hidden without boxes. */
  draw({ boxes, isCut }: Icicle<Call>, zoom: Zoom, told: (box: ShownBox<Call>) => Told): void {
    const { tree } = this
    const hadFocus = tree.contains(document.activeElement)
    const on = boxesOn(boxes, zoom.path)
    const levels = zoom.levels.filter(level => level < on.length)
    const depth = levels.at(-1) ?? 0
    this.boxes = boxes
    this.told = told
    this.zoom = { path: zoom.path.slice(0, depth), levels }
    this.shown = shownBoxes(boxes, on[depth] ?? 0)
    this.drawn = [...this.shown.keys()].filter(i => this.shown[i].row < MOST_ROWS)
    tree.hidden = boxes.length === 0
    const rows = this.shown.reduce((most, { row }) => Math.max(most, row + 1), 0)
    tree.style.height = `calc(var(--row) * ${Math.min(rows, MOST_ROWS)})`
    const { fontSize, fontFamily } = getComputedStyle(tree)
    this.measure.font = `${fontSize} ${fontFamily}`
    this.focused = 0
    const width = tree.clientWidth
    this.elements.clear()
    for (const i of this.drawn) {
      const made = this.elementOf(i, width)
      this.elements.set(i, made)
      this.numbers.set(made, i)
    }
    tree.replaceChildren(...this.elements.values())
    this.showCrumbs(on)
    this.cut.textContent = `${depth < zoom.path.length ? NOT_FOUND : ''} ${cutText(rows, isCut)}`.trim()
    this.cut.hidden = this.cut.textContent === ''
    if (hadFocus) this.elements.get(0)?.focus({ preventScroll: true })
  }

  private elementOf(index: number, width: number): HTMLElement {
    const box = this.shown[index]
    const { background, bytes } = this.told(box)
    const made = element('div', {
      role: 'treeitem',
      tabindex: index === this.focused ? '0' : '-1',
      'aria-level': String(box.row + 1),
    })
    const room = box.width * width - PADDING
    if (room > LEAST_LABEL) {
      const label = labelOf(box.calls, room, text => this.measure.measureText(text).width)
      const long = `${label} ${bytes}`
      made.textContent = label !== '' && this.measure.measureText(long).width <= room ? long : label
    }
    if (made.textContent === '') made.setAttribute('aria-label', `${nameOf(box.calls)}: ${bytes}`)
    made.style.left = `${box.left * 100}%`
    made.style.width = `${box.width * 100}%`
    made.style.top = `calc(var(--row) * ${box.row})`
    made.style.background = background
    return made
  }

  private showCrumbs(on: readonly number[]): void {
    const { zoom, boxes } = this
    const steps = zoom.levels.map((level, i) => {
      const name = boxes[on[level]].label
      return i === zoom.levels.length - 1
        ? element('span', { 'aria-current': 'true' }, name)
        : button(name, () => this.zoomOut(i + 1))
    })
    this.crumbs.hidden = steps.length === 0
    this.crumbs.replaceChildren(
      button('all', () => this.zoomOut(0)),
      ...steps,
    )
  }

  private zoomTo(index: number): void {
    const box = this.shown[index]
    const path = box === undefined ? [] : pathTo(this.boxes, box.first)
    // The outermost box is shown already.
    if (path.length === this.zoom.path.length) return
    hideTip()
    this.onZoom({ path, levels: [...this.zoom.levels, path.length] })
  }

  /** Goes back to the state after the first `count` steps inwards. */
  private zoomOut(count: number): void {
    const levels = this.zoom.levels.slice(0, count)
    this.onZoom({ path: this.zoom.path.slice(0, levels.at(-1) ?? 0), levels })
  }

  private key(event: KeyboardEvent): void {
    const { key, ctrlKey, altKey, metaKey } = event
    const at = this.indexOf(event.target)
    if (at < 0 || ctrlKey || altKey || metaKey) return
    const { zoom } = this
    const isZoomed = zoom.levels.length > 0
    const next = this.neighbour(at, key)
    if (next !== null) this.focus(next)
    else if (key === 'Enter' || key === ' ') this.zoomTo(at)
    else if (isZoomed && (key === 'Escape' || key === 'Backspace')) this.zoomOut(zoom.levels.length - 1)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  /** The box that an arrow leads to: of a caller, a call inside, or beside in the same row; null for other keys. */
  private neighbour(at: number, key: string): number | null {
    const { shown, drawn } = this
    const found = {
      ArrowUp: () => shown[at].caller,
      ArrowDown: () => drawn.find(i => shown[i].caller === at),
      ArrowLeft: () => drawn.findLast(i => i < at && shown[i].row === shown[at].row),
      ArrowRight: () => drawn.find(i => i > at && shown[i].row === shown[at].row),
    }[key]
    if (found === undefined) return null
    const index = found() ?? at
    return index < 0 ? at : index
  }

  private focus(index: number): void {
    this.elements.get(this.focused)?.setAttribute('tabindex', '-1')
    this.focused = index
    const made = this.elements.get(index)
    made?.setAttribute('tabindex', '0')
    made?.focus()
  }

  private hint(index: number, point: { readonly clientX: number; readonly clientY: number }): void {
    const box = this.shown[index]
    if (box === undefined) {
      hideTip()
      return
    }
    const { bytes, lines } = this.told(box)
    const { calls } = box
    const places = calls.slice(0, MOST_LISTED).map(({ place }) => place)
    const more = calls.length - places.length
    const last = more > 0 ? [`… ${formatCount(more)} more, to ${calls.at(-1)!.place}`] : []
    showTip(point, [`${nameOf(calls)}: ${bytes}`, ...lines, ...places.filter(place => place !== ''), ...last])
  }

  private indexOf(target: EventTarget | null): number {
    return this.numbers.get(target ?? this) ?? -1
  }
}

function nameOf(calls: readonly Box[]): string {
  return labelOf(calls, MOST_LETTERS, text => text.length) || `${formatCount(calls.length)} calls`
}

function cutText(rows: number, isCut: boolean): string {
  const more = rows > MOST_ROWS ? `${formatCount(rows - MOST_ROWS)} more rows of calls are not drawn.` : ''
  const deeper = isCut ? 'Deeper calls are left out, because they would be too many boxes.' : ''
  const cut = [more, deeper].filter(text => text !== '')
  return cut.length === 0 ? '' : [...cut, 'Zoom in to see them.'].join(' ')
}
