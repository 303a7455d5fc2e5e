// The whole answer to a log: its messages, its summaries, and how to record the run.

import { formatBytes } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import type { MemorySummary } from '../../trace/messages/memory-summary.js'
import { answerOf, type OutOfMemoryMessage } from '../../trace/messages/out-of-memory-message.js'
import { ofOneDevice, type TextFigures } from '../../trace/messages/read-text.js'
import { RECIPE, RECIPE_FOR_LINES } from '../recording-recipe.js'
import { type TextStyle, wrapText } from '../table.js'
import { fitted } from '../trace-lines.js'
import { deviceMemoryLines } from './device-memory-text.js'
import { messageText } from './message-text.js'
import { isRecordable, sizeText } from './message-verdict.js'
import { otherMessageText } from './other-message-text.js'
import { summaryText } from './summary-text.js'

/** In lines of at most `width` columns, but for the lines to copy. `device` chooses among the devices of the log;
 * `deviceBytes` is the size of the GPU, null if unknown. */
export function toldText(
  { file, skippedBytes, messages, summaries, other }: TextFigures,
  style: TextStyle,
  device?: number,
  deviceBytes: number | null = null,
): string {
  if (other !== null) {
    const unused = deviceBytes === null ? '' : ' --device-memory has no effect on it.'
    return `${shown(file)} ${otherMessageText(other)}.${unused}`
  }
  const { chosen, others } = ofOneDevice(messages, device)
  const ofDevice = summaries.filter(summary => device === undefined || summary.device === device)
  const last = chosen.at(-1)
  const parts = [
    style.paint.bold(shown(file)),
    ...(skippedBytes === 0 ? [] : [`The first ${formatBytes(skippedBytes)} of the log were not searched.`]),
    ...(chosen.length === 0 ? [] : messageText(chosen, others, style)),
    ...ofDevice.map(summary => summaryText(summary, style)),
    ...(deviceBytes === null
      ? []
      : outsideLines(last, ofDevice[0], deviceBytes).map(line => wrapText(line, style.width))),
  ].map(part => fitted(part, style.width))
  const isHopeless =
    last !== undefined && !last.isRejected && ['tooLittle', 'ownLimit'].includes(answerOf(last).verdict)
  const recipe = chosen.every(isRecordable) ? [isHopeless ? RECIPE_FOR_LINES : RECIPE] : []
  return [...parts, ...recipe].join('\n\n')
}

/** What is left of a device of `deviceBytes`, at most one sentence; a message may have the size itself. */
function outsideLines(
  message: OutOfMemoryMessage | undefined,
  summary: MemorySummary | undefined,
  deviceBytes: number,
): string[] {
  const { total = null, free = null } = message ?? {}
  if (total !== null)
    return [`--device-memory has no effect: the message has the size of the device, ${sizeText(total)}.`]
  const reserved = message === undefined ? null : answerOf(message).reserved
  const failed = {
    deviceFreeBytes: free?.bytes ?? null,
    reservedBytes: reserved?.bytes ?? null,
    deviceHadRoom: null,
  } as const
  const recordedPeakReservedBytes = (summary?.reserved?.peak ?? reserved)?.bytes ?? null
  return deviceMemoryLines({ recorder: 'PyTorch', recordedPeakReservedBytes }, failed, deviceBytes)
}
