// Why a request failed: the panel above the pictures.

import type { PageAdvice, PageFailure, PageRemedies } from '../../src/recordings/report/page/page-data.js'
import { button, byId, element, sizeList } from '../elements.js'
import type { Page, ViewPart } from '../page.js'
import { formatBytes, formatCount } from '../text.js'

/** Of the run, around a failed request: enough to see how it came. */
const SHOWN_PART = 1 / 8

export class FailurePanel implements ViewPart {
  private shown = ''
  /** counted from the last failure backwards, so that the end of the run comes first */
  private index = 0

  constructor(private readonly page: Page) {
    page.views.push(this)
  }

  show(): void {
    const { page } = this
    const { failures } = page.recording
    const panel = byId('failure')
    panel.hidden = failures.length === 0
    const atCursor = failures.findIndex(({ event }) => event === page.state.cursor)
    if (atCursor >= 0) this.index = atCursor
    const index = Math.min(this.index, failures.length - 1)
    const now = `${page.state.recording} ${index}`
    if (now === this.shown || failures.length === 0) return
    this.shown = now
    panel.replaceChildren(...this.contents(failures[index], index, failures.length))
  }

  private contents(failure: PageFailure, index: number, count: number): HTMLElement[] {
    const { page } = this
    const { failures, advice, remedies } = page.recording
    const heading = element('div', { class: 'row' }, element('h2', {}, failure.title))
    const go = (to: number) => page.moveCursor(failures[(to + count) % count].event)
    if (count > 1) {
      heading.append(
        button('‹', () => go(index - 1), { 'aria-label': 'previous failed request' }),
        element('span', { class: 'quiet' }, `${formatCount(index + 1)} of ${formatCount(count)}`),
        button('›', () => go(index + 1), { 'aria-label': 'next failed request (o)' }),
      )
    }
    heading.append(button('show the moment', () => this.showMoment(failure.event)))
    const facts = element('dl')
    for (const [name, text] of failure.facts) facts.append(element('dt', {}, name), element('dd', {}, text))
    const made: HTMLElement[] = [heading, element('p', { class: 'verdict' }, failure.verdict)]
    const columns = element('div', { class: 'columns' }, facts)
    if (failure.holders.length > 0)
      columns.append(sizeList(failure.holders.map(({ bytes, text }) => [formatBytes(bytes), text])))
    made.push(columns)
    if (failure.pieces.length > 0) made.push(...piecesBar(failure))
    if (remedies !== null) made.push(remedyTable(remedies))
    if (advice.length > 0) made.push(adviceRow(advice))
    return made
  }
  /** Zooms the pictures to a part of the run around the event, and scrolls to them. */
  private showMoment(event: number): void {
    const { page } = this
    const place = page.at(event)
    const half = (page.end * SHOWN_PART) / 2
    page.moveCursor(event)
    page.zoom(place - half, place + half)
    byId('curves-section').scrollIntoView()
  }
}

/** The idle pieces beside the request, on one scale. */
function piecesBar({ pieces, askedBytes }: PageFailure): HTMLElement[] {
  const bar = element('div', { class: 'pieces', 'aria-hidden': 'true' })
  const box = (bytes: number, name: string) => {
    const made = element('i', { class: name, title: formatBytes(bytes) })
    made.style.flexGrow = String(bytes)
    made.style.flexBasis = '0'
    return made
  }
  bar.append(box(askedBytes, 'asked'), ...pieces.map(bytes => box(bytes, '')))
  const count = pieces.length === 1 ? 'one idle piece' : `the ${formatCount(pieces.length)} largest idle pieces`
  return [
    bar,
    element(
      'p',
      { class: 'quiet' },
      `Dashed: ${formatBytes(askedBytes)} asked for. Beside it, on one scale: ${count}.`,
    ),
  ]
}

/** The settings that would have helped, the best first, each to copy. */
function remedyTable({ columns, rows }: PageRemedies): HTMLElement {
  const head = element('tr', {}, ...['set this', ...columns].map(name => element('th', { scope: 'col' }, name)))
  head.append(element('td'))
  const body = rows.map(({ line, cells, note }) => {
    const first = element('td', {}, element('code', {}, line))
    if (note !== '') first.append(element('p', { class: 'quiet' }, note))
    const figures = cells.map((text, i) => element('td', { 'data-name': columns[i] }, text))
    return element('tr', {}, first, ...figures, element('td', {}, copyButton(line)))
  })
  return element(
    'div',
    { class: 'remedies' },
    element('table', {}, element('thead', {}, head), element('tbody', {}, ...body)),
  )
}

function adviceRow(advice: readonly PageAdvice[]): HTMLElement {
  const row = element('div', { class: 'advice' })
  for (const { text, isSetting } of advice) {
    row.append(
      isSetting
        ? element('div', { class: 'row' }, element('code', {}, text), copyButton(text))
        : element('p', {}, text),
    )
  }
  return row
}

function copyButton(text: string): HTMLElement {
  const copied = () =>
    void navigator.clipboard?.writeText(text).then(() => {
      made.replaceChildren('copied')
      made.setAttribute('aria-label', `copied ${text}`)
    })
  const made = button('copy', copied, { 'aria-label': `copy ${text}` })
  return made
}
