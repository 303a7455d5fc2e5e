// Pictures of a recording on one sheet, for a file: a heading, rows of pictures with titles and legends, and a foot.

import { drawLegend, LETTER, type LegendItem, legendHeight } from './legend.js'
import type { Surface } from './surface.js'
import type { Theme } from './theme.js'

const [MARGIN, LINE, TITLE, GAP] = [16, 20, 30, 10]

export interface SheetPart {
  readonly title: string
  /** of the picture, in pixels */
  readonly width: number
  readonly height: number
  /** where its plot begins, for the legend below */
  readonly left: number
  readonly legend: readonly LegendItem[]
  readonly draw: (surface: Surface) => void
}

export interface Sheet {
  /** lines of text, the first in bold */
  readonly heading: readonly string[]
  /** parts beside each other in each row */
  readonly rows: readonly (readonly SheetPart[])[]
  /** what the pictures are of */
  readonly foot: string
}

/** The size of a sheet in pixels. */
export function sheetSize({ heading, rows }: Sheet): { readonly width: number; readonly height: number } {
  const widths = rows.map(row => row.reduce((sum, { width }) => sum + width, GAP * (row.length - 1)))
  const width = Math.max(...widths)
  const lines = 1 + linesOf(heading, width).length
  const height = lines * LINE + rows.reduce((sum, row) => sum + rowHeight(row), 0)
  return { width: width + 2 * MARGIN, height: height + 2 * MARGIN }
}

export function drawSheet(surface: Surface, sheet: Sheet, theme: Theme): void {
  const { width, height } = sheetSize(sheet)
  surface.rectangle(0, 0, width, height, theme.paper)
  let y = MARGIN
  for (const { text, isFirst } of linesOf(sheet.heading, width - 2 * MARGIN)) {
    surface.text(MARGIN, y + LINE / 2, text, theme.ink, { bold: isFirst })
    y += LINE
  }
  for (const row of sheet.rows) {
    let x = MARGIN
    for (const part of row) {
      surface.text(x, y + TITLE / 2, part.title, theme.ink, { bold: true })
      surface.shifted(x, y + TITLE, () => part.draw(surface))
      const plot = { left: x + part.left, top: y + TITLE + part.height, width: part.width - part.left }
      drawLegend(surface, part.legend, plot, theme)
      x += part.width + GAP
    }
    y += rowHeight(row)
  }
  surface.text(MARGIN, y + LINE / 2, sheet.foot, theme.quiet)
}

function rowHeight(row: readonly SheetPart[]): number {
  const heights = row.map(({ height, legend, width, left }) => height + legendHeight(legend, width - left))
  return TITLE + Math.max(...heights) + GAP
}

/** The heading in lines of the width. */
function linesOf(heading: readonly string[], width: number): { readonly text: string; readonly isFirst: boolean }[] {
  const most = Math.floor(width / LETTER)
  return heading.flatMap((sentence, i) => {
    const lines: string[] = []
    let line = ''
    for (const word of sentence.split(' ')) {
      if (line !== '' && line.length + 1 + word.length > most) {
        lines.push(line)
        line = word
      } else line = line === '' ? word : `${line} ${word}`
    }
    return [...lines, line].map(text => ({ text, isFirst: i === 0 }))
  })
}
