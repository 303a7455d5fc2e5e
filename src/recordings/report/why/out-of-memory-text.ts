// The requests that failed in a recording, as text: the last one in full, the others in a line each or counted.

import { formatBytes } from '../../../core/base/bytes.js'
import type { Holder } from '../../trace/failures/holders.js'
import type { RecordedOutOfMemory, Verdict } from '../../trace/failures/out-of-memory.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import { formatCount } from '../number-format.js'
import { holderLines, isUnknown, placeText } from '../place-text.js'
import { RECORDERS, type Recorder } from '../recorders.js'
import { factLines, rowText, type TextStyle, wrapText } from '../table.js'
import { piecesText, WAITING_FACT } from '../trace-lines.js'

const MOST_LINES = 5

/** Empty if no request failed. */
export function outOfMemoryText({ trace }: Pick<ReplayReport, 'trace'>, { width, paint }: TextStyle): string[] {
  const { outOfMemories, failedRequests } = trace
  const last = outOfMemories.at(-1)
  if (last === undefined) return []
  const names = RECORDERS[trace.recorder]
  const count = failedRequests === 1 ? 'A request failed' : `${formatCount(failedRequests)} requests failed`
  const which = failedRequests === 1 ? ':' : '. The last one:'
  const end = last.isLast ? `, and no allocation follows${which}` : which
  const facts = factLines(factsOf(last), width)
  const verdict = wrapText(`→ ${verdictOf(last, names)}`, width, '  ')
  return [
    [paint.bold(wrapText(`Out of memory. ${count}${end}`, width)), ...facts, paint.red(verdict)].join('\n'),
    holdersText(last, names, width),
    ...earlierText(trace, width),
  ]
}

export function factsOf(failed: RecordedOutOfMemory): [name: string, value: string][] {
  const { event, askedBytes, inUseBytes, waitingBytes, reservedBytes, deviceFreeBytes } = failed
  const facts: [string, string][] = [
    ['asked', `${askedText(askedBytes)}${askerText(failed)} (event ${formatCount(event)})`],
    ['in use', formatBytes(inUseBytes)],
  ]
  if (waitingBytes > 0) facts.push(['waiting', `${formatBytes(waitingBytes)} ${WAITING_FACT}`])
  if (reservedBytes !== null) {
    const rounding = reservedBytes - inUseBytes - waitingBytes - (failed.idleBytes ?? 0)
    const rounded = rounding > 0 ? `, ${formatBytes(rounding)} of it by rounding of sizes` : ''
    facts.push(['idle', idleText(failed)], ['reserved', `${formatBytes(reservedBytes)}${rounded}`])
  }
  if (deviceFreeBytes !== null) facts.push(['device', `${formatBytes(deviceFreeBytes)} free`])
  return facts
}

export function askerText({ site, through }: RecordedOutOfMemory): string {
  return site === null ? '' : ` by ${placeText({ site, through })}`
}

/** Readers take larger requests for the most that can be counted. */
function askedText(bytes: number): string {
  return bytes === Number.MAX_SAFE_INTEGER ? `at least ${formatBytes(bytes)}` : formatBytes(bytes)
}

function idleText({ idleBytes, idlePieces, largestIdleBytes }: RecordedOutOfMemory): string {
  const bytes = formatBytes(idleBytes ?? 0)
  if (idlePieces === 0 || idlePieces === null) return bytes
  return `${bytes} ${piecesText(idlePieces, largestIdleBytes ?? 0)}`
}

const NO_SETTING = 'No setting of the allocator ends the wait.'
/** For memory that is freed while another stream uses it. */
export const WAITING_REMEDY =
  `${NO_SETTING} In the program, let the stream that allocates wait for the use ` +
  '(stream.wait_stream) instead of record_stream, synchronize before blocks are freed, or have fewer under way at once.'

