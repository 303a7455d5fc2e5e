// A chart of bytes over the events of a recording, in Braille letters: each has two columns of four dots.

import { formatBytes } from '../../core/base/bytes.js'

/** The first of 256 letters, without a dot. */
const BRAILLE = 0x2800
/** The bits of the dots, from the top to the bottom, in the left and the right column. */
const DOTS = [
  [0x01, 0x02, 0x04, 0x40],
  [0x08, 0x10, 0x20, 0x80],
] as const
const DOTS_A_ROW = 4
const COLUMNS_A_LETTER = 2
const LEAST_COLUMNS = 4

/** Bytes by event. */
export interface ChartCurves {
  /** drawn as an area */
  readonly inUseBytes: Float64Array
  /** drawn as a line; null if unknown */
  readonly reservedBytes: Float64Array | null
}

/** Lines of at most `width` letters. The top is `topBytes`; a column shows the most that its events have. */
export function brailleChart(curves: ChartCurves, topBytes: number, width: number, rows: number): string[] {
  const top = formatBytes(topBytes)
  const columns = width - top.length - 1
  if (columns < LEAST_COLUMNS) return chartLines(curves, topBytes, width, rows)
  const margin = (row: number) => (row === 0 ? top : row === rows - 1 ? '0' : '').padStart(top.length)
  return chartLines(curves, topBytes, columns, rows).map((line, row) => `${margin(row)} ${line}`)
}

function chartLines({ inUseBytes, reservedBytes }: ChartCurves, topBytes: number, width: number, rows: number) {
  const letters = Array.from({ length: rows }, () => new Uint8Array(width))
  const dots = rows * DOTS_A_ROW
  const heightOf = (bytes: number) => (topBytes === 0 ? 0 : Math.min(dots, Math.ceil((bytes / topBytes) * dots)))
  const set = (column: number, height: number) => {
    const fromTop = dots - height
    letters[Math.floor(fromTop / DOTS_A_ROW)][Math.floor(column / COLUMNS_A_LETTER)] |=
      DOTS[column % COLUMNS_A_LETTER][fromTop % DOTS_A_ROW]
  }
  const columns = width * COLUMNS_A_LETTER
  for (let column = 0; column < columns; column++) {
    const area = heightOf(mostWithin(inUseBytes, column, columns))
    for (let height = 1; height <= area; height++) set(column, height)
    const line = reservedBytes === null ? 0 : heightOf(mostWithin(reservedBytes, column, columns))
    if (line > 0) set(column, line)
  }
  return letters.map(line => Array.from(line, bits => String.fromCharCode(BRAILLE + bits)).join(''))
}

/** The greatest value of a column; with fewer values than columns, some share one. */
function mostWithin(values: Float64Array, column: number, columns: number): number {
  const from = Math.floor((column * values.length) / columns)
  const to = Math.max(from + 1, Math.floor(((column + 1) * values.length) / columns))
  let most = 0
  for (let i = from; i < to && i < values.length; i++) if (values[i] > most) most = values[i]
  return most
}
