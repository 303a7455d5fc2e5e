// Tables of plain text. A table wider than the terminal continues below itself, with its first column repeated, so
// that no line is cut or wrapped within a number.

import { narrowed } from '../trace/frames/short-path.js'

/** Emphasis of text; each function returns its text with marks of no width. */
export interface Paint {
  readonly bold: (text: string) => string
  readonly dim: (text: string) => string
  readonly green: (text: string) => string
  readonly red: (text: string) => string
}

const same = (text: string) => text
export const PLAIN: Paint = { bold: same, dim: same, green: same, red: same }

export interface Column<Row> {
  /** one or more lines */
  readonly title: string
  readonly align: 'left' | 'right'
  readonly cell: (row: Row) => string
}

export function rightColumn<Row>(title: string, cell: (row: Row) => string): Column<Row> {
  return { title, align: 'right', cell }
}

/** How a text is made for a terminal. */
export interface TextStyle {
  /** columns of the terminal */
  readonly width: number
  readonly paint: Paint
}

interface TableStyle<Row> extends TextStyle {
  /** the emphasis of a whole row */
  readonly tone?: (row: Row) => (line: string) => string
}

const GAP = '  '
/** Of the names of facts. */
const NAME_COLUMNS = 9
/** A line of a file, or a name of C++. */
const PLACE = /:\d+$|::/
/** Spaces where a line may end: not between a number and its unit. */
const BREAK = /(?<!\d) | (?!\S{1,3}(?:[\s,.;:)]|$))/

/** A line of a list, whose text is wrapped behind its name. */
export function rowText(name: string, text: string, width: number): string {
  const start = `  ${name}  `
  const lines = wrapText(text, Math.max(1, width - start.length))
  return start + lines.replaceAll('\n', `\n${' '.repeat(start.length)}`)
}

/** Facts below each other, each behind its name. */
export function factLines(facts: readonly (readonly [name: string, value: string])[], width: number): string[] {
  return facts.map(([name, value]) => rowText(name.padEnd(NAME_COLUMNS), value, width))
}

/** Lines that begin with a size; the sizes end below each other. */
export function sizeLines(lines: readonly (readonly [size: string, what: string])[], width: number): string[] {
  const columns = Math.max(...lines.map(([size]) => size.length))
  return lines.map(([size, what]) => rowText(size.padStart(columns), what, width))
}

/** A table with titles and a rule; the first column names the rows. */
export function tableText<Row>(rows: readonly Row[], columns: readonly Column<Row>[], style: TableStyle<Row>): string {
  return pages(rows, columns, style.width)
    .map(page => pageText(rows, page, style))
    .join('\n\n')
}

/**
 * Text in lines of at most `width` columns; lines after the first begin with `indent`. The place of a line that is
 * longer loses folders from the left.
 */
export function wrapText(text: string, width: number, indent = ''): string {
  const lines: string[] = []
  const room = width - indent.length
  let line = ''
  for (const whole of text.split(BREAK)) {
    const word = whole.length > room && PLACE.test(whole) ? narrowed(whole, room) : whole
    if (line.trim() !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = indent + word
    } else line += line === '' || line === indent ? word : ` ${word}`
  }
  return [...lines, line].join('\n')
}

function pages<Row>(rows: readonly Row[], columns: readonly Column<Row>[], width: number): Column<Row>[][] {
  const [key, ...others] = columns
  const keyWidth = widthOf(rows, key)
  const pages: Column<Row>[][] = [[key]]
  let used = keyWidth
  for (const column of others) {
    const needed = GAP.length + widthOf(rows, column)
    if (used + needed > width && pages.at(-1)!.length > 1) {
      pages.push([key])
      used = keyWidth
    }
    pages.at(-1)!.push(column)
    used += needed
  }
  return pages
}

function pageText<Row>(rows: readonly Row[], columns: readonly Column<Row>[], style: TableStyle<Row>): string {
  const widths = columns.map(column => widthOf(rows, column))
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, index) =>
        columns[index].align === 'left' ? cell.padEnd(widths[index]) : cell.padStart(widths[index]),
      )
      .join(GAP)
      .trimEnd()
  const titles = columns.map(column => column.title.split('\n'))
  const height = Math.max(...titles.map(lines => lines.length))
  const head = Array.from({ length: height }, (_, row) =>
    line(titles.map(lines => lines[row - height + lines.length] ?? '')),
  )
  const rule = widths.map(width => '─'.repeat(width)).join(GAP)
  const body = rows.map(row => (style.tone?.(row) ?? same)(line(columns.map(column => column.cell(row)))))
  return [...head.map(style.paint.bold), style.paint.dim(rule), ...body].join('\n')
}

function widthOf<Row>(rows: readonly Row[], { title, cell }: Column<Row>): number {
  return Math.max(...title.split('\n').map(line => line.length), ...rows.map(row => cell(row).length))
}
