// The bar at the top, the legend, and all keys.

import { Cell } from '../../src/recordings/picture/cells.js'
import type { LegendEntry } from '../../src/recordings/picture/colouring.js'
import { legendText } from '../../src/recordings/picture/stack-text.js'
import { button, byId, element, swatch } from '../elements.js'
import type { Page, State, ViewPart } from '../page.js'
import type { ColourAnswer } from '../protocol.js'
import { formatBytes, formatCount, formatShare, formatUs } from '../text.js'
import { Delayed } from '../worker-client.js'
import { NO_ZOOM } from './icicle.js'
import { hideTip } from './tip.js'

const FIND_DELAY_MS = 120
/** Keys and what they do, as the help lists them. */
const KEYS: readonly (readonly [string, string])[] = [
  ['← →', 'move the cursor; with Shift, the range'],
  ['↑ ↓', 'in a picture: the next block or hole at the cursor; Enter selects the block'],
  ['+ −', 'zoom in, out, around the cursor'],
  ['0', 'show everything'],
  ['p', 'cursor to the peak'],
  ['o', 'cursor to the next failed request'],
  ['[ ]', 'cursor to the end of the step before, of the next'],
  ['a b', 'set marker A, B at the cursor'],
  ['r', 'set A and B to the shown range: what it allocates and frees'],
  ['/', 'find in stacks'],
  ['i', 'innermost call first, or outermost'],
  ['h', 'show calls of the allocator and the dispatcher'],
  ['Esc', 'undo: selected block, filter, markers'],
  ['drag', 'show a range; with Shift: set A and B to it; double click: everything'],
  ['Ctrl + wheel', 'zoom; Shift + wheel: pan'],
]

export class Toolbar implements ViewPart {
  private shownLegend: ColourAnswer | null = null
  private wasDark = false
  /** the element with the focus before the search */
  private beforeFind: EventTarget | null = null

