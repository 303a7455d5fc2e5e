// Finds error messages in a log, and the totals of an allocator.

import { FormatError } from '../../../core/base/errors.js'
import { type MemorySummary, memorySummaries, waitingAt } from './memory-summary.js'
import { type OtherMessage, otherMessage, smiTable } from './other-allocators.js'
import { answerOf, type OutOfMemoryMessage } from './out-of-memory-message.js'
import { MOST_TEXT_BYTES, plainText, squeezed } from './plain-text.js'
import { pytorchMessages } from './pytorch-messages.js'

/** The findings of a log. Without messages and summaries of PyTorch it has a message of another allocator. */
export interface TextFigures {
  readonly file: string
  /** the bytes at the start of a long log that were not searched */
  readonly skippedBytes: number
  /** the messages of PyTorch in their order; of equal ones the last */
  readonly messages: readonly OutOfMemoryMessage[]
  /** the last one of each device, those with failed requests first */
  readonly summaries: readonly MemorySummary[]
  /** the message of another allocator; null if PyTorch has some, or none is known */
  readonly other: OtherMessage | null
}

/**
 * The figures of a text; null for an unknown text. Throws FormatError for a table of another tool, which does not tell
 * why memory ran out.
 */
export function figuresOfText(bytes: Buffer, file: string): TextFigures | null {
  const text = plainText(bytes)
  const skippedBytes = Math.max(0, bytes.length - MOST_TEXT_BYTES)
  const narrow = squeezed(text)
  const summaries = memorySummaries(text)
  const messages = distinct(pytorchMessages(narrow)).map(message => ({
    ...message,
    waiting: waitingAt(message, summaries),
  }))
  if (messages.length > 0 || summaries.length > 0) return { file, skippedBytes, messages, summaries, other: null }
  const other = otherMessage(narrow)
  if (other !== null) return { file, skippedBytes, messages, summaries, other }
  const table = smiTable(text)
  if (table === null) return null
  throw new FormatError(`${table}; what a program holds is in its error message, or in a recording of it`)
}

/** A program and its launcher print the same message, with and without a call stack. */
function distinct(messages: readonly OutOfMemoryMessage[]): OutOfMemoryMessage[] {
  const last = new Map<string, OutOfMemoryMessage>()
  for (const message of messages) {
    const key = JSON.stringify(message)
    last.delete(key)
    last.set(key, message)
  }
  return [...last.values()]
}

/** The messages of the device that failed first, or of `device`, and those of other devices. */
export function ofOneDevice(
  messages: readonly OutOfMemoryMessage[],
  device: number | undefined,
): { readonly chosen: readonly OutOfMemoryMessage[]; readonly others: readonly OutOfMemoryMessage[] } {
  const number = device ?? messages[0]?.device
  const isChosen = (message: OutOfMemoryMessage) => message.device === number
  return { chosen: messages.filter(isChosen), others: messages.filter(message => !isChosen(message)) }
}

/** Whether a message of another allocator has the parts of the sum that decides. */
export function isDecided({ message }: OtherMessage): boolean {
  return answerOf(message).verdict !== 'unknown'
}
