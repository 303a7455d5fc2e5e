// The whole answer to a log: its messages, its summaries, and how to record the run.

import { formatBytes } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import { ofOneDevice, type TextFigures } from '../../trace/messages/read-text.js'
import { RECIPE } from '../recording-recipe.js'
import type { TextStyle } from '../table.js'
import { fitted } from '../trace-lines.js'
import { messageText } from './message-text.js'
import { isRecordable } from './message-verdict.js'
import { summaryText } from './summary-text.js'

/** In lines of at most `width` columns, but for the lines to copy. `device` chooses among the devices of the log. */
export function toldText(
  { file, skippedBytes, messages, summaries }: TextFigures,
  style: TextStyle,
  device?: number,
): string {
  const { chosen, others } = ofOneDevice(messages, device)
  const ofDevice = summaries.filter(summary => device === undefined || summary.device === device)
  const parts = [
    style.paint.bold(shown(file)),
    ...(skippedBytes === 0 ? [] : [`The first ${formatBytes(skippedBytes)} of the log were not searched.`]),
    ...(chosen.length === 0 ? [] : messageText(chosen, others, style)),
    ...ofDevice.map(summary => summaryText(summary, style)),
  ].map(part => fitted(part, style.width))
  const recipe = chosen.every(isRecordable) ? [RECIPE] : []
  return [...parts, ...recipe].join('\n\n')
}
