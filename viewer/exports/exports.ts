// Pictures as files: PNG at twice the size, or SVG. They are read without the page, so they have all that it says.

import { fileName } from '../../src/core/base/shown-text.js'
import {
  blockItems,
  curveItems,
  failureItems,
  type LegendItem,
  policyItem,
  UNUSED_ITEM,
} from '../../src/recordings/picture/drawing/legend.js'
import { drawSheet, type Sheet, type SheetPart, sheetSize } from '../../src/recordings/picture/drawing/sheet.js'
import { type Pixels, SvgSurface } from '../../src/recordings/picture/drawing/svg-surface.js'
import { byId } from '../elements.js'
import type { Page } from '../page.js'
import { CanvasSurface } from '../surface.js'
import { formatBytes, formatCount, formatUs } from '../text.js'
import type { Pictures } from '../views/pictures.js'
import { makeMenu } from './menu.js'
import { imageOfPage } from './page-image.js'

const SCALE = 2

export class Exports {
  constructor(
    private readonly page: Page,
    private readonly pictures: Pictures,
  ) {
    makeMenu(document.querySelector<HTMLDetailsElement>('.menu')!)
    for (const each of document.querySelectorAll<HTMLElement>('[data-export]')) {
      each.addEventListener('click', () => {
        each.closest('details')?.removeAttribute('open')
        void page.client.during(this.write(each.dataset['export'] ?? ''))
      })
    }
  }

  /** Writes one of the menu's files. */
  async write(name: string): Promise<void> {
    if (name === 'print') {
      window.print()
      return
    }
    const [what, kind] = name.includes('.') ? name.split('.') : ['page', name]
    save(await this.contents(what, kind), `${fileName(this.page.recording.file)}-${what}.${kind}`)
  }

  private contents(what: string, kind: string): Promise<Blob> {
    const sheet = (rows: Sheet['rows']) => ({ heading: this.page.recording.verdict, rows, foot: this.foot })
    const [curves, stacked, maps] = [[this.curves()], [this.stacked()], this.maps()]
    // A browser may refuse to read an image that contains elements of a page. The pictures are written then.
    if (what === 'page') return imageOfPage(this.foot, SCALE).catch(() => this.png(sheet([curves, stacked, ...maps])))
    const chosen = sheet({ curves: [curves], stacked: [stacked], maps }[what] ?? [])
    return kind === 'svg' ? this.svg(chosen) : this.png(chosen)
  }

  private curves(): SheetPart {
    const { page, pictures } = this
    const { recording, info, state } = page
    const lines = info.policies
      .filter(({ policy }) => !state.hidden.includes(policy))
      .map(({ policy, label }) => {
        const peak = recording.policies.find(each => each.policy === policy)?.peakBytes ?? null
        const text = peak === null ? label : `${label} ${formatBytes(peak)}`
        return policyItem(policy, page.numberOf(policy), text)
      })
    const more = curveItems(info.peakBytes, recording.leastBytes)
    return pictures.curves.part('In use and reserved', [...lines, ...more, ...this.failures])
  }

  private stacked(): SheetPart {
    return this.pictures.stacked.part('Allocations, with bytes at the peak', [...this.blocks, ...this.failures])
  }

  /** The maps as on the page: beside each other if there is room. */
  private maps(): SheetPart[][] {
    const { maps } = this.pictures
    const parts = maps.map(({ drawing, part }, i) => {
      const peak = this.page.recording.policies.find(({ label }) => label === drawing.name)?.peakBytes ?? null
      const title = `${drawing.name}${peak === null ? '' : `, ${formatBytes(peak)}`}`
      return part.call(maps[i], title, i === 0 ? [UNUSED_ITEM, ...this.blocks, ...this.failures] : [])
    })
    const tops = new Set(maps.map(({ canvas }) => canvas.getBoundingClientRect().top))
    return tops.size === 1 ? [parts] : parts.map(part => [part])
  }

  private get blocks(): LegendItem[] {
    return blockItems(this.page.colours?.legend ?? [])
  }

  private get failures(): LegendItem[] {
    return failureItems(this.page.info.failures.length)
  }

  /** The file, the part that is shown, and the day. */
  private get foot(): string {
    const { recording, info, state, end } = this.page
    const text = (place: number) => (state.axis === 'event' ? formatCount(Math.round(place)) : formatUs(place))
    const isAll = state.from <= 0 && state.to >= end
    return [
      fileName(recording.file),
      ...(recording.device === '' ? [] : [recording.device]),
      `${formatCount(info.events)} ${info.events === 1 ? 'event' : 'events'}`,
      ...(info.spanUs > 0 ? [formatUs(info.spanUs)] : []),
      ...(isAll ? [] : [`shown: ${text(state.from)} to ${text(state.to)}`]),
      `by cuda-mempool, ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC`,
    ].join(' · ')
  }

  private async svg(sheet: Sheet): Promise<Blob> {
    const { page } = this
    const painted = page.painted
    const raw = await page.paint(true)
    if (raw !== null) page.painted = raw
    const { width, height } = sheetSize(sheet)
    const surface = new SvgSurface(width, height, page.theme, imageOf)
    drawSheet(surface, sheet, page.theme)
    page.painted = painted
    return new Blob([surface.toString()], { type: 'image/svg+xml' })
  }

  private png(sheet: Sheet): Promise<Blob> {
    const { width, height } = sheetSize(sheet)
    const canvas = new OffscreenCanvas(width * SCALE, height * SCALE)
    const context = canvas.getContext('2d')! as unknown as CanvasRenderingContext2D
    context.scale(SCALE, SCALE)
    drawSheet(new CanvasSurface(context), sheet, this.page.theme)
    return canvas.convertToBlob({ type: 'image/png' })
  }
}

/** The URL of an image of the pixels. */
function imageOf({ width, height, rgba }: Pixels): string {
  const canvas = document.createElement('canvas')
  Object.assign(canvas, { width, height })
  const bytes = new Uint8ClampedArray(rgba.buffer as ArrayBuffer, rgba.byteOffset, rgba.byteLength)
  canvas.getContext('2d')!.putImageData(new ImageData(bytes, width, height), 0, 0)
  return canvas.toDataURL()
}

function save(blob: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = name
  byId('page').append(link)
  link.click()
  link.remove()
}
