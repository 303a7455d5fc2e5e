// Something to draw a picture on: a canvas, or SVG.

export interface TextStyle {
  readonly align?: 'left' | 'center' | 'right'
  readonly bold?: boolean
}

/** A painting: colours to show on a canvas, or cells for SVG. */
export interface Bitmap {
  readonly width: number
  readonly height: number
  readonly rgba: Uint32Array
  readonly cells: Uint8Array | null
}

export interface Surface {
  /** pixels from one line of text to the next */
  readonly lineHeight: number
  rectangle(x: number, y: number, width: number, height: number, colour: string): void
  line(x1: number, y1: number, x2: number, y2: number, colour: string, dash?: readonly number[], width?: number): void
  text(x: number, y: number, text: string, colour: string, style?: TextStyle): void
  /** a polygon through x1, y1, x2, y2, …; filled, or as a line of a width */
  path(points: readonly number[], colour: string, width: number | 'fill', dash?: readonly number[]): void
  bitmap(x: number, y: number, width: number, height: number, bitmap: Bitmap): void
  /** Draws with all places moved by x and y. */
  shifted(x: number, y: number, draw: () => void): void
  /** Draws within a rectangle only. */
  within?(x: number, y: number, width: number, height: number, draw: () => void): void
}

/** The part of a picture within its axes, in pixels of CSS. */
export interface Plot {
  readonly left: number
  readonly top: number
  readonly width: number
  readonly height: number
}
