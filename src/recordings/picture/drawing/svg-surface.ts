// SVG to draw a picture on.

import { xmlText } from '../../../core/base/shown-text.js'
import { CELLS, Cell, EDGE, type Painting } from '../cells.js'
import { coloured, isMarked, MARK, TILE } from '../patterns.js'
import type { Bitmap, Surface, TextStyle } from './surface.js'
import type { Theme } from './theme.js'

/** More rectangles make a file that no editor opens; such a picture is stored as pixels. */
const MOST_RECTANGLES = 20_000

/** Pixels as RGBA, row by row. */
export interface Pixels {
  readonly width: number
  readonly height: number
  readonly rgba: Uint32Array
}

export class SvgSurface implements Surface {
  readonly lineHeight = 13
  private readonly parts: string[] = []
  private readonly patterns = new Map<number, string>()

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly theme: Theme,
    /** the URL of an image of the pixels */
    private readonly imageOf: (pixels: Pixels) => string,
  ) {}

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    const size = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`
    this.parts.push(`<rect ${size} fill="${colour}"/>`)
  }

  line(x1: number, y1: number, x2: number, y2: number, colour: string, dash: readonly number[] = [], width = 1): void {
    this.path([x1, y1, x2, y2], colour, width, dash)
  }

  text(x: number, y: number, text: string, colour: string, { align = 'left', bold = false }: TextStyle = {}): void {
    const anchor = { left: 'start', center: 'middle', right: 'end' }[align]
    const weight = bold ? ' font-weight="600"' : ''
    const place = `x="${short(x)}" y="${short(y)}" fill="${colour}" text-anchor="${anchor}"${weight}`
    this.parts.push(`<text ${place} dominant-baseline="central">${xmlText(text)}</text>`)
  }

  path(points: readonly number[], colour: string, width: number | 'fill', dash: readonly number[] = []): void {
    const list = points.map(short).join(' ')
    const stroke = `fill="none" stroke="${colour}" stroke-width="${width}" stroke-dasharray="${dash.join(' ')}"`
    this.parts.push(`<polyline points="${list}" ${width === 'fill' ? `fill="${colour}"` : stroke}/>`)
  }

  bitmap(x: number, y: number, width: number, height: number, { cells, ...size }: Bitmap): void {
    if (cells === null) return
    const runs = runsOf({ ...size, cells })
    const scale = `transform="translate(${short(x)} ${short(y)}) scale(${width / size.width} ${height / size.height})"`
    if (runs.length <= MOST_RECTANGLES) {
      const boxes = runs.map(
        run =>
          `<rect x="${run.x}" y="${run.y}" width="${run.width}" height="${run.height}" fill="${this.fillOf(run.cell)}"/>`,
      )
      this.parts.push(`<g ${scale} shape-rendering="crispEdges">${boxes.join('')}</g>`)
      return
    }
    const url = this.imageOf({ ...size, rgba: coloured({ ...size, cells }, this.theme.palette, 1) })
    const box = `width="${size.width}" height="${size.height}" ${scale} image-rendering="pixelated"`
    this.parts.push(`<image ${box} href="${url}"/>`)
  }

  shifted(x: number, y: number, draw: () => void): void {
    this.parts.push(`<g transform="translate(${short(x)} ${short(y)})">`)
    draw()
    this.parts.push('</g>')
  }

  /** The colour of a cell, or its pattern. */
  private fillOf(cell: number): string {
    const name = `pattern-${cell}`
    if (this.patterns.has(cell)) return `url(#${name})`
    const { cells } = this.theme
    const [colour, mark] = [cells[cell], cells[MARK + cell]]
    const marks = Array.from({ length: TILE * TILE }, (_, i) => [i % TILE, Math.floor(i / TILE)] as const)
      .filter(([x, y]) => isMarked(cell, x, y))
      .map(([x, y]) => `M${x} ${y}h1v1h-1z`)
    if (marks.length === 0 || mark === colour) return colour
    const size = `width="${TILE}" height="${TILE}"`
    const tile = `<rect ${size} fill="${colour}"/><path d="${marks.join('')}" fill="${mark}"/>`
    this.patterns.set(cell, `<pattern id="${name}" ${size} patternUnits="userSpaceOnUse">${tile}</pattern>`)
    return `url(#${name})`
  }

  toString(): string {
    const { width, height, patterns } = this
    const defs = patterns.size === 0 ? '' : `<defs>${[...patterns.values()].join('')}</defs>`
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      `font-family="system-ui, sans-serif" font-size="12">${defs}${this.parts.join('')}</svg>`
    )
  }
}

interface Run {
  readonly x: number
  readonly y: number
  width: number
  readonly height: number
  readonly cell: number
}

/** A painting as rectangles: runs of equal cells in a column, joined with equal runs of the columns after it. */
function runsOf({ width, height, cells }: Painting): Run[] {
  const runs: Run[] = []
  let open = new Map<number, Run>()
  for (let x = 0; x < width; x++) {
    const next = new Map<number, Run>()
    for (let y = 0; y < height; ) {
      const start = y
      const cell = cells[x * height + y]
      while (y < height && cells[x * height + y] === cell) y++
      if (cell % EDGE === Cell.nothing) continue
      const key = (start * (height + 1) + y) * (EDGE + CELLS) + cell
      const before = open.get(key)
      if (before === undefined) {
        const run = { x, y: start, width: 1, height: y - start, cell }
        runs.push(run)
        next.set(key, run)
      } else {
        before.width++
        next.set(key, before)
      }
    }
    open = next
  }
  return runs
}

function short(value: number): string {
  return String(Math.round(value * 100) / 100)
}
