// Memory that is freed but waits for another stream, where it raises what the program really needs.

import { formatBytes } from '../../../core/base/bytes.js'
import type { Holder } from '../../trace/failures/holders.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import { holderLines, isUnknown } from '../place-text.js'
import { wrapText } from '../table.js'
import { WAITING_REMEDY } from './out-of-memory-text.js'

const MOST_HOLDERS = 5
/** Less than this share above the peak in use changes nothing. */
const LEAST_SHARE = 0.01

/** The most that is in use and waiting at once. */
export interface Waiting {
  readonly peakBytes: number
  readonly peakEvent: number
  readonly waitingBytes: number
  /** the call sites of the waiting blocks then */
  readonly holders: readonly Holder[]
}

/** Empty if waiting memory does not matter. */
export function waitingText(
  { peakBytes, waitingBytes, holders }: Waiting,
  { peakRequestedBytes, outOfMemories }: ReplayReport['trace'],
  when: string,
  width: number,
): string[] {
  const more = peakBytes - peakRequestedBytes
  if (more <= LEAST_SHARE * peakRequestedBytes) return []
  const sentence =
    `In use, and freed but waiting for another stream (record_stream): together at most ${formatBytes(peakBytes)} ` +
    `${when}, ${formatBytes(more)} more than is ever in use. No allocator can do with less unless it waits for the GPU.`
  const remedy = ` ${WAITING_REMEDY}`
  // A failed request has told the rest already.
  if (outOfMemories.at(-1)?.verdict === 'waiting') return [wrapText(sentence, width)]
  if (holders.every(isUnknown)) return [wrapText(sentence + remedy, width)]
  const lines = holderLines(holders.slice(0, MOST_HOLDERS), waitingBytes, width)
  return [[wrapText(`${sentence}${remedy} Waiting then, by call site:`, width), ...lines].join('\n')]
}
