// Collapsed stacks, the format of flame graphs: one line for each call stack, with its bytes.

import { PathNumbers } from '../../trace/analysis/path-numbers.js'
import { CallSites, callName, type NamedFrame } from '../../trace/frames/call-sites.js'
import { shortSite } from '../../trace/frames/short-path.js'
import { checkTrace, type Trace } from '../../trace/trace.js'
import { callsAt, peakEvent, sumsAt } from './moment.js'

/**
 * What the program held after an event, by default at the peak: one line for each call stack, outermost frame first,
 * with semicolons between the frames, and its bytes. Blocks without a stack have a line that says why. Machinery, such
 * as PyTorch's dispatch, is left out, and paths are short. flamegraph.pl and speedscope read it. Throws RangeError for
 * an event that the trace does not have, FormatError if no block has a call stack, and TypeError for anything but a
 * trace.
 */
export function collapsedStacks(trace: Trace, event?: number): string {
  checkTrace('collapsedStacks', trace)
  const sites = CallSites.of(trace.stacks)
  const texts = new FrameTexts()
  const paths = new PathNumbers<NamedFrame>(call => texts.of(call))
  const found = new Map<number, { readonly calls: readonly NamedFrame[]; bytes: number }>()
  for (const [stack, { bytes }] of sumsAt(trace, event === undefined ? peakEvent(trace) : event)) {
    const calls = callsAt(sites, stack)
    const path = paths.of(calls)
    const alike = found.get(path)
    if (alike === undefined) found.set(path, { calls, bytes })
    else alike.bytes += bytes
  }
  // As one text it ends at the longest that a text can be; as a list of lines it could fill all memory before.
  let text = ''
  for (const { calls, bytes } of [...found.values()].sort((a, b) => b.bytes - a.bytes)) {
    text += `${texts.ofPath(calls)} ${bytes}\n`
  }
  return text
}

/** The text of each frame is made once, whatever the number of stacks that have it. */
class FrameTexts {
  private readonly texts = new Map<NamedFrame, string>()

  of(call: NamedFrame): string {
    let text = this.texts.get(call)
    if (text === undefined) {
      text = shortSite(callName(call))
        .replace(/[\s\p{Cc}\p{Cf}]+/gu, ' ')
        .replaceAll(';', ',')
      this.texts.set(call, text)
    }
    return text
  }

  ofPath(calls: readonly NamedFrame[]): string {
    return calls
      .toReversed()
      .map(call => this.of(call))
      .join(';')
  }
}
