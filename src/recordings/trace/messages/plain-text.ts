// Logs as plain text: without terminal escapes, marks of ranks, frames of boxes and the white space that a terminal or
// a program broke a message with.

import { MiB } from '../../../core/base/bytes.js'
import { withoutPrefixes } from './log-prefixes.js'

/** Of a longer log the end is read: 300,000 lines, where the failure is. It bounds the time. */
export const MOST_TEXT_BYTES: number = 32 * MiB
/** Zeros in the first bytes of UTF-16, which PowerShell writes. */
const UTF_16_MARKS = [
  [0xff, 0xfe],
  [0xfe, 0xff],
] as const

// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escapes begin with it
const ESCAPES = /\x1b\[[0-9;?]{0,32}[ -/]{0,4}[@-~]/g
/** Escapes and line ends of a text within JSON. */
const WRITTEN_ESCAPES = /\\u001b\[[0-9;]{0,32}m/gi
const WRITTEN_LINES = /(?:\\r)?\\n/g
const SPACES_OF_PAGES = /&nbsp;|&#160;/g
/** At the start of a line: a rank or worker, a quote, a comment, the frame of a box. */
const MARKS =
  /^[ \t]*(?:\[?(?:default|rank)\s?\d{1,6}\]?:|\([^()\n]{1,80}pid=\d{1,10}[^()\n]{0,80}\)|[>#|│┃║*]{1,8}(?= ))[ \t]*/gim
const ENDS = /[ \t][|│┃║][ \t]*$/gm

/** The text of a log, without terminal escapes; of a long log its end. */
export function plainText(bytes: Buffer): string {
  const end = bytes.length > MOST_TEXT_BYTES ? bytes.subarray(bytes.length - MOST_TEXT_BYTES) : bytes
  return decoded(bytes, end)
    .replace(ESCAPES, '')
    .replace(WRITTEN_ESCAPES, '')
    .replace(WRITTEN_LINES, '\n')
    .replace(SPACES_OF_PAGES, ' ')
}

function decoded(bytes: Buffer, end: Buffer): string {
  const mark = UTF_16_MARKS.findIndex(([first, second]) => bytes[0] === first && bytes[1] === second)
  if (mark === -1) return end.toString('utf8')
  const even = end.subarray(0, end.length - (end.length % 2))
  return (mark === 0 ? even : Buffer.from(even).swap16()).toString('utf16le')
}

/** Stands for white space before a number, so that no digits of a time or a line number are taken for a part of it. */
const MARK = '\u00a6'
/** Within a line; where a line breaks between two digits, a terminal broke a number. */
const BEFORE_NUMBERS = /(?<=[\d.+-])[^\S\n]+(?=\d)/g

/** A text without white space, so that it does not matter where its lines are broken. */
export function squeezed(text: string): string {
  const message = withoutPrefixes(text.replace(MARKS, '').replace(ENDS, ''))
  return message.replace(BEFORE_NUMBERS, MARK).replace(/\s+/g, '')
}
