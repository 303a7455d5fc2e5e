// The allocations of a trace as CSV.

import { CallSites } from '../../trace/frames/call-sites.js'
import { shortSite } from '../../trace/frames/short-path.js'
import { BEFORE, checkTrace, NEVER, type Trace } from '../../trace/trace.js'
import { checkedPolicies, type PolicyMemory } from './policy-memory.js'

const ROWS_A_PIECE = 4096
const COLUMNS = [
  'block',
  'bytes',
  'granted_bytes',
  'stream',
  'allocated_event',
  'freed_event',
  'completed_event',
  'allocated_us',
  'freed_us',
  'site',
]

/**
 * One row for each allocation, in pieces of text: its sizes, its stream, the numbers and times of its events, the line
 * of the program that made it, and its address under each policy. A field is empty where the trace does not have it:
 * before the recording, not within it, or unknown. Times are microseconds since the first event, addresses hexadecimal.
 * Without `policies` it has the recorded addresses. Throws TypeError for wrong arguments.
 */
export function allocationRows(trace: Trace, policies?: readonly PolicyMemory[]): Generator<string> {
  checkTrace('allocationRows', trace)
  return rowsOf(trace, checkedPolicies('allocationRows', trace, policies))
}

function* rowsOf(trace: Trace, policies: readonly PolicyMemory[]): Generator<string> {
  const { blocks, streams, timeUs } = trace
  const placed = policies.filter(({ address }) => address !== null)
  const sites = CallSites.of(trace.stacks)
  const texts = Array.from<string | undefined>({ length: trace.stacks.count })
  const hasTimes = timeUs.some(us => us !== 0)
  const timeOf = (event: number) =>
    !hasTimes || event < 0 || event === NEVER ? '' : `${round(timeUs[event] - timeUs[0])}`
  const numberOf = (event: number) => (event === BEFORE || event === NEVER ? '' : `${event}`)
  let piece = `${[...COLUMNS, ...placed.map(({ policy }) => `${policy}_address`)].map(quoted).join()}\n`
  for (let number = 0; number < blocks.count; number++) {
    const stack = blocks.stack[number]
    texts[stack] ??= quoted(shortSite(sites.siteOf(stack).site ?? ''))
    const row = [
      number,
      blocks.bytes[number],
      blocks.grantedBytes[number] || '',
      streams[blocks.stream[number]],
      numberOf(blocks.allocatedAt[number]),
      numberOf(blocks.freeRequestedAt[number]),
      numberOf(blocks.freeCompletedAt[number]),
      timeOf(blocks.allocatedAt[number]),
      timeOf(blocks.freeRequestedAt[number]),
      texts[stack],
      ...placed.map(({ address }) => (Number.isNaN(address![number]) ? '' : `0x${address![number].toString(16)}`)),
    ]
    piece += `${row.join()}\n`
    if (number % ROWS_A_PIECE === ROWS_A_PIECE - 1) {
      yield piece
      piece = ''
    }
  }
  yield piece
}

/** Nanoseconds are exact in no recording. */
function round(us: number): number {
  return Math.round(us * 1e3) / 1e3
}

/** A text as RFC 4180 has it. An apostrophe keeps spreadsheets from taking it for a formula. */
function quoted(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain
}
