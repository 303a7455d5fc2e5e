// A run compared with its base, as Markdown of GitHub for a summary or a comment. Names of a recording may have any
// letters. All that Markdown or HTML could read in them is written as character references, which form no structure.

import { printable } from '../../../core/base/shown-text.js'
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

/**
 * Each has at most two names of 160 letters, and a letter at most 6 bytes: 40 kB for all. With the head below it stays
 * under 64 KiB, which GitHub allows in a comment.
 */
const MOST_SITES = 20
/** Letters that begin structure in GitHub's Markdown, in HTML, a mention, a formula or a link. */
const ACTIVE = /[\\`*_[\]<>&|~$@#!{}^]|:(?=\/\/)|(?<=www)\./gi

/** The Markdown, with a line feed at its end and at most 64 KiB. */
export function checkMarkdown(checked: Checked): string {
  const { growth } = checked
  const listed = growth.grown.slice(0, MOST_SITES).map(siteCells)
  const rest = [...restLines(growth, MOST_SITES), peaksLine(checked)]
  const parts = [
    `### GPU memory: ${growth.passed ? 'passed' : 'failed'}`,
    [`Run: ${titleOf(checked)}`, ...verdictLines(checked)].map(markdownText).join('<br>\n'),
    tableOf(
      ['', 'base', 'run', 'growth', 'allowed', 'result'],
      growth.figures.map(figure => [FIGURES[figure.name], ...cellsOf(figure)]),
    ),
    ...(listed.length === 0
      ? []
      : [
          tableOf(
            ['call sites at the peak', 'growth', ''],
            listed.map(({ growth, place, was }) => [place, growth, was]),
          ),
        ]),
    rest.map(markdownText).join('<br>\n'),
    ...notesOf(checked).map(note => `> ${markdownText(note)}`),
  ]
  return `${parts.join('\n\n')}\n`
}

/** The first column is text, the others are figures. */
function tableOf(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const rule = line(titles.map((_, i) => (i === 0 ? '---' : '--:')))
  return [line(titles), rule, ...rows.map(cells => line(cells.map(markdownText)))].join('\n')
}

/** Text on one line in which no letter has a meaning for Markdown or HTML, unless it begins the line. */
function markdownText(text: string): string {
  const oneLine = printable(text).replace(/\p{Cs}/gu, '?')
  return oneLine.replace(ACTIVE, letter => `&#${letter.charCodeAt(0)};`)
}