/** That no expandable segment can hold a request, and the settings that decide. */
export function segmentText(most: string, asked: string, least: string): string {
  return (
    `An expandable segment is too small: it has addresses for ${most}, and ${asked} were asked, which cannot lie in ` +
    `two. Raise expandable_segments_reserve to ${least} or more, or leave it out. For a stream with a class of its ` +
    'own, expandable_segments_reserve_by_class decides.'
  )
}

const RAISE = 'Raise the limit, or hold less.'

/** The remedy that a verdict alone tells; empty if only replays can tell. */
export function shortRemedyOf(failed: RecordedOutOfMemory): string {
  switch (failed.verdict) {
    case 'waiting':
      return NO_SETTING
    case 'ownLimit':
      return RAISE
    case 'tooLittle':
      return missingText(failed)
    default:
      return ''
  }
}

function missingText({ neededBytes, capacityBytes }: RecordedOutOfMemory): string {
  return `No allocator could serve this: ${formatBytes(neededBytes - (capacityBytes ?? 0))} are missing.`
}

export function verdictOf(failed: RecordedOutOfMemory, names: Recorder): string {
  const { neededBytes, deviceHadRoom, deviceFreeBytes } = failed
  const needed = formatBytes(neededBytes)
  const free = formatBytes(deviceFreeBytes ?? 0)
  switch (failed.verdict) {
    case 'fragmentation': {
      const limited = deviceHadRoom
        ? ` A limit of the program itself (such as ${names.limit}) kept it from the device, which had ${free} free.`
        : ''
      const could = `${names.allocator} could have had ${capacityText(failed)}`
      return `Fragmentation: ${needed} would have been enough, and ${could}. ${pieceText(failed, names)}${limited}`
    }
    case 'waiting':
      return (
        `Freed, but another stream still uses it: ${formatBytes(failed.waitingBytes)} wait for the work of other ` +
        `streams (record_stream). In use and asked are ${needed}, and ${names.allocator} could have had ` +
        `${capacityText(failed)}. ${WAITING_REMEDY} A replay waits for these streams, so it may serve the request.`
      )
    case 'segmentTooSmall': {
      const asked = formatBytes(failed.askedBytes)
      return segmentText(formatBytes(failed.mostSegmentBytes!), asked, asked)
    }
    case 'ownLimit':
      return (
        `The program's own limit: in use and asked are ${needed} together, and ${limitText(failed)}, such as ` +
        `${names.limit}. The device had ${free} free. ${RAISE}${unsureText(failed)}`
      )
    case 'tooLittle': {
      return (
        `Really too little: in use and asked are ${needed} together, and ${names.allocator} could have had ` +
        `${capacityText(failed)}, reserved and free. ${missingText(failed)} Hold ` +
        'less, free memory that other programs hold on the device, or use a larger one.'
      )
    }
    case 'unknown':
      return `In use and asked are ${needed} together. The recording does not tell what the device had.`
  }
}

/** The most that the allocator could reserve, by the recording. */
function capacityText({ capacityBytes, capacityBelowBytes, deviceHadRoom }: RecordedOutOfMemory): string {
  const least = formatBytes(capacityBytes ?? 0)
  if (capacityBelowBytes === null) return `at least ${least}`
  return deviceHadRoom ? `between ${least} and ${formatBytes(capacityBelowBytes)}` : least
}

/** A recording shows the limit to a range only. */
function unsureText({ neededBytes, capacityBelowBytes }: RecordedOutOfMemory): string {
  if (capacityBelowBytes === null || neededBytes >= capacityBelowBytes) return ''
  return (
    ` If the limit is ${formatBytes(neededBytes)} or more, it was fragmentation: tune with the limit as --capacity ` +
    'tells what serves then.'
  )
}

function limitText({ capacityBytes, capacityBelowBytes, neededBytes }: RecordedOutOfMemory): string {
  if (capacityBytes === null || capacityBelowBytes === null) return 'a limit of the program itself is below'
  const below = formatBytes(capacityBelowBytes)
  return neededBytes >= capacityBelowBytes
    ? `a limit of the program itself is below ${below}`
    : `a limit of the program itself lies between ${formatBytes(capacityBytes)} and ${below}`
}

