// The page's canvas to draw pictures on.

import type { Bitmap, Surface, TextStyle } from '../src/recordings/picture/drawing/surface.js'

/** Pixels for one pixel of the layout: more with a larger default font, which stays the same while a page is open. */
export const REM = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1

const FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

/** A font of the page in a size of its layout. */
export function fontOf(size: number, bold: boolean): string {
  return `${bold ? '600 ' : ''}${size * REM}px ${FAMILY}`
}

export class CanvasSurface implements Surface {
  readonly lineHeight = 13 * REM

  constructor(private readonly context: CanvasRenderingContext2D) {}

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    this.context.fillStyle = colour
    this.context.fillRect(x, y, width, height)
  }

  line(x1: number, y1: number, x2: number, y2: number, colour: string, dash: readonly number[] = [], width = 1): void {
    this.path([x1, y1, x2, y2], colour, width, dash)
  }

  text(x: number, y: number, text: string, colour: string, { align = 'left', bold = false }: TextStyle = {}): void {
    const { context } = this
    context.font = fontOf(12, bold)
    context.textAlign = align
    context.textBaseline = 'middle'
    context.fillStyle = colour
    context.fillText(text, x, y)
  }

  path(points: readonly number[], colour: string, width: number | 'fill', dash: readonly number[] = []): void {
    const { context } = this
    context.beginPath()
    for (let i = 0; i < points.length; i += 2) context.lineTo(points[i], points[i + 1])
    if (width === 'fill') {
      context.fillStyle = colour
      context.fill()
      return
    }
    context.setLineDash([...dash])
    context.lineWidth = width
    context.strokeStyle = colour
    context.lineJoin = 'round'
    context.stroke()
  }

  bitmap(x: number, y: number, width: number, height: number, { rgba, ...size }: Bitmap): void {
    const canvas = new OffscreenCanvas(size.width, size.height)
    const bytes = new Uint8ClampedArray(rgba.buffer as ArrayBuffer, rgba.byteOffset, rgba.byteLength)
    canvas.getContext('2d')!.putImageData(new ImageData(bytes, size.width, size.height), 0, 0)
    this.context.imageSmoothingEnabled = false
    this.context.drawImage(canvas, x, y, width, height)
  }

  shifted(x: number, y: number, draw: () => void): void {
    const { context } = this
    context.save()
    context.translate(x, y)
    draw()
    context.restore()
  }

  within(x: number, y: number, width: number, height: number, draw: () => void): void {
    const { context } = this
    context.save()
    context.beginPath()
    context.rect(x, y, width, height)
    context.clip()
    draw()
    context.restore()
  }
}
