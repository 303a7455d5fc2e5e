// The line about a message of an allocator other than PyTorch's own.

import type { OtherMessage } from '../../trace/messages/other-allocators.js'
import { answerOf } from '../../trace/messages/out-of-memory-message.js'
import { messageVerdict, sizeText } from './message-verdict.js'

/** A clause for a refusal or an answer, whose subject is the file. */
export function otherMessageText({ message, remedy }: OtherMessage): string {
  const answer = answerOf(message)
  const { allocator, asked, inUse, free, total, allowed } = message
  const sizes = [
    ...(asked === null ? [] : [`${sizeText(asked)} asked`]),
    ...(inUse === null || inUse.bytes === 0 ? [] : [`${sizeText(inUse)} in use`]),
    ...(free === null ? [] : [`${sizeText(free)} free`]),
    ...(allowed === null ? [] : [`a limit of ${sizeText(allowed)}`]),
    ...(total === null ? [] : [`${sizeText(total)} on the device`]),
  ]
  const says = sizes.length === 0 ? 'it names no sizes' : sizes.join(', ')
  const isKnown = answer.verdict !== 'unknown' || answer.unknown === 'contradiction'
  const verdict = isKnown ? messageVerdict(message, answer) : 'It does not say enough to tell why'
  return `is a message of ${allocator}: ${says}. ${verdict.replace(/\.$/, '')}; ${remedy}`
}
