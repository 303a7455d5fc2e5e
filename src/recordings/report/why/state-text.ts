// The text about a snapshot without events: the memory at that moment, and its holders.

import { formatBytes } from '../../../core/base/bytes.js'
import { listed } from '../../../core/base/readable.js'
import { shown } from '../../../core/base/shown-text.js'
import { holdersOf } from '../../trace/failures/holders.js'
import { type MemoryAt, memoryAt } from '../../trace/failures/memory-at.js'
import { takenBytes } from '../../trace/failures/taken-bytes.js'
import { ReservedSegments } from '../../trace/reserved-segments.js'
import type { Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import { formatCount } from '../number-format.js'
import { recordedSettings } from '../settings-text.js'
import { type TextStyle, wrapText } from '../table.js'
import { counted, fitted, stackHint } from '../trace-lines.js'
import { row } from './message-text.js'
import { holderLines } from './out-of-memory-text.js'

const HOLDERS = 8

/** The memory of a snapshot. Sizes are bytes. */
export interface SnapshotState {
  readonly reservedBytes: number
  readonly segments: number
  /** held by the program, as requested */
  readonly inUseBytes: number
  readonly blocks: number
  /** freed by the program, and still in use on another stream */
  readonly waitingBytes: number
  readonly idleBytes: number
  readonly idlePieces: number
  readonly largestIdleBytes: number
  /** segments without any block in use, which empty_cache() gives back */
  readonly idleSegments: number
  readonly idleSegmentBytes: number
}

/** The state of a trace without events. */
export function snapshotState(trace: Trace): SnapshotState {
  return stateOf(trace, memoryOf(trace))
}

function memoryOf(trace: Trace): MemoryAt {
  return memoryAt(trace, trace.events, new ReservedSegments(trace.initialSegments), takenBytes(trace))
}

function stateOf(trace: Trace, { live, liveBytes, waitingBytes, idle }: MemoryAt): SnapshotState {
  const whole = idle.filter(({ bytes, segment }) => bytes === segment.bytes)
  return {
    reservedBytes: trace.initialSegments.reduce((sum, { bytes }) => sum + bytes, 0),
    segments: trace.initialSegments.length,
    inUseBytes: liveBytes,
    blocks: live.length,
    waitingBytes,
    idleBytes: idle.reduce((sum, { bytes }) => sum + bytes, 0),
    idlePieces: idle.length,
    largestIdleBytes: idle.reduce((most, { bytes }) => Math.max(most, bytes), 0),
    idleSegments: whole.length,
    idleSegmentBytes: whole.reduce((sum, { bytes }) => sum + bytes, 0),
  }
}

/** The whole text in lines of at most `width` columns, but for the lines that record a run. */
export function stateText(trace: Trace, { width, paint }: TextStyle): string {
  const memory = memoryOf(trace)
  const state = stateOf(trace, memory)
  const settings = recordedSettings({ trace: traceFigures(trace) })
  const what = `A snapshot without events: the memory at one moment.${settings === null ? '' : ` ${settings}`}`
  const head = [paint.bold(shown(trace.file)), ...[what, ...otherDevices(trace)].map(line => wrapText(line, width))]
  return [
    head.join('\n'),
    stateRows(state)
      .map(([name, value]) => row(name, value, width))
      .join('\n'),
    wrapText(`→ ${stateVerdict(state)}`, width, '  '),
    holdersText(trace, memory, width),
  ]
    .map(part => fitted(part, width))
    .join('\n\n')
}

function otherDevices({ device, otherDevices: others }: Trace): string[] {
  if (others.length === 0) return []
  const names = listed(others.map(other => `GPU ${other.device}`))
  return [`This is the memory of GPU ${device}; the file also has that of ${names}. --gpu N chooses.`]
}

function stateRows(state: SnapshotState): [string, string][] {
  const { reservedBytes, segments, inUseBytes, blocks, waitingBytes, idleBytes, idlePieces, largestIdleBytes } = state
  const pieces =
    idlePieces === 0
      ? ''
      : idlePieces === 1
        ? ' in one piece'
        : ` in ${formatCount(idlePieces)} pieces, the largest ${formatBytes(largestIdleBytes)}`
  const whole =
    state.idleSegments === 0
      ? ''
      : `; ${formatBytes(state.idleSegmentBytes)} of it in ${counted(state.idleSegments, 'whole segment')}`
  return [
    ['in use', `${formatBytes(inUseBytes)} in ${counted(blocks, 'block')}`],
    ...(waitingBytes > 0
      ? ([['waiting', `${formatBytes(waitingBytes)} freed, but in use on another stream`]] as [string, string][])
      : []),
    ['idle', `${formatBytes(idleBytes)}${pieces}${whole}`],
    ['reserved', `${formatBytes(reservedBytes)} in ${counted(segments, 'segment')}`],
  ]
}

/** The reasons why idle memory is not given back. */
function stateVerdict({ idleBytes, idleSegmentBytes, reservedBytes }: SnapshotState): string {
  const kept = idleBytes - idleSegmentBytes
  const parts: string[] = []
  if (idleSegmentBytes > 0) parts.push(`torch.cuda.empty_cache() would give ${formatBytes(idleSegmentBytes)} back.`)
  if (kept > 0) parts.push(`${formatBytes(kept)} are idle beside blocks in use, which keep their segments.`)
  // A tenth is usual, because PyTorch rounds the sizes of segments up.
  if (kept > reservedBytes / 10) parts.push('A setting may help against that; which one, only a recording tells.')
  if (parts.length === 0) parts.push('No memory is idle: the program holds all that is reserved.')
  return `${parts.join(' ')} What was asked, and whether a request failed, is not in it.`
}

function holdersText(trace: Trace, { live, liveBytes }: MemoryAt, width: number): string {
  const holders = holdersOf(trace, live)
  if (holders.every(({ site }) => site === null)) {
    return wrapText(`Who holds it is not recorded: no call stacks. ${stackHint(trace)}`, width)
  }
  return ['Held then, by call site:', ...holderLines(holders.slice(0, HOLDERS), liveBytes, width)].join('\n')
}