  constructor(private readonly page: Page) {
    page.views.push(this)
    const find = byId<HTMLInputElement>('find')
    const delayed = new Delayed(page.client, FIND_DELAY_MS)
    find.addEventListener('focus', ({ relatedTarget }) => {
      this.beforeFind = relatedTarget
    })
    find.addEventListener('input', () => delayed.run(() => page.update({ find: find.value })))
    const grouping = byId<HTMLSelectElement>('grouping')
    grouping.addEventListener('change', () => {
      page.update({ grouping: grouping.value as State['grouping'], only: [], without: [], group: null })
    })
    const axis = byId<HTMLSelectElement>('axis')
    axis.addEventListener('change', () => {
      const { from, to } = page.state
      const [first, last] = [page.eventAt(from), page.eventAt(to)]
      const isAll = from <= 0 && to >= page.end
      page.state.axis = axis.value as State['axis']
      page.update({ from: isAll ? 0 : page.at(first), to: isAll ? page.end : Math.min(page.end, page.at(last) + 1) })
      page.askAll()
    })
    byId('all').addEventListener('click', () => page.zoom(0, page.end))
    byId('help-open').addEventListener('click', () => this.help())
    byId('keys').append(
      ...KEYS.flatMap(([key, text]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, text)]),
    )
    document.addEventListener('keydown', event => this.key(event))
  }

  show(): void {
    const { page } = this
    const { state, info, colours } = page
    const grouping = byId<HTMLSelectElement>('grouping')
    if (grouping.options.length !== info.groupings.length) {
      grouping.replaceChildren(...info.groupings.map(each => new Option(each, each)))
    }
    grouping.value = state.grouping
    const axis = byId<HTMLSelectElement>('axis')
    axis.value = state.axis
    axis.disabled = info.spanUs === 0
    const find = byId<HTMLInputElement>('find')
    if (document.activeElement !== find) find.value = state.find
    find.disabled = !info.hasStacks && info.groupings.every(each => each !== 'tag' && each !== 'pool')
    find.placeholder = find.disabled ? 'no stacks to search' : 'find in stacks'
    const isAll = state.from <= 0 && state.to >= page.end
    byId('all').hidden = isAll
    const text = (place: number) => (state.axis === 'event' ? formatCount(Math.round(place)) : formatUs(place))
    byId('range').textContent = isAll ? '' : `${text(state.from)} to ${text(state.to)}`
    const found = colours?.found ?? null
    byId('found').textContent =
      found === null
        ? ''
        : `${formatCount(found)} ${found === 1 ? 'block' : 'blocks'}, ${formatBytes(colours!.foundBytesAtPeak)} at the peak`
    if (colours !== null && (colours !== this.shownLegend || this.wasDark !== page.theme.isDark))
      this.showLegend(colours)
  }

  private showLegend(colours: ColourAnswer): void {
    const { page } = this
    this.shownLegend = colours
    this.wasDark = page.theme.isDark
    const focused = document.activeElement?.getAttribute('data-key')
    const keys = colours.legend.map(entry => this.legendEntry(entry))
    const small = element(
      'span',
      { class: 'key' },
      swatch(page.theme, Cell.small),
      element('em', {}, 'blocks below half a pixel, together'),
    )
    byId('legend').replaceChildren(...keys, small)
    if (focused != null) byId('legend').querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus()
  }

  /** A button that shows only a group, and one that hides it. */
  private legendEntry({ cell, label, share }: LegendEntry): HTMLElement {
    const { page } = this
    const { only, without } = page.state
    const toggled = (cells: readonly number[]) =>
      cells.includes(cell) ? cells.filter(each => each !== cell) : [...cells, cell]
    const hide = () => page.update({ without: toggled(without), only: only.filter(each => each !== cell) })
    const show = ({ altKey }: MouseEvent) => (altKey ? hide() : page.update({ only: toggled(only) }))
    const choose = button('', show, {
      'aria-pressed': String(only.includes(cell)),
      'data-key': `only ${cell}`,
      title: `${label}: show only these`,
    })
    choose.append(
      swatch(page.theme, cell),
      element('span', { class: 'text' }, legendText(label)),
      element('em', {}, formatShare(share)),
    )
    const leaveOut = button('×', hide, {
      class: 'hide',
      'aria-pressed': String(without.includes(cell)),
      'aria-label': `hide ${label}`,
      'data-key': `hide ${cell}`,
      title: 'hide these (Alt + click)',
    })
    return element('span', { class: without.includes(cell) ? 'entry out' : 'entry' }, choose, leaveOut)
  }

  private help(): void {
    byId<HTMLDialogElement>('help').showModal()
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement
    const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)
    if (event.key === 'Escape') {
      this.escape(target)
      return
    }
    if (isField || event.ctrlKey || event.metaKey || event.altKey || byId<HTMLDialogElement>('help').open) return
    if (!this.act(event)) return
    event.preventDefault()
  }

  private escape(target: HTMLElement): void {
    const { page } = this
    if (target.id === 'find') {
      const before = this.beforeFind as HTMLElement | null
      // The keys act on the page again, as from any picture.
      const back = before?.isConnected ? before : byId('stacked')
      back.focus({ preventScroll: true })
      page.update({ find: '' })
    } else if (page.state.pinned !== null) page.update({ pinned: null })
    else page.update({ only: [], without: [], group: null, find: '', a: null, b: null, question: 'at' })
    hideTip()
  }

  /** Whether the key has a meaning. */
  private act({ key, shiftKey }: KeyboardEvent): boolean {
    const { page } = this
    const { state, info } = page
    const span = state.to - state.from
    const actions: Readonly<Record<string, () => void>> = {
      ArrowLeft: () => (shiftKey ? page.zoom(state.from - span / 8, state.to - span / 8) : this.move(-1)),
      ArrowRight: () => (shiftKey ? page.zoom(state.from + span / 8, state.to + span / 8) : this.move(1)),
      '+': () => page.scale(1 / 1.6),
      '=': () => page.scale(1 / 1.6),
      '-': () => page.scale(1.6),
      '0': () => page.zoom(0, page.end),
      p: () => page.moveCursor(info.peakEvent),
      o: () => this.next(info.failures, 1, info.failures[0]),
      '[': () => this.next(info.steps, -1),
      ']': () => this.next(info.steps, 1),
      a: () => page.update({ a: state.cursor }),
      b: () => page.update({ b: state.cursor }),
      r: () => page.mark(state.from, state.to),
      i: () => page.update({ inverted: !state.inverted, zoom: NO_ZOOM }),
      h: () => page.update({ machinery: !state.machinery }),
      '/': () => byId('find').focus(),
      '?': () => this.help(),
    }
    const action = Object.hasOwn(actions, key) ? actions[key] : undefined
    action?.()
    return action !== undefined
  }

  /** Moves the cursor by a column of the picture, or by an event if a column is less. */
  private move(by: 1 | -1): void {
    const { page } = this
    const { painted, state } = page
    const column = painted?.event.indexOf(state.cursor) ?? -1
    if (painted === null || column < 0) {
      const place = page.at(state.cursor)
      const width = (state.to - state.from) / (painted?.event.length ?? 1)
      const next = page.eventAt(place + by * width)
      page.moveCursor(next === state.cursor ? state.cursor + by : next)
      return
    }
    let next = column
    while (painted.event[next] === state.cursor && next > 0 && next < painted.event.length - 1) next += by
    const event = painted.event[next]
    page.moveCursor(event >= 0 && event !== state.cursor ? event : state.cursor + by)
  }

  /** Moves the cursor to the next of rising events, or if there is none to `otherwise`. */
  private next(events: Int32Array, by: 1 | -1, otherwise?: number): void {
    const { cursor } = this.page.state
    const found = by > 0 ? events.find(event => event > cursor) : events.findLast(event => event < cursor)
    const next = found ?? otherwise
    if (next !== undefined) this.page.moveCursor(next)
  }
}
