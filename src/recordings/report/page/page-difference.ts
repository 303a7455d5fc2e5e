// The difference between the first two recordings of a page.

import { shortened } from '../../../core/base/shown-text.js'
import { pictureFrame } from '../../picture/stack-text.js'
import { inUseOf } from '../../trace/analysis/curves.js'
import { type StackDifference, traceDifference } from '../../trace/analysis/stack-diff.js'
import { namedFrames } from '../../trace/frames/call-sites.js'
import type { Trace } from '../../trace/trace.js'
import { changedOf, changesLine, changeText, peakLines, sameRunLines } from '../difference-words.js'
import { stackHint } from '../trace-lines.js'
import { changeIcicle, type StackChange } from './change-icicle.js'
import type { PageDifference } from './page-data.js'

/** Points of a curve. */
const COLUMNS = 500
const MOST_ROWS = 200

/** The difference between two recordings; `names` are their tabs. */
export function pageDifference(before: Trace, after: Trace, names: readonly [string, string]): PageDifference {
  const difference = traceDifference(before, after)
  const { sites, stacks, hasStacks } = difference
  const changed = hasStacks ? changedOf(sites) : []
  const hint = `Without call stacks in both, only totals can be compared. ${stackHint(after)}`
  return {
    names: [shortened(names[0]), shortened(names[1])],
    lines: [
      ...sameRunLines(before, after),
      ...peakLines(before, after, difference),
      hasStacks ? changesLine(changed) : hint,
    ],
    curves: [mostInUse(before), mostInUse(after)],
    rows: changed.slice(0, MOST_ROWS).map(each => ({ text: changeText(each), bytes: each.bytes })),
    more: Math.max(0, changed.length - MOST_ROWS),
    icicle: changeIcicle(changesOf(changedOf(changed.flatMap(site => site.stacks.map(i => stacks[i]))))),
  }
}

/** The changes of stacks. Stacks share frames, and each is named once. */
function changesOf(stacks: readonly StackDifference[]): StackChange[] {
  const frames = [...new Set(stacks.flatMap(stack => stack.frames))]
  const named = namedFrames(frames)
  const nameOf = new Map(frames.map((frame, i) => [frame, pictureFrame(named[i])]))
  return stacks.map(stack => ({
    frames: stack.frames.map(frame => nameOf.get(frame)!),
    bytes: stack.bytes[1] - stack.bytes[0],
  }))
}

/** The most bytes in use in each part of a recording. All parts are equal, and have an event. */
export function mostInUse(trace: Trace): number[] {
  const { inUseBytes } = inUseOf(trace)
  const columns = Math.min(COLUMNS, inUseBytes.length)
  return Array.from({ length: columns }, (_, column) => {
    const from = Math.floor((column * inUseBytes.length) / columns)
    const to = Math.floor(((column + 1) * inUseBytes.length) / columns)
    return inUseBytes.subarray(from, to).reduce((most, bytes) => Math.max(most, bytes), 0)
  })
}
