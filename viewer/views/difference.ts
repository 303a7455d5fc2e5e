// The changes between the first two recordings: sentences, both curves over each other, and the call stacks
// as an icicle by sign and as a table.

import { byteTicks } from '../../src/recordings/picture/drawing/axes.js'
import { drawLineEnds, type LineEnd } from '../../src/recordings/picture/drawing/line-ends.js'
import { policyColour, signTint } from '../../src/recordings/picture/drawing/theme.js'
import type { PageDifference } from '../../src/recordings/report/page/page-data.js'
import { byId, element, sizeList } from '../elements.js'
import type { Page, ViewPart } from '../page.js'
import { CanvasSurface, REM } from '../surface.js'
import { formatBytes } from '../text.js'
import { GUTTER } from './frame.js'
import { IcicleView, NO_ZOOM } from './icicle.js'

const HEIGHT = 150 * REM
const MOST_FIRST = 3
/** The names of both curves and the text of the axis stand in one row. */
const LEAST_WITH_AXIS_TEXT = 500 * REM
const [RIGHT, LEGEND, TOP] = [24 * REM, 22 * REM, 8]
/** The policies whose colours A and B have: other ones than growth and shrinking. */
const COLOURS = ['waiting', 'driver-pool'] as const
const DASHES: readonly (readonly number[])[] = [[6, 3], []]

type ChangedBox = PageDifference['icicle']['boxes'][number]

export class Difference implements ViewPart {
  private readonly canvas = element('canvas', { 'aria-hidden': 'true' })
  private readonly host = element('div', { class: 'icicle' })
  private readonly icicle: IcicleView<ChangedBox>
  private zoom = NO_ZOOM
  /** theme and width of the drawn boxes */
  private looks = ''

  constructor(
    private readonly page: Page,
    private readonly difference: PageDifference,
  ) {
    const { lines, rows, more, names } = difference
    this.icicle = new IcicleView(this.host, 'Changes by call, outermost first', zoom => {
      this.zoom = zoom
      this.showIcicle()
    })
    const section = byId('difference')
    section.hidden = false
    section.append(
      ...lines.map((line, i) => element('p', i === 0 ? { class: 'lead' } : {}, line)),
      ...(rows.length === 0 ? [] : [changeList(rows)]),
      element('div', { class: 'picture' }, this.canvas),
      ...(rows.length === 0 ? [] : [legend(), this.host, tableOf(difference)]),
    )
    byId('difference-names').textContent = `A: ${names[0]} · B: ${names[1]}`
    if (more > 0) section.append(element('p', { class: 'quiet' }, `and ${more} call sites with smaller changes`))
    page.views.push(this)
  }

  show(): void {
    this.showCurves()
    const looks = `${this.page.theme.isDark} ${this.icicle.width}`
    if (looks === this.looks) return
    this.looks = looks
    this.showIcicle()
  }

  private showIcicle(): void {
    this.icicle.draw(this.difference.icicle, this.zoom, ({ calls: [{ grownBytes, shrunkBytes }] }) => ({
      bytes: signed(grownBytes - shrunkBytes),
      lines: grownBytes > 0 && shrunkBytes > 0 ? [`+${formatBytes(grownBytes)}, −${formatBytes(shrunkBytes)}`] : [],
      background: signTint(grownBytes, shrunkBytes, this.page.theme),
    }))
  }

  /** Draws the curves over the share of each recording that has passed. */
  private showCurves(): void {
    const { canvas, page, difference } = this
    const { theme } = page
    const ratio = window.devicePixelRatio || 1
    const width = canvas.clientWidth
    if (width === 0) return
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(HEIGHT * ratio)
    canvas.style.height = `${HEIGHT}px`
    const context = canvas.getContext('2d')!
    context.scale(ratio, ratio)
    const surface = new CanvasSurface(context)
    const [plotWidth, plotHeight] = [width - GUTTER - RIGHT, HEIGHT - LEGEND - TOP]
    const top = Math.max(1, ...difference.curves.flat())
    const y = (bytes: number) => TOP + plotHeight * (1 - bytes / top)
    for (const bytes of byteTicks(top, 3)) {
      surface.line(GUTTER, Math.round(y(bytes)) + 0.5, GUTTER + plotWidth, Math.round(y(bytes)) + 0.5, theme.grid)
      surface.text(GUTTER - 8, y(bytes), formatBytes(bytes), theme.quiet, { align: 'right' })
    }
    const ends: LineEnd[] = []
    for (const [i, curve] of difference.curves.entries()) {
      const colour = policyColour(COLOURS[i], theme)
      const points = curve.flatMap((bytes, column) => [
        GUTTER + (column / curve.length) * plotWidth,
        y(bytes),
        GUTTER + ((column + 1) / curve.length) * plotWidth,
        y(bytes),
      ])
      surface.path(points, colour, 1.5, DASHES[i])
      const left = GUTTER + i * 130 * REM
      surface.line(left, HEIGHT - 8 * REM, left + 14 * REM, HEIGHT - 8 * REM, colour, DASHES[i], 1.5)
      surface.text(left + 20 * REM, HEIGHT - 8 * REM, `in use in ${'AB'[i]}`, theme.ink)
      if (curve.length > 0) ends.push({ y: y(curve[curve.length - 1]), text: 'AB'[i], colour, isBold: true })
    }
    drawLineEnds(surface, { left: GUTTER, top: TOP, width: plotWidth, height: plotHeight }, ends, theme)
    if (plotWidth >= LEAST_WITH_AXIS_TEXT) {
      surface.text(width - RIGHT, HEIGHT - 8 * REM, 'from start to end of each recording', theme.quiet, {
        align: 'right',
      })
    }
  }
}

/** The greatest changes, for the first screen. */
function changeList(rows: PageDifference['rows']): HTMLElement {
  const lines = rows.slice(0, MOST_FIRST).map(({ text, bytes: [from, to] }) => [signed(to - from), text] as const)
  return sizeList(lines)
}

function legend(): HTMLElement {
  const key = (kind: string, text: string) => [element('i', { class: `key ${kind}`, 'aria-hidden': 'true' }), text]
  const text = '. Width: the bytes that grew and shrank; pale: they cancel each other.'
  return element('p', { class: 'quiet' }, ...key('more', 'grew '), ...key('less', 'shrank'), text)
}

function signed(bytes: number): string {
  return bytes === 0 ? '±0' : `${bytes > 0 ? '+' : '−'}${formatBytes(Math.abs(bytes))}`
}

function tableOf({ rows }: PageDifference): HTMLElement {
  const most = Math.max(...rows.map(({ bytes: [from, to] }) => Math.abs(to - from)))
  const body = rows.map(({ text, bytes: [from, to] }) => {
    const bar = element('i', { class: to > from ? 'more' : 'less' })
    bar.style.width = `${(Math.abs(to - from) / most) * 50}%`
    return element(
      'tr',
      {},
      element('td', {}, text),
      element('td', {}, element('span', { class: 'signed', 'aria-hidden': 'true' }, bar)),
      element('td', {}, signed(to - from)),
    )
  })
  const head = element(
    'tr',
    {},
    element('th', {}, 'call site'),
    element('td', {}),
    element('th', {}, 'change from A to B'),
  )
  const table = element('table', {}, element('thead', {}, head), element('tbody', {}, ...body))
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Changes by call site' }, table)
}
