// Collapsed stacks, the format of flame graphs: one line for each call stack, with its bytes.

import { checkTrace, type Frame, frameText, type Trace } from '../../trace/trace.js'
import { heldStacks, peakEvent } from './moment.js'

const NO_STACK = '(no call stack)'

/**
 * What the program held after an event, by default at the peak: one line for each call stack, outermost frame first,
 * with semicolons between the frames, and its bytes. flamegraph.pl and speedscope read it. Throws RangeError for an
 * event that the trace does not have, FormatError if no block has a call stack, and TypeError for anything but a
 * trace.
 */
export function collapsedStacks(trace: Trace, event?: number): string {
  checkTrace('collapsedStacks', trace)
  const moment = event === undefined ? peakEvent(trace) : event
  const lines = heldStacks(trace, moment).map(({ frames, bytes }) => `${pathOf(frames)} ${bytes}\n`)
  return lines.join('')
}

function pathOf(frames: readonly Frame[]): string {
  if (frames.length === 0) return NO_STACK
  return frames
    .toReversed()
    .map(frame =>
      frameText(frame)
        .replace(/[\s\p{Cc}\p{Cf}]+/gu, ' ')
        .replaceAll(';', ','),
    )
    .join(';')
}
