// Sentences about the memory of the device outside the recording. Files do not have the size of the device. So the
// sentences have the sum of free and reserved bytes, and its changes: the device does not grow, so others caused them.

import { formatBytes } from '../../../core/base/bytes.js'
import type { RecordedOutOfMemory } from '../../trace/failures/out-of-memory.js'
import { formatCount } from '../number-format.js'
import type { PageRecording } from './page-data.js'

/** The holders of the rest of the memory. */
const OTHERS = 'other programs, libraries with memory of their own (NCCL, cuBLAS), and CUDA itself'

/** Sentences about the memory outside the recording, from its failed requests. */
export function outsideOf(failures: readonly RecordedOutOfMemory[]): PageRecording['outside'] {
  return { isKnown: failures.some(({ deviceFreeBytes }) => deviceFreeBytes !== null), lines: outsideLines(failures) }
}

function outsideLines(failures: readonly RecordedOutOfMemory[]): string[] {
  const free = failures.filter(({ deviceFreeBytes }) => deviceFreeBytes !== null)
  if (free.length === 0) {
    return [
      `What ${OTHERS} held is not in this file: only failed requests tell how much was free on the device` +
        `${failures.length === 0 ? ', and none failed' : ', and these do not'}.`,
    ]
  }
  const known = free.filter(({ reservedBytes }) => reservedBytes !== null)
  const { event, deviceFreeBytes, reservedBytes } = (known.at(-1) ?? free.at(-1))!
  const moment = `At the failed request of event ${formatCount(event)}, ${formatBytes(deviceFreeBytes!)} of the device were free`
  if (reservedBytes === null) {
    return [`${moment}. What this program had reserved is not in this file, nor the size of the device.`]
  }
  const sum = formatBytes(deviceFreeBytes! + reservedBytes)
  return [
    `${moment}, and this program had reserved ${formatBytes(reservedBytes)}: ${sum} together. The rest of the device ` +
      `was held by ${OTHERS}. How much that is, the file does not tell: it is the size of the device less ${sum}.`,
    ...changeLine(known),
  ]
}

/** How the memory of others changed between the failed requests. */
function changeLine(known: readonly RecordedOutOfMemory[]): string[] {
  if (known.length < 2) return []
  const sums = known.map(({ deviceFreeBytes, reservedBytes }) => deviceFreeBytes! + reservedBytes!)
  const [least, most] = [Math.min(...sums), Math.max(...sums)]
  const count = formatCount(known.length)
  if (least === most) return [`The sum was the same at all ${count} failed requests.`]
  const change = sums[0] - sums[sums.length - 1]
  const end =
    change === 0
      ? 'as much at the last as at the first'
      : `${formatBytes(Math.abs(change))} ${change > 0 ? 'more' : 'less'} at the last than at the first`
  return [`Over ${count} failed requests it varied by ${formatBytes(most - least)}, and was ${end}.`]
}
