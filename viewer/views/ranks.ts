// Several recordings beside each other: sentences about their differences, the bytes in use of all over their runs, and
// their peaks. A click on a curve or a name opens that recording.

import { apart } from '../../src/recordings/picture/drawing/line-ends.js'
import { policyColour } from '../../src/recordings/picture/drawing/theme.js'
import type { PageRanks, PageRecording } from '../../src/recordings/report/page/page-data.js'
import { button, byId, element } from '../elements.js'
import type { Page } from '../page.js'
import { formatBytes } from '../text.js'

const SVG = 'http://www.w3.org/2000/svg'
/** The height of a label beside the height of the plot, which is 150 pixels, and how many fit below each other. */
const LABEL_SHARE = 18 / 150
const MOST_LABELS = 8
/** Of lines in one colour, in pixels. */
const DASHES = ['2 2', '6 3', '10 3 2 3', '1 4']

export class Ranks {
  private shown = ''

  constructor(private readonly page: Page) {
    byId('ranks').hidden = byId('tabs').hidden = page.data.recordings.length < 2
    byId('ranks-text').replaceChildren(...(page.data.ranks?.lines ?? []).map(line => element('p', {}, line)))
    if (page.data.recordings.length > 1) page.views.push(this)
  }

  show(): void {
    const { page } = this
    const now = `${page.state.recording} ${page.theme.isDark}`
    if (now === this.shown) return
    this.shown = now
    const { recordings, ranks } = page.data
    byId('tabs').replaceChildren(
      ...recordings.map(({ tab }, i) =>
        this.opener(i, { role: 'tab', 'aria-selected': String(i === page.state.recording), title: tab }),
      ),
    )
    const picture = ranks === undefined ? [] : [this.overlay(ranks)]
    byId('ranks-bars').replaceChildren(...picture, this.bars(ranks?.order ?? [...recordings.keys()]))
  }

  /** The curves over each other; that of the outlier and that of the open one lie on top. */
  private overlay({ curves, first }: PageRanks): HTMLElement {
    const most = curves.reduce((top, curve) => Math.max(top, ...curve), 1)
    const svg = document.createElementNS(SVG, 'svg')
    svg.setAttribute('viewBox', '0 0 1 1')
    svg.setAttribute('preserveAspectRatio', 'none')
    svg.setAttribute('aria-hidden', 'true')
    const last = (i: number) => (i === first ? 2 : i === this.page.state.recording ? 1 : 0)
    for (const i of [...curves.keys()].sort((a, b) => last(a) - last(b))) svg.append(this.line(i, curves[i], most))
    const plot = element('div', { class: 'plot' })
    plot.append(svg, ...this.labels(curves, most))
    const axis = element('span', { class: 'quiet' }, `${formatBytes(most)} in use`)
    const below = element('span', { class: 'quiet' }, 'from start to end of each recording')
    return element('div', { class: 'overlay' }, axis, plot, below)
  }

  /** The names right of the ends of their curves, moved down where they would overlap. */
  private labels(curves: PageRanks['curves'], most: number): HTMLElement[] {
    const { data, state } = this.page
    const isNamed = (i: number) => curves.length <= MOST_LABELS || i === data.ranks?.first || i === state.recording
    const ends = curves.map((curve, i) => ({ i, at: 1 - (curve.at(-1) ?? 0) / most })).filter(({ i }) => isNamed(i))
    ends.sort((a, b) => a.at - b.at)
    const wanted = ends.map(({ at }) => at)
    return apart(wanted, 1, LABEL_SHARE).map((place, k) => {
      const label = this.opener(ends[k].i)
      label.style.top = `${place * 100}%`
      label.style.color = this.colourOf(ends[k].i)
      return label
    })
  }

  private line(recording: number, curve: readonly number[], most: number): SVGElement {
    const line = document.createElementNS(SVG, 'polyline')
    const points = curve.flatMap((bytes, column) => {
      const y = 1 - bytes / most
      return [`${column / curve.length},${y}`, `${(column + 1) / curve.length},${y}`]
    })
    line.setAttribute('points', points.join(' '))
    line.setAttribute('stroke', this.colourOf(recording))
    if (this.colourOf(recording) === this.page.theme.quiet)
      line.style.strokeDasharray = DASHES[recording % DASHES.length]
    const title = document.createElementNS(SVG, 'title')
    title.textContent = this.page.data.recordings[recording].tab
    line.append(title)
    line.addEventListener('click', () => void this.page.open(recording))
    return line
  }

  /** Of many lines only two need colours: the outlier, and the open recording. */
  private colourOf(recording: number): string {
    const { page } = this
    if (recording === page.data.ranks?.first) return page.theme.alarm
    return recording === page.state.recording ? page.theme.ink : page.theme.quiet
  }

  private bars(order: readonly number[]): HTMLElement {
    const { recordings } = this.page.data
    const most = Math.max(1, ...recordings.map(each => Math.max(each.inUseBytes, reservedOf(each) ?? 0)))
    const bars = element('div', { class: 'bars' })
    for (const i of order) {
      const { policies, inUseBytes } = recordings[i]
      const reserved = reservedOf(recordings[i])
      const bar = element('i')
      bar.style.width = `${((reserved ?? 0) / most) * 100}%`
      bar.style.background = policyColour(policies[0]?.policy ?? '', this.page.theme)
      const least = element('b')
      least.style.left = `${(inUseBytes / most) * 100}%`
      const text = `${formatBytes(inUseBytes)} in use, ${reserved === null ? '–' : formatBytes(reserved)} reserved`
      const name = this.opener(i)
      name.style.borderLeftColor = this.colourOf(i)
      bars.append(name, element('span', { class: 'track' }, bar, least), element('span', {}, text))
    }
    return bars
  }

  /** A button that opens a recording. */
  private opener(recording: number, attributes: Readonly<Record<string, string>> = {}): HTMLElement {
    return button(this.page.data.recordings[recording].tab, () => void this.page.open(recording), attributes)
  }
}

/** The most that the first policy, the recorded one, took from the device. */
function reservedOf({ policies }: PageRecording): number | null {
  return policies[0]?.peakBytes ?? null
}
