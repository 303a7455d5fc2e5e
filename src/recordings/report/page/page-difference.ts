// The difference between the first two recordings of a page.

import { shortened } from '../../../core/base/shown-text.js'
import { pictureFrame } from '../../picture/stack-text.js'
import { inUseOf } from '../../trace/analysis/curves.js'
import { type StackDifference, traceDifference } from '../../trace/analysis/stack-diff.js'
import type { Trace } from '../../trace/trace.js'
import { changedOf, changesLine, peakLines, placeOf, sameRunLines } from '../difference-words.js'
import { stackHint } from '../trace-lines.js'
import { changeIcicle, type StackChange } from './change-icicle.js'
import type { PageDifference } from './page-data.js'

/** Points of a curve. */
const COLUMNS = 500
const MOST_ROWS = 200

/** The difference between two recordings; `names` are their tabs. */
export function pageDifference(before: Trace, after: Trace, names: readonly [string, string]): PageDifference {
  const { stacks, hasStacks } = traceDifference(before, after)
  const changed = hasStacks ? changedOf(stacks) : []
  const hint = `Without call stacks in both, only totals can be compared. ${stackHint(after)}`
  return {
    names: [shortened(names[0]), shortened(names[1])],
    lines: [...sameRunLines(before, after), ...peakLines(before, after), hasStacks ? changesLine(changed) : hint],
    curves: [mostInUse(before), mostInUse(after)],
    rows: changed.slice(0, MOST_ROWS).map(each => ({ text: placeOf(each), bytes: each.bytes })),
    more: Math.max(0, changed.length - MOST_ROWS),
    boxes: changeIcicle(changed.map(changeOf)),
  }
}

function changeOf({ frames, bytes: [from, to] }: StackDifference): StackChange {
  return { frames: frames.map(pictureFrame), bytes: to - from }
}

/** The most bytes in use in each part of a recording. All parts are equal, and have an event. */
function mostInUse(trace: Trace): number[] {
  const { inUseBytes } = inUseOf(trace)
  const columns = Math.min(COLUMNS, inUseBytes.length)
  return Array.from({ length: columns }, (_, column) => {
    const from = Math.floor((column * inUseBytes.length) / columns)
    const to = Math.floor(((column + 1) * inUseBytes.length) / columns)
    return inUseBytes.subarray(from, to).reduce((most, bytes) => Math.max(most, bytes), 0)
  })
}
