import { FormatError } from '../../../core/base/errors.js'
import { isDictionary } from './data-checks.js'
import type { SnapshotEvents } from './snapshot-events.js'

const MOST_CONTAINERS_SMALL = 4096
/** A snapshot has at least this many bytes for each container, as in a pickle; a malicious file has fewer. */
const LEAST_BYTES_A_CONTAINER = 16
const DEEPEST = 1000
const [QUOTE, BACKSLASH] = [0x22, 0x5c]
const OPENING = [0x5b, 0x7b]
const CLOSING = [0x5d, 0x7d]

/** Parses a JSON snapshot and adds its events, with the same result as a pickle. */
export function readJson(bytes: Buffer, events: SnapshotEvents): unknown {
  checkNesting(bytes)
  let root: unknown
  try {
    root = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new FormatError(`is not valid JSON, or too large for it: ${(error as Error).message}`)
  }
  const traces = isDictionary(root) ? root['device_traces'] : undefined
  for (const trace of Array.isArray(traces) ? traces : []) {
    if (!Array.isArray(trace)) continue
    for (let i = 0; i < trace.length; i++) trace[i] = events.json(trace[i])
  }
  return root
}

/** JSON.parse would take minutes and gigabytes for a file of brackets only. */
function checkNesting(bytes: Buffer): void {
  const most = MOST_CONTAINERS_SMALL + bytes.length / LEAST_BYTES_A_CONTAINER
  let containers = 0
  let depth = 0
  let inText = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === QUOTE) inText = !inText
    else if (inText) at += byte === BACKSLASH ? 1 : 0
    else if (byte === OPENING[0] || byte === OPENING[1]) {
      if (++depth > DEEPEST) throw new FormatError(`containers more than ${DEEPEST} deep at byte ${at}`)
      if (++containers > most) throw new FormatError(`more containers than a snapshot of this size has, at byte ${at}`)
    } else if (byte === CLOSING[0] || byte === CLOSING[1]) depth--
  }
}
