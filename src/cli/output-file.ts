// Writes a file of results: beside its place first, then renamed, so that it is whole or not there.

import { once } from 'node:events'
import { closeSync, existsSync, openSync, renameSync, rmSync, statSync, writeSync } from 'node:fs'
import { UsageError } from './exit.js'

/** Means standard output. */
export const PIPED = '-'

/** Throws UsageError for an output that must not be replaced, is a folder, or is in no folder. */
export function checkOutput(path: string, force: boolean): void {
  if (path === PIPED || !existsSync(path)) return
  if (statSync(path).isDirectory()) throw new UsageError(`${path}: is a directory; name a file`)
  if (!force) throw new UsageError(`${path}: the file exists; --force replaces it`)
}

/** Writes all pieces. If it fails, it throws UsageError with one line, and leaves no file behind. */
export async function writeOutput(path: string, pieces: Iterable<string | Uint8Array>, force: boolean): Promise<void> {
  if (path === PIPED) return writePiped(pieces)
  const partial = `${path}.${process.pid}.partial`
  let file: number | undefined
  try {
    file = openSync(partial, 'wx')
    for (const piece of pieces) writeWhole(file, typeof piece === 'string' ? Buffer.from(piece) : piece)
    closeSync(file)
    file = undefined
    checkOutput(path, force)
    renameSync(partial, path)
  } catch (error) {
    if (file !== undefined) closeSync(file)
    rmSync(partial, { force: true })
    throw readable(path, error)
  }
}

async function writePiped(pieces: Iterable<string | Uint8Array>): Promise<void> {
  for (const piece of pieces) if (!process.stdout.write(piece)) await once(process.stdout, 'drain')
}

function writeWhole(file: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
}

function readable(path: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (code === undefined) return error
  const reasons: Readonly<Record<string, string>> = {
    ENOENT: 'there is no such folder',
    EACCES: 'no permission to write there',
    EPERM: 'no permission to write there',
    EROFS: 'the file system is read-only',
    ENOSPC: 'the disk is full',
    ENOTDIR: 'part of the path is no folder',
  }
  return new UsageError(`${path}: ${reasons[code] ?? `cannot be written (${code})`}`)
}
