// The bytes of a snapshot file, without gzip. Files are read in pieces because a single read is limited to 2 GiB.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { formatBytes, GiB, MiB } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'

/** The largest Buffer. */
const MOST_BYTES = 4 * GiB
const PIECE_BYTES = 64 * MiB
/** A recorded trace packs 10 : 1, a very regular one 100 : 1, and a malicious file 1000 : 1. */
const MOST_UNPACKED_PER_BYTE = 256

/** Reads a file, and unpacks gzip. Throws FormatError with one line that does not name the file. */
export function readSnapshotFile(path: string): Buffer {
  const bytes = readWhole(path)
  if (bytes.length === 0) throw new FormatError('the file is empty')
  return bytes[0] === 0x1f && bytes[1] === 0x8b ? unpack(bytes) : bytes
}

function readWhole(path: string): Buffer {
  let file: number | undefined
  try {
    file = openSync(path, 'r')
    const status = fstatSync(file)
    if (status.isDirectory()) throw new FormatError('is a directory; name the snapshot file in it')
    if (!status.isFile()) throw new FormatError('is not a regular file; save it to one first')
    if (status.size > MOST_BYTES) {
      throw new FormatError(`${formatBytes(status.size)} is more than the ${formatBytes(MOST_BYTES)} that can be read`)
    }
    const bytes = Buffer.allocUnsafe(status.size)
    let filled = 0
    while (filled < bytes.length) {
      const read = readSync(file, bytes, filled, Math.min(PIECE_BYTES, bytes.length - filled), null)
      if (read === 0) throw new FormatError('the file shrank while it was read')
      filled += read
    }
    return bytes
  } catch (error) {
    if (error instanceof FormatError) throw error
    const { code } = error as NodeJS.ErrnoException
    throw new FormatError(code === 'ENOENT' ? 'no such file' : `the file cannot be read (${code ?? error})`)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function unpack(packed: Buffer): Buffer {
  const most = Math.min(MOST_BYTES, 16 * MiB + packed.length * MOST_UNPACKED_PER_BYTE)
  try {
    return gunzipSync(packed, { maxOutputLength: most, chunkSize: MiB })
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'Z_BUF_ERROR') throw new FormatError('the gzip file is truncated')
    if (code === 'ERR_BUFFER_TOO_LARGE')
      throw new FormatError(`the gzip file unpacks to more than ${formatBytes(most)}`)
    throw new FormatError(`the gzip file is damaged (${message})`)
  }
}
