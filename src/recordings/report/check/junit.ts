// A run compared with its base, as JUnit XML, which GitLab, Jenkins and actions of GitHub read: a test case a figure.

import { xmlText } from '../../../core/base/shown-text.js'
import type { FigureName, GrowthFigure } from '../../trace/analysis/run-growth.js'
import { type Checked, failureOf, notesOf, peaksLine, restLines, siteCells, titleOf } from './check-words.js'

const SUITE = 'cuda-mempool check'
/** Jenkins takes the part before the last dot for a package. */
const CLASS = 'gpu.memory'
const NAMES: Readonly<Record<FigureName, string>> = {
  inUse: 'memory in use at the peak',
  reserved: 'memory reserved at the peak',
  failedRequests: 'failed requests',
}
const MOST_SITES = 20

/** The XML, with a line feed at its end. */
export function checkJunit(checked: Checked): string {
  const { figures } = checked.growth
  const failures = figures.filter(({ passed }) => passed === false).length
  const skipped = figures.filter(({ passed }) => passed === null).length
  const counts = `tests="${figures.length}" failures="${failures}" errors="0" skipped="${skipped}" time="0"`
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="${SUITE}" tests="${figures.length}" failures="${failures}" errors="0" time="0">`,
    `  <testsuite name="${SUITE}" ${counts}>`,
    ...figures.map(figure => caseOf(figure, checked)),
    `    <system-out>${linesOf([titleOf(checked), ...notesOf(checked)])}</system-out>`,
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n')
}

function caseOf(figure: GrowthFigure, checked: Checked): string {
  const start = `    <testcase classname="${CLASS}" name="${NAMES[figure.name]}" time="0"`
  if (figure.passed === true) return `${start}/>`
  const result =
    figure.passed === null
      ? '<skipped message="a recording does not contain it"/>'
      : `<failure type="growth" message="${xmlText(failureOf(figure, checked.run, checked.growth.limit))}">` +
        `${linesOf(detailsOf(checked))}</failure>`
  return `${start}>\n      ${result}\n    </testcase>`
}

/** The call sites that hold more at the peak, for the text of a failure. */
function detailsOf(checked: Checked): string[] {
  const sites = checked.growth.grown.slice(0, MOST_SITES).map(siteCells)
  return [
    ...sites.map(({ growth, place, was }) => `${growth} ${place} (${was})`),
    ...restLines(checked.growth, MOST_SITES),
    peaksLine(checked),
  ]
}

/** Text for an element; only the line feeds between the lines stay. */
function linesOf(lines: readonly string[]): string {
  return lines.map(xmlText).join('\n')
}
