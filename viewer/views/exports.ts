// Pictures as files: PNG at twice the size, or SVG.

import { fileName } from '../../src/core/base/shown-text.js'
import { type Pixels, SvgSurface } from '../../src/recordings/picture/drawing/svg-surface.js'
import { byId } from '../elements.js'
import type { Page } from '../page.js'
import { CanvasSurface, fontOf } from '../surface.js'
import type { Frame } from './frame.js'
import type { Pictures } from './pictures.js'

const SCALE = 2
const SPACE = 30

export class Exports {
  constructor(
    private readonly page: Page,
    private readonly pictures: Pictures,
  ) {
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
    const { curves, stacked, maps } = this.pictures
    const [what, kind] = name.includes('.') ? name.split('.') : ['page', name]
    const chosen: Readonly<Record<string, readonly Frame[]>> = {
      curves: [curves],
      stacked: [stacked],
      maps,
      page: [curves, stacked, ...maps],
    }
    const file = `${fileName(this.page.recording.file)}-${what}.${kind}`
    save(kind === 'svg' ? await this.svg(chosen[what]) : await this.png(chosen[what]), file)
  }

  private async svg(frames: readonly Frame[]): Promise<Blob> {
    const { page } = this
    const painted = page.painted
    const raw = await page.paint(true)
    if (raw !== null) page.painted = raw
    const { width, height } = sizeOf(frames)
    const surface = new SvgSurface(width, height, page.theme, imageOf)
    let y = 0
    for (const frame of frames) {
      surface.text(0, y + SPACE / 2, frame.drawing.name, page.theme.ink, { bold: true })
      surface.move(y + SPACE)
      frame.drawOn(surface)
      surface.move(0)
      y += frame.drawing.height + SPACE
    }
    page.painted = painted
    return new Blob([surface.toString()], { type: 'image/svg+xml' })
  }

  private async png(frames: readonly Frame[]): Promise<Blob> {
    const { page } = this
    const { width, height } = sizeOf(frames)
    const isPage = frames.length > 1
    const top = isPage ? 74 : 0
    const canvas = new OffscreenCanvas(width * SCALE, (height + top) * SCALE)
    const context = canvas.getContext('2d')! as unknown as CanvasRenderingContext2D
    context.scale(SCALE, SCALE)
    const surface = new CanvasSurface(context)
    surface.rectangle(0, 0, width, height + top, page.theme.paper)
    if (isPage) {
      context.textBaseline = 'middle'
      page.recording.verdict.forEach((line, i) => {
        context.font = fontOf(17, true)
        context.fillStyle = page.theme.ink
        context.fillText(line, 8, 20 + i * 26, width - 16)
      })
    }
    let y = top
    for (const frame of frames) {
      surface.text(8, y + SPACE / 2, frame.drawing.name, page.theme.ink, { bold: true })
      context.save()
      context.translate(0, y + SPACE)
      frame.drawOn(surface)
      context.restore()
      y += frame.drawing.height + SPACE
    }
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

function sizeOf(frames: readonly Frame[]): { width: number; height: number } {
  const width = Math.max(...frames.map(frame => frame.canvas.clientWidth))
  return { width, height: frames.reduce((sum, frame) => sum + frame.drawing.height + SPACE, 0) }
}

function save(blob: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = name
  byId('page').append(link)
  link.click()
  link.remove()
}
