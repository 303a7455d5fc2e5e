// The bytes that each step leaves behind, as bars: weights and state stay from the first; a leak adds to each.

import { byteTicks } from '../../src/recordings/picture/drawing/axes.js'
import type { Surface } from '../../src/recordings/picture/drawing/surface.js'
import { byId } from '../elements.js'
import type { Page } from '../page.js'
import { CanvasSurface, REM } from '../surface.js'
import { formatBytes, formatCount, formatShare } from '../text.js'
import { GUTTER } from './frame.js'

const HEIGHT = 112 * REM
const MOST_BAR = 96 * REM
/** A step that leaves less than this share of the peak leaves nothing that matters. */
const LITTLE = 0.001

export class StepBars {
  private readonly canvas = document.createElement('canvas')

  constructor(private readonly page: Page) {
    page.views.push(this)
    const host = byId('steps')
    this.canvas.setAttribute('aria-hidden', 'true')
    host.append(this.canvas)
    host.setAttribute('role', 'slider')
    host.setAttribute('aria-label', 'the step whose blocks are shown below')
    host.setAttribute('aria-valuemin', '1')
    host.addEventListener('click', event => {
      const step = Math.floor((event.clientX - host.getBoundingClientRect().left - GUTTER) / this.barWidth)
      if (step >= 0 && step < page.info.left.length) page.update({ step, question: 'step' })
    })
    host.addEventListener('keydown', event => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
      if (by === undefined) return
      event.preventDefault()
      event.stopPropagation()
      const { step, question } = page.state
      const next = question === 'step' ? step + by : 0
      page.update({ step: Math.min(page.info.left.length - 1, Math.max(0, next)), question: 'step' })
    })
  }

  show(): void {
    const { page, canvas } = this
    const { left } = page.info
    byId('steps-section').hidden = left.length === 0
    if (left.length === 0) return
    byId('steps-text').textContent = sentenceOf(left, page.info.steps.length, page.info.peakBytes)
    const host = byId('steps')
    host.hidden = left.every(bytes => bytes === 0)
    if (host.hidden) return
    const { step, question } = page.state
    host.setAttribute('aria-valuemax', String(left.length))
    host.setAttribute('aria-valuenow', String(step + 1))
    host.setAttribute('aria-valuetext', `step ${step + 1} left ${formatBytes(left[step] ?? 0)}`)
    const ratio = window.devicePixelRatio || 1
    canvas.width = Math.round(host.clientWidth * ratio)
    canvas.height = Math.round(HEIGHT * ratio)
    canvas.style.height = `${HEIGHT}px`
    const context = canvas.getContext('2d')!
    context.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.draw(new CanvasSurface(context), question === 'step' ? step : -1)
  }

  private get barWidth(): number {
    return Math.min(MOST_BAR, (this.canvas.clientWidth - GUTTER) / this.page.info.left.length)
  }

  private draw(surface: Surface, chosen: number): void {
    const { theme, info } = this.page
    const top = info.left.reduce((most, bytes) => Math.max(most, bytes), 1) * 1.05
    const [base, height] = [HEIGHT - 20 * REM, HEIGHT - 28 * REM]
    const end = this.canvas.clientWidth
    for (const bytes of byteTicks(top, 3)) {
      const y = Math.round(base - (bytes / top) * height) + 0.5
      surface.line(GUTTER, y, end, y, theme.grid)
      surface.text(GUTTER - 8, y, formatBytes(bytes), theme.quiet, { align: 'right' })
    }
    const width = this.barWidth
    // Of steps that share a pixel the largest is drawn.
    const shared = Math.max(1, Math.floor(1 / width))
    for (let step = 0; step < info.left.length; step += shared) {
      const bytes = info.left.slice(step, step + shared).reduce((most, each) => Math.max(most, each), 0)
      const x = GUTTER + step * width
      const tall = Math.max(1, (bytes / top) * height)
      const isChosen = chosen >= step && chosen < step + shared
      const colour = isChosen ? theme.accent : theme.cells[4]
      surface.rectangle(x + 1, base - tall, Math.max(1, width - 3), tall, colour)
    }
    const every = Math.ceil((30 * REM) / width)
    for (let step = 0; step < info.left.length; step += every) {
      const x = GUTTER + (step + 0.5) * width
      surface.text(x, base + 11 * REM, formatCount(step + 1), theme.quiet, { align: 'center' })
    }
  }
}

/** The finding in one sentence. */
function sentenceOf(left: readonly number[], steps: number, peak: number): string {
  const [first, ...later] = left
  const leaking = later.filter(bytes => bytes > LITTLE * peak)
  const open = steps - left.length
  const rest = open > 0 ? `; blocks of the last ${formatCount(open)} may still be freed` : ''
  const kept = `step 1 left ${formatBytes(first)}`
  if (later.length === 0) return `${kept}${rest}`
  if (leaking.length === 0) return `${kept}; no later step left more than ${formatShare(LITTLE)} of the peak${rest}`
  const sum = formatBytes(leaking.reduce((total, bytes) => total + bytes, 0))
  return `${kept}; ${formatCount(leaking.length)} of the next ${formatCount(later.length)} left ${sum} together${rest}`
}