/** Why the idle memory did not serve the request. */
function pieceText(failed: RecordedOutOfMemory, { allocator }: Recorder): string {
  const { askedBytes, idleBytes, reservedBytes, capacityBytes } = failed
  const { largestIdleBytes, largestUsableBytes } = failed
  if (idleBytes === null || reservedBytes === null || capacityBytes === null) return ''
  const open = idleBytes + capacityBytes - reservedBytes
  if (open < askedBytes) return `Rounding of sizes by ${allocator} took the rest.`
  if (largestUsableBytes !== null && largestUsableBytes >= askedBytes) {
    const piece = `An idle piece of ${formatBytes(largestUsableBytes)} was large enough`
    return `${piece}; it may belong to a CUDA graph's pool, or be kept by max_split_size_mb.`
  }
  if (largestIdleBytes !== null && largestIdleBytes >= askedBytes) {
    const piece = `An idle piece of ${formatBytes(largestIdleBytes)} was large enough`
    return `${piece}, but another stream's, another pool's, or for small blocks.`
  }
  const lacks = largestIdleBytes === null ? '' : `: the largest lacks ${formatBytes(askedBytes - largestIdleBytes)}`
  const more = capacityBytes - reservedBytes
  const beside =
    idleBytes < askedBytes && more < askedBytes ? `, and only ${formatBytes(more)} more could be reserved` : ''
  return `No idle piece was large enough${lacks}${beside}.`
}

function holdersText(failed: RecordedOutOfMemory, names: Recorder, width: number): string {
  const { holders, inUseBytes, waitingHolders, waitingBytes } = failed
  const all = [...holders, ...waitingHolders]
  if (all.every(isUnknown)) {
    return wrapText(`Who held it is not recorded: no call stacks. ${names.stacks}.`, width)
  }
  return [
    ...holderList('Held at that moment', holders, inUseBytes, width),
    ...holderList(WAITED, waitingHolders, waitingBytes, width),
  ].join('\n')
}

/** The title of waiting memory. */
export const WAITED = 'Freed by then, and still in use on another stream'

/** The holders of `bytes` below a title; empty for none. */
export function holderList(what: string, of: readonly Holder[], bytes: number, width: number): string[] {
  return of.length === 0 ? [] : [wrapText(`${what}, by call site:`, width), ...holderLines(of, bytes, width)]
}

export const VERDICTS: Readonly<Record<Verdict, string>> = {
  fragmentation: 'fragmentation',
  waiting: 'freed memory that another stream still used',
  segmentTooSmall: 'an expandable segment too small',
  ownLimit: "the program's own limit",
  tooLittle: 'really too little',
  unknown: 'cause unknown',
}

function earlierText(trace: ReplayReport['trace'], width: number): string[] {
  const earlier = trace.outOfMemories.slice(0, -1)
  if (earlier.length === 0) return []
  if (earlier.length <= MOST_LINES) {
    const columns = Math.max(...earlier.map(({ event }) => formatCount(event).length))
    const lines = earlier.map(({ event, askedBytes, inUseBytes, idleBytes, verdict }) => {
      const idle = idleBytes === null ? '' : `, ${formatBytes(idleBytes)} idle`
      const figures = `${formatBytes(askedBytes)} asked, ${formatBytes(inUseBytes)} in use${idle}`
      return rowText(`event ${formatCount(event).padStart(columns)}`, `${figures}: ${VERDICTS[verdict]}`, width)
    })
    return [['Failed before:', ...lines].join('\n')]
  }
  const counts = Object.entries(VERDICTS).flatMap(([verdict, name]) => {
    const count = earlier.filter(each => each.verdict === verdict).length
    return count === 0 ? [] : [`${formatCount(count)} by ${name}`]
  })
  const older = trace.failedRequests - trace.outOfMemories.length
  if (older > 0) counts.push(`${formatCount(older)} older ones not looked at`)
  return [wrapText(`Failed before: ${counts.join(', ')}.`, width)]
}
