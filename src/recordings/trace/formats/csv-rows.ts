// The rows of a CSV file, one line each. A file may be a gigabyte, so lines become text one by one.

import { KiB } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'

const LINE_FEED = 0x0a
const MOST_LINE_BYTES = 64 * KiB
/** A field of a line that has quotes: quoted, where two quotes stand for one, or plain. */
const FIELD = /(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g
/** How many lines come before each call of `onProgress`. */
const PROGRESS_LINES = 1 << 16

/** The names in the first line. */
export function headerOf(bytes: Buffer): string[] {
  const end = bytes.indexOf(LINE_FEED)
  const line = bytes.toString('utf8', 0, Math.min(end === -1 ? bytes.length : end, MOST_LINE_BYTES))
  return fieldsOf(line.replace(/\r$/, '')).map(name => name.trim())
}

/**
 * Calls `visit` with the fields of each line after the first, and the line's number from 1. A last line that was cut
 * short is left out. Returns how many lines were left out. Throws FormatError naming the first bad line.
 */
export function readRows(
  bytes: Buffer,
  columns: number,
  visit: (fields: readonly string[], line: number) => void,
  onProgress: (bytesRead: number) => void,
): number {
  let at = bytes.indexOf(LINE_FEED) + 1
  if (at === 0) return 0
  for (let line = 2; at < bytes.length; line++) {
    const found = bytes.indexOf(LINE_FEED, at)
    const end = found === -1 ? bytes.length : found
    if (end - at > MOST_LINE_BYTES) throw new FormatError(`line ${line} is longer than 64 KiB`)
    const text = bytes.toString('utf8', at, end).replace(/\r$/, '')
    at = end + 1
    if (text === '') continue
    const fields = fieldsOf(text)
    if (fields.length !== columns) {
      if (found === -1) return 1
      throw new FormatError(`line ${line} has ${fields.length} fields; the first line names ${columns}`)
    }
    visit(fields, line)
    if (line % PROGRESS_LINES === 0) onProgress(at)
  }
  return 0
}

function fieldsOf(text: string): string[] {
  if (!text.includes('"')) return text.split(',')
  return Array.from(text.matchAll(FIELD), match => match[1]?.replaceAll('""', '"') ?? match[2])
}
