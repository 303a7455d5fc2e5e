// Collapsed stacks, the format of flame graphs: one line for each call stack, with its bytes.

import { CallSites, callName, type NamedFrame } from '../../trace/frames/call-sites.js'
import { shortSite } from '../../trace/frames/short-path.js'
import { checkTrace, type Trace } from '../../trace/trace.js'
import { peakEvent, sumsAt } from './moment.js'

const NO_STACK = '(no call stack)'

/**
 * What the program held after an event, by default at the peak: one line for each call stack, outermost frame first,
 * with semicolons between the frames, and its bytes. Machinery, such as PyTorch's dispatch, is left out, and paths are
 * short. flamegraph.pl and speedscope read it. Throws RangeError for an event that the trace does not have, FormatError
 * if no block has a call stack, and TypeError for anything but a trace.
 */
export function collapsedStacks(trace: Trace, event?: number): string {
  checkTrace('collapsedStacks', trace)
  const sites = CallSites.of(trace.stacks)
  const bytesOf = new Map<string, number>()
  for (const [stack, { bytes }] of sumsAt(trace, event === undefined ? peakEvent(trace) : event)) {
    const path = pathOf(sites.callsOf(stack))
    bytesOf.set(path, (bytesOf.get(path) ?? 0) + bytes)
  }
  const lines = [...bytesOf].sort(([, a], [, b]) => b - a).map(([path, bytes]) => `${path} ${bytes}\n`)
  return lines.join('')
}

function pathOf(calls: readonly NamedFrame[]): string {
  if (calls.length === 0) return NO_STACK
  return calls
    .toReversed()
    .map(call =>
      shortSite(callName(call))
        .replace(/[\s\p{Cc}\p{Cf}]+/gu, ' ')
        .replaceAll(';', ','),
    )
    .join(';')
}
