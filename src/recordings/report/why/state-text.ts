// The text about a snapshot without events: the memory at that moment, and its holders.

import { formatBytes } from '../../../core/base/bytes.js'
import { listed } from '../../../core/base/readable.js'
import { shown } from '../../../core/base/shown-text.js'
import { memoryAfter } from '../../trace/analysis/idle-moment.js'
import { type IdleMemory, idleMemoryOf } from '../../trace/analysis/pinned-segments.js'
import { type PoolMemory, poolsOf } from '../../trace/analysis/pools.js'
import { holdersOf } from '../../trace/failures/holders.js'
import type { MemoryAt } from '../../trace/failures/memory-at.js'
import { BEFORE, type Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import { recordedSettings } from '../settings-text.js'
import { factLines, type TextStyle, wrapText } from '../table.js'
import { counted, fitted, piecesText, stackHint, WAITING_FACT } from '../trace-lines.js'
import { idleText, poolsText } from './idle-text.js'
import { holderList, WAITED } from './out-of-memory-text.js'

const HOLDERS = 8

/** The memory of a snapshot. Sizes are bytes. */
export interface SnapshotState extends IdleMemory {
  readonly reservedBytes: number
  readonly segments: number
  /** held by the program, as requested */
  readonly inUseBytes: number
  readonly blocks: number
  /** freed by the program, and still in use on another stream */
  readonly waitingBytes: number
  readonly pools: readonly PoolMemory[]
}

/** The state of a trace without events of memory. */
export function snapshotState(trace: Trace): SnapshotState {
  return stateOf(trace, memoryAfter(trace, trace.events - 1))
}

function stateOf(trace: Trace, memory: MemoryAt): SnapshotState {
  return {
    reservedBytes: memory.reservedBytes ?? 0,
    segments: memory.segments.length,
    inUseBytes: memory.liveBytes,
    blocks: memory.live.length,
    waitingBytes: memory.waitingBytes,
    ...idleMemoryOf(trace, memory),
    pools: poolsOf(trace, memory),
  }
}

/** The whole text in lines of at most `width` columns, but for the lines that record a run. */
export function stateText(trace: Trace, style: TextStyle): string {
  const { width, paint } = style
  const memory = memoryAfter(trace, trace.events - 1)
  const state = stateOf(trace, memory)
  const settings = recordedSettings({ trace: traceFigures(trace) })
  const what = `A snapshot without events: the memory at one moment.${settings === null ? '' : ` ${settings}`}`
  const head = [paint.bold(shown(trace.file)), ...[what, ...otherDevices(trace)].map(line => wrapText(line, width))]
  return [
    head.join('\n'),
    factLines(stateFacts(state), width).join('\n'),
    wrapText(`→ ${stateVerdict(state)}`, width, '  '),
    ...idleText({ moment: { event: BEFORE, isFailure: true, memory }, memory: state }, null, '', width),
    ...poolsText(state.pools, [], 'at that moment', style),
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

function stateFacts(state: SnapshotState): [string, string][] {
  const { reservedBytes, segments, inUseBytes, blocks, waitingBytes, idleBytes, pieces, largestBytes } = state
  const waiting: [string, string] = ['waiting', `${formatBytes(waitingBytes)} ${WAITING_FACT}`]
  return [
    ['in use', `${formatBytes(inUseBytes)} in ${counted(blocks, 'block')}`],
    ...(waitingBytes > 0 ? [waiting] : []),
    ['idle', `${formatBytes(idleBytes)}${pieces === 0 ? '' : ` ${piecesText(pieces, largestBytes)}`}`],
    ['reserved', `${formatBytes(reservedBytes)} in ${counted(segments, 'segment')}`],
  ]
}

/** The reasons why idle memory is not given back. */
function stateVerdict({ idleBytes, wholeBytes, privateBytes, reservedBytes }: SnapshotState): string {
  const kept = idleBytes - wholeBytes - privateBytes
  const parts: string[] = []
  if (wholeBytes > 0) parts.push(`torch.cuda.empty_cache() would give ${formatBytes(wholeBytes)} back.`)
  if (privateBytes > 0) parts.push(`${formatBytes(privateBytes)} are idle in private pools, as of CUDA graphs.`)
  if (kept > 0) parts.push(`${formatBytes(kept)} are idle beside blocks in use, which keep their segments.`)
  // A tenth is usual, because PyTorch rounds the sizes of segments up.
  if (kept > reservedBytes / 10) parts.push('A setting may help against that; which one, only a recording tells.')
  if (parts.length === 0) parts.push('No memory is idle: the program holds all that is reserved.')
  return `${parts.join(' ')} What was asked, and whether a request failed, is not in it.`
}

function holdersText(trace: Trace, { live, liveBytes, waiting, waitingBytes }: MemoryAt, width: number): string {
  const [held, freed] = [live, waiting].map(numbers => holdersOf(trace, numbers))
  if ([...held, ...freed].every(({ site }) => site === null)) {
    return wrapText(`Who holds it is not recorded: no call stacks. ${stackHint(trace)}`, width)
  }
  return [
    ...holderList('Held then', held.slice(0, HOLDERS), liveBytes, width),
    ...holderList(WAITED, freed.slice(0, HOLDERS), waitingBytes, width),
  ].join('\n')
}
