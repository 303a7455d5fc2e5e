// The cells of a picture: one for each pixel. Painters write cells, not colours: one painting serves light, dark and
// print, and tests read it as letters.

/** The cells of a painting. From `Cell.first` on come the colours of the legend. */
export const Cell = {
  /** no memory */
  nothing: 0,
  /** memory that a policy has and no block uses */
  unused: 1,
  /** blocks too small for a row of pixels, together */
  small: 2,
  /** a block that a search or a filter leaves out */
  faded: 3,
  /** a block without a colour of its own */
  rest: 4,
  first: 5,
} as const

/** Colours of a legend. */
export const COLOURS = 8
/** How many different cells there are. */
export const CELLS = Cell.first + COLOURS
/** Added to the cell at the top of a block, which separates it from the next one. */
export const EDGE = 16
/** A block needs this many rows for an edge. */
export const EDGE_ROWS = 3

/** A picture of cells, column by column from the left, each from its top down. */
export interface Painting {
  readonly width: number
  readonly height: number
  readonly cells: Uint8Array
}

/** Colours of the cells, of edges from EDGE on, and of marks from MARK on, as RGBA in the byte order of ImageData. */
export type Palette = Uint32Array

/** Copies the column of pixels at `left` to those before `right`. */
export function widen(cells: Uint8Array, height: number, left: number, right: number): void {
  for (let x = left + 1; x < right; x++) cells.copyWithin(x * height, left * height, (left + 1) * height)
}
