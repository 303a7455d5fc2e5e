// The bytes of a recording or of standard input, without gzip. Files are read in pieces because a single read is
// limited to 2 GiB. The first bytes tell a foreign file, so that the rest is neither read nor unpacked.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { constants, gunzipSync } from 'node:zlib'
import { formatBytes, GiB, KiB, MiB } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { readPickle } from '../pytorch/pickle.js'

/** The largest Buffer. */
const MOST_BYTES = 4 * GiB
const PIECE_BYTES = 64 * MiB
const FIRST_BYTES = 4 * KiB
const STANDARD_INPUT = 0
const UTF_8_MARK = Buffer.from([0xef, 0xbb, 0xbf])
const UTF_16_MARKS = [Buffer.from([0xff, 0xfe]), Buffer.from([0xfe, 0xff])]
const RETRY_MS = 5
const HOLE = Buffer.alloc(MiB)
/** A recorded trace packs 10 : 1, a very regular one 100 : 1, and a malicious file 1000 : 1. */
const MOST_UNPACKED_PER_BYTE = 256

/**
 * Reads a file, and unpacks gzip. `check` throws for the first bytes of a foreign file. Throws FormatError with one
 * line that does not name the file.
 */
export function readFile(path: string, check: (start: Buffer) => void): Buffer {
  let file: number | undefined
  try {
    file = openSync(path, 'r')
    if (fstatSync(file).isDirectory()) throw new FormatError('is a directory; name the snapshot file in it')
    return withoutMark(unpacked(readWhole(file, check)))
  } catch (error) {
    throw readable(error)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

/** Reads standard input to its end, and unpacks gzip. Throws FormatError. */
export function readStandardInput(check: (start: Buffer) => void): Buffer {
  try {
    return withoutMark(unpacked(readWhole(STANDARD_INPUT, check)))
  } catch (error) {
    throw readable(error)
  }
}

/** The bytes of a file that was read elsewhere, without gzip. Throws FormatError. */
export function unpackedBytes(bytes: Uint8Array, check: (start: Buffer) => void): Buffer {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  checkStart(buffer.subarray(0, FIRST_BYTES), check)
  return withoutMark(unpacked(buffer))
}

/** Throws FormatError for a start that no text and no pickle has. */
export function checkText(start: Buffer): void {
  if (start.length === 0) throw new FormatError('the file is empty')
  if (isUtf16(start)) {
    throw new FormatError('is text in UTF-16, as > of PowerShell writes it; write it as UTF-8 or ASCII')
  }
}

export function isUtf16(start: Buffer): boolean {
  return UTF_16_MARKS.some(mark => start.subarray(0, mark.length).equals(mark))
}

/** Bytes without the mark of UTF-8 at their start, which programs for Windows write. */
function withoutMark(bytes: Buffer): Buffer {
  return bytes.subarray(0, UTF_8_MARK.length).equals(UTF_8_MARK) ? bytes.subarray(UTF_8_MARK.length) : bytes
}

export function isPickle(start: Buffer): boolean {
  return start[0] === 0x80
}

export function isJson(start: Buffer): boolean {
  return /^[\s]*[{[]/.test(start.toString('latin1', 0, 64))
}

function isGzip(start: Buffer): boolean {
  return start[0] === 0x1f && start[1] === 0x8b
}

function readable(error: unknown): FormatError {
  if (error instanceof FormatError) return error
  const { code } = error as NodeJS.ErrnoException
  return new FormatError(code === 'ENOENT' ? 'no such file' : `the file cannot be read (${code ?? error})`)
}

/** All bytes of a file or a pipe. */
function readWhole(file: number, check: (start: Buffer) => void): Buffer {
  const status = fstatSync(file)
  if (status.size > MOST_BYTES) throw tooLarge(status.size)
  const start = Buffer.alloc(FIRST_BYTES)
  const startBytes = readInto(file, start)
  checkStart(start.subarray(0, startBytes), check)
  if (status.isFile() && status.size >= startBytes) {
    const bytes = Buffer.allocUnsafe(status.size)
    const filled = start.copy(bytes, 0, 0, startBytes)
    if (filled + readInto(file, bytes.subarray(filled)) < bytes.length) {
      throw new FormatError('the file shrank while it was read')
    }
    return bytes
  }
  const pieces = [start.subarray(0, startBytes)]
  let total = startBytes
  for (let last = startBytes; last > 0; ) {
    const piece = Buffer.allocUnsafe(MiB)
    last = readInto(file, piece)
    pieces.push(piece.subarray(0, last))
    total += last
    if (total > MOST_BYTES) throw tooLarge(total)
  }
  return Buffer.concat(pieces, total)
}

/** Fills `target`; returns how many bytes there were. */
function readInto(file: number, target: Buffer): number {
  let filled = 0
  let checked = 0
  while (filled < target.length) {
    const read = readPiece(file, target, filled, Math.min(PIECE_BYTES, target.length - filled))
    if (read === 0) break
    filled += read
    for (; checked + HOLE.length <= filled; checked += HOLE.length) checkHole(target, checked)
  }
  return filled
}

/** Throws FormatError for a part that was never written. A system can make a file of gigabytes with no more in it. */
function checkHole(bytes: Buffer, at: number): void {
  if (bytes[at] === 0 && HOLE.compare(bytes, at, at + HOLE.length) === 0) {
    throw new FormatError(`the file is damaged: it has ${formatBytes(HOLE.length)} of zeros`)
  }
}

function readPiece(file: number, target: Buffer, offset: number, length: number): number {
  for (;;) {
    try {
      return readSync(file, target, offset, length, null)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'EOF') return 0
      // A pipe may be set not to wait for its writer.
      if (code !== 'EAGAIN') throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS)
    }
  }
}

function tooLarge(bytes: number): FormatError {
  return new FormatError(`${formatBytes(bytes)} is more than the ${formatBytes(MOST_BYTES)} that can be read`)
}

/** Refuses foreign contents by their first bytes, also those in a gzip file. */
function checkStart(start: Buffer, check: (start: Buffer) => void): void {
  const inside = isGzip(start) ? startOf(start) : start
  if (inside === null) return
  check(withoutMark(inside))
  if (isPickle(inside)) checkPickle(inside)
}

/** Refuses the start of a pickle that does not go on as one. */
function checkPickle(start: Buffer): void {
  try {
    readPickle(start)
  } catch (error) {
    if (!(error instanceof FormatError) || !error.message.includes('truncated')) throw error
  }
}

/** The first bytes in a gzip file; null if it is damaged, which unpacking all of it explains. */
function startOf(packed: Buffer): Buffer | null {
  try {
    const inside = gunzipSync(packed, { finishFlush: constants.Z_SYNC_FLUSH })
    return inside.length > 0 ? inside : null
  } catch {
    return null
  }
}

function unpacked(bytes: Buffer): Buffer {
  if (!isGzip(bytes)) return bytes
  const most = Math.min(MOST_BYTES, 16 * MiB + bytes.length * MOST_UNPACKED_PER_BYTE)
  try {
    return gunzipSync(bytes, { maxOutputLength: most, chunkSize: MiB })
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'Z_BUF_ERROR') throw new FormatError('the gzip file is truncated')
    if (code === 'ERR_BUFFER_TOO_LARGE')
      throw new FormatError(`the gzip file unpacks to more than ${formatBytes(most)}`)
    throw new FormatError(`the gzip file is damaged (${message})`)
  }
}
