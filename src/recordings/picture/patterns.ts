// Patterns of the eight colours of a legend, for eyes, screens and paper that do not tell the colours apart. A pattern
// has no lines along the edges of bands.

import { CELLS, Cell, EDGE, type Painting, type Palette } from './cells.js'

/** Pixels of a tile's side, which repeats. */
export const TILE = 8
/** Added to a cell in a palette: the colour of the marks of its pattern. */
export const MARK = 2 * EDGE

const NO_MARKS = () => false
/** Whether a pixel of a tile is marked, by the colours' order. */
const PATTERNS: readonly ((x: number, y: number) => boolean)[] = [
  NO_MARKS,
  (x, y) => x % 8 < 2 && y % 8 < 2,
  (x, y) => (x + y) % 8 === 0,
  (x, y) => (x - y + 8) % 8 === 0,
  x => x % 8 === 0,
  (x, y) => (x + y) % 8 === 0 || (x - y + 8) % 8 === 0,
  (x, y) => x % 8 === 0 && y % 8 < 4,
  (x, y) => x % 4 === 0 && y % 4 === 0,
]

/** Whether a pixel has the colour of its cell's marks. Unused memory is hatched. */
export function isMarked(cell: number, x: number, y: number): boolean {
  if (cell === Cell.unused) return (x + y) % 4 === 0
  const pattern = PATTERNS[cell - Cell.first]
  return pattern?.(x, y) ?? false
}

/** Copies a painting into RGBA, row by row. A pixel of a pattern is `scale` pixels wide. */
export function coloured({ width, height, cells }: Painting, palette: Palette, scale: number): Uint32Array {
  const tiles = tilesOf(palette)
  const rgba = new Uint32Array(width * height)
  const rows = Uint8Array.from({ length: height }, (_, y) => (Math.floor(y / scale) % TILE) * TILE)
  for (let x = 0; x < width; x++) {
    const column = x * height
    const inTile = Math.floor(x / scale) % TILE
    for (let y = 0; y < height; y++) {
      rgba[y * width + x] = tiles[cells[column + y] * TILE * TILE + rows[y] + inTile]
    }
  }
  return rgba
}

/** The colours of all pixels of all tiles, so that no pixel of a painting is asked for its pattern. */
function tilesOf(palette: Palette): Uint32Array {
  const tiles = new Uint32Array((EDGE + CELLS) * TILE * TILE)
  for (let i = 0; i < tiles.length; i++) {
    const cell = Math.floor(i / (TILE * TILE))
    const [x, y] = [i % TILE, Math.floor(i / TILE) % TILE]
    tiles[i] = palette[isMarked(cell, x, y) ? MARK + cell : cell]
  }
  return tiles
}
