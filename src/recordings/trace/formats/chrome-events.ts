// The events of a file in Chrome's trace format. JSON.parse cannot read files above 512 MiB, and takes gigabytes for a
// file of brackets only. So a scan over the bytes finds the events, and JSON.parse reads one event at a time.

import { MiB } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { isDictionary } from '../pytorch/data-checks.js'

const KEY = 'traceEvents'
const [QUOTE, BACKSLASH, COLON] = [0x22, 0x5c, 0x3a]
const [BRACKET, BRACKET_END, BRACE, BRACE_END] = [0x5b, 0x5d, 0x7b, 0x7d]
const MOST_EVENT_BYTES = 16 * MiB
const DEEPEST = 100
/** How many events come before each call of `onProgress`. */
const PROGRESS_EVENTS = 1 << 14
const START_BYTES = 1 << 16

/** Whether JSON has Chrome's events, rather than a memory snapshot. */
export function isChromeTrace(bytes: Buffer): boolean {
  const events = bytes.indexOf(`"${KEY}"`)
  if (events !== -1) {
    const snapshot = bytes.subarray(0, events).indexOf('"device_traces"')
    return snapshot === -1
  }
  return /^\s*\[\s*\{/.test(bytes.toString('latin1', 0, 64)) && bytes.subarray(0, START_BYTES).includes('"ph"')
}

/**
 * Calls `visit` with each event and its number. Throws FormatError naming the first bad event; a list of events that
 * has no end is accepted, as Chrome does.
 */
export function readChromeEvents(
  bytes: Buffer,
  visit: (event: Record<string, unknown>, number: number) => void,
  onProgress: (bytesRead: number) => void,
): void {
  const start = startOfEvents(bytes)
  let depth = 0
  let eventStart = 0
  let number = 0
  for (let at = start; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === QUOTE) at = endOfText(bytes, at)
    else if (byte === BRACE || byte === BRACKET) {
      if (depth === 0) eventStart = at
      if (++depth > DEEPEST) throw new FormatError(`${place(number, at)} has containers more than ${DEEPEST} deep`)
    } else if (byte === BRACE_END || byte === BRACKET_END) {
      if (depth === 0) return
      if (--depth > 0) continue
      visit(parsed(bytes, eventStart, at + 1, number), number)
      if (++number % PROGRESS_EVENTS === 0) onProgress(at)
    }
  }
  if (depth > 0) throw new FormatError(`${place(number, bytes.length)} is cut short`)
}

/** The place of an event in the file, for errors. */
function place(number: number, at: number): string {
  return `${KEY}[${number}] (byte ${at})`
}

/** The byte after the bracket of the list of events. */
function startOfEvents(bytes: Buffer): number {
  let depth = 0
  let key = ''
  let textStart = -1
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === QUOTE) {
      textStart = at + 1
      at = endOfText(bytes, at)
    } else if (byte === COLON && depth === 1) {
      // The start of the last text, with its quote if it has the length of the name.
      key = bytes.toString('latin1', textStart, textStart + KEY.length + 1)
    } else if (byte === BRACE || byte === BRACKET) {
      if (byte === BRACKET && (depth === 0 || (depth === 1 && key === `${KEY}"`))) return at + 1
      if (++depth > DEEPEST) throw new FormatError(`containers more than ${DEEPEST} deep at byte ${at}`)
    } else if (byte === BRACE_END || byte === BRACKET_END) depth--
  }
  throw new FormatError(`has no list ${KEY}`)
}

/** The byte of the quote that ends the text that begins at `start`. */
function endOfText(bytes: Buffer, start: number): number {
  for (let at = bytes.indexOf(QUOTE, start + 1); at !== -1; at = bytes.indexOf(QUOTE, at + 1)) {
    let backslashes = 0
    while (bytes[at - 1 - backslashes] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return at
  }
  return bytes.length
}

function parsed(bytes: Buffer, start: number, end: number, number: number): Record<string, unknown> {
  if (end - start > MOST_EVENT_BYTES) throw new FormatError(`${place(number, start)} is longer than 16 MiB`)
  let event: unknown
  try {
    event = JSON.parse(bytes.toString('utf8', start, end))
  } catch {
    throw new FormatError(`${place(number, start)} is not valid JSON`)
  }
  if (!isDictionary(event)) throw new FormatError(`${place(number, start)} must be a dictionary`)
  return event
}
