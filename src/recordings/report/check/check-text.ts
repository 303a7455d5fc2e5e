// A run compared with its base, as text for a terminal and for the log of a CI job: the verdict first.

import { type Column, rightColumn, sizeLines, type TextStyle, tableText, wrapText } from '../table.js'
import { fitted, sentences } from '../trace-lines.js'
import {
  type Checked,
  cellsOf,
  FIGURES,
  notesOf,
  peaksLine,
  restLines,
  siteCells,
  titleOf,
  verdictLines,
} from './check-words.js'

const MOST_SITES = 10

/** The whole text in lines of at most `width` columns. */
export function checkText(checked: Checked, { width, paint }: TextStyle): string {
  const { growth } = checked
  const tone = growth.passed ? paint.green : paint.red
  const title = wrapText(`${growth.passed ? 'Passed' : 'Failed'}: ${titleOf(checked)}`, width)
  const notes = notesOf(checked)
  const parts = [
    [paint.bold(tone(title)), ...verdictLines(checked).map(line => wrapText(line, width))].join('\n'),
    figuresText(checked, { width, paint }),
    [...sitesText(checked, { width, paint }), wrapText(peaksLine(checked), width)].join('\n'),
    ...(notes.length > 0 ? [sentences(notes, width)] : []),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

function figuresText({ growth }: Checked, style: TextStyle): string {
  const rows = growth.figures.map(figure => ({ figure, cells: [FIGURES[figure.name], ...cellsOf(figure)] }))
  const first: Column<(typeof rows)[0]> = { title: '', align: 'left', cell: ({ cells }) => cells[0] }
  const columns = ['base', 'run', 'growth', 'allowed', 'result'].map((title, i) =>
    rightColumn<(typeof rows)[0]>(title, ({ cells }) => cells[i + 1]),
  )
  const same = (line: string) => line
  const tone = ({ figure }: (typeof rows)[0]) => (figure.passed === false ? style.paint.red : same)
  return tableText(rows, [first, ...columns], { ...style, tone })
}

function sitesText({ growth }: Checked, { width }: TextStyle): string[] {
  const listed = growth.grown.slice(0, MOST_SITES).map(siteCells)
  if (listed.length === 0) return ['No call site holds more at the peak.', ...restLines(growth, 0)]
  const lines = sizeLines(
    listed.map(({ growth, place, was }) => [growth, `${place} (${was})`]),
    width,
  )
  const rest = restLines(growth, MOST_SITES).map(line => wrapText(line, width))
  return ['Call sites that hold more at the peak:', ...lines, ...rest]
}
