// Lines that several reports on a recording share: its gaps, and the command to type next.

import { formatBytes } from '../../core/base/bytes.js'
import { listed } from '../../core/base/readable.js'
import { shellWord } from '../trace/formats/shell-word.js'
import type { InitialBlocks } from '../trace/replay-result.js'
import type { Contradictions, Trace } from '../trace/trace.js'
import { formatCount, formatRatio } from './number-format.js'
import { RECORDERS } from './recorders.js'
import { wrapText } from './table.js'

/** Colours and emphasis, which take no columns. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escapes begin with it
const ESCAPE = /(\x1b\[[0-9;]*m)/

/** The gaps of a recording, but for those that its head names. */
export function gapsOf(trace: Trace): string[] {
  const { dropped, timesGoBack, skippedEvents, stacks } = trace
  const gaps = contradictionLines(trace)
  if (dropped !== null && dropped > 0)
    gaps.push(`The recording lost ${counted(dropped, 'event')}; figures may be too low.`)
  if (skippedEvents > 0) {
    const were = skippedEvents === 1 ? 'was' : 'were'
    gaps.push(`${counted(skippedEvents, 'event')} ${were} left out: of other memory, of unknown kinds or out of order.`)
  }
  if (timesGoBack > 0) gaps.push(`The clock of the recording goes back ${counted(timesGoBack, 'time')}.`)
  if (stacks.count === 1) gaps.push(`The recording has no call stacks. ${stackHint(trace)}`)
  return gaps
}

/** By kind of contradiction: what is said of one and of several. */
const CONTRADICTIONS: Readonly<Record<keyof Contradictions, readonly [one: string, several: string]>> = {
  overlappingBlocks: ['block overlaps another one in use', 'blocks overlap others in use'],
  blocksOutside: ['block lies outside of the segments', 'blocks lie outside of the segments'],
  otherSizes: ['free names another size than its allocation', 'frees name other sizes than their allocations'],
  otherSegments: ['segment is taken or given back twice', 'segments are taken or given back twice'],
  atEnd: [
    'block or segment at its end is not as its events say',
    'blocks or segments at its end are not as its events say',
  ],
  wrongSums: ['segment has other sums than its blocks', 'segments have other sums than their blocks'],
}

/** The sentence about a recording that contradicts itself, if it does. */
export function contradictionLines({ contradictions }: Pick<Trace, 'contradictions'>): string[] {
  const found = Object.entries(CONTRADICTIONS).flatMap(([kind, [one, several]]) => {
    const count = contradictions[kind as keyof Contradictions]
    return count === 0 ? [] : [`${formatCount(count)} ${count === 1 ? one : several}`]
  })
  if (found.length === 0) return []
  return [`The recording contradicts itself, so figures may be wrong: ${found.join('; ')}.`]
}

/** The blocks from before the first event, if there are any. */
export function initialLines({ blocks, bytes }: InitialBlocks): string[] {
  if (blocks === 0) return []
  const are = blocks === 1 ? 'is' : 'are'
  const what = `${counted(blocks, 'block')} (${formatBytes(bytes)})`
  return [`${what} ${are} from before the recording; earlier peaks are unknown.`]
}

/**
 * For a file with several devices: a sentence about the device of the trace, the others, and the option. It names those
 * that ran out of memory. `failedRequests` are those of the trace.
 */
export function deviceLines({
  device,
  otherDevices,
  failedRequests = 0,
}: Pick<Trace, 'device' | 'otherDevices'> & { readonly failedRequests?: number }): string[] {
  if (otherDevices.length === 0) return []
  const others = otherDevices.map(({ device: other, events, failedRequests: failed = 0 }) => {
    return `GPU ${other} has ${formatCount(events)}${failed === 0 ? '' : ' and ran out of memory'}`
  })
  const failed = failedRequests === 0 ? '' : ', which ran out of memory'
  return [`These are the events of GPU ${device}${failed}; ${listed(others)}. --gpu N chooses.`]
}

/**
 * The sentence about a packing; none if some policy of the same answer needs less. A packing keeps one address for each
 * block and gives nothing back. A policy that gives back pages may need less, and a packing beside it would mislead.
 */
export function packingOf(
  packedBytes: number | null,
  neededBytes: number,
  leastBytes: readonly (number | null)[],
): string[] {
  if (packedBytes === null || neededBytes === 0) return []
  if (leastBytes.some(bytes => bytes !== null && bytes < packedBytes)) return []
  const ratio = formatRatio(packedBytes / neededBytes)
  const above = ratio === formatRatio(1) ? '' : ` (${ratio} times as much)`
  return [`Placed with all of the future known, its blocks fit into ${formatBytes(packedBytes)}${above}.`]
}

/** How call stacks are recorded. */
export function stackHint({ recorder }: Pick<Trace, 'recorder'>): string {
  return `${RECORDERS[recorder].stacks}.`
}

/** The command to type next, for a shell. npx finds the program wherever it is installed. */
export function nextLine(command: string, ...files: readonly string[]): string {
  return ['Next: npx cuda-mempool', command, ...files.map(file => shellWord(file))].join(' ')
}

/** `1 event`, `2,000 events` */
export function counted(count: number, what: string): string {
  return `${formatCount(count)} ${what}${count === 1 ? '' : 's'}`
}

/** What waiting memory is, behind its bytes. */
export const WAITING_FACT = 'freed, but in use on another stream'

/** The pieces that idle memory lies in. */
export function piecesText(pieces: number, largestBytes: number): string {
  return pieces === 1 ? 'in one piece' : `in ${formatCount(pieces)} pieces, the largest ${formatBytes(largestBytes)}`
}

/** Text to copy: a setting for the shell, a command, or a name in Python. */
const COPIED =
  /(export|unset|set) PYTORCH_\w+|_record_memory_history\(|npx cuda-mempool|^\s*(torch\.\w|\(?set_per_process_)/

/** Text with every line in at most `width` columns, broken within longer words, but for lines with text to copy. */
export function fitted(text: string, width: number): string {
  const fits = (line: string) => line.replace(new RegExp(ESCAPE, 'g'), '').length <= width || COPIED.test(line)
  return text
    .split('\n')
    .flatMap(line => (fits(line) ? [line] : broken(line, width)))
    .join('\n')
}

function broken(line: string, width: number): string[] {
  const lines: string[] = []
  let last = ''
  let columns = 0
  for (const part of line.split(ESCAPE)) {
    if (ESCAPE.test(part)) {
      last += part
      continue
    }
    for (const letter of part) {
      if (columns === width) {
        lines.push(last)
        last = ''
        columns = 0
      }
      last += letter
      columns++
    }
  }
  return [...lines, last]
}

/** Sentences as wrapped lines. */
export function sentences(lines: readonly string[], width: number): string {
  return lines.map(line => wrapText(line, width)).join('\n')
}
