// Writes a file of results: beside its place first, then renamed, so that it is whole or not there.

import { once } from 'node:events'
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { UsageError } from './exit.js'

/** Means standard output. */
export const PIPED = '-'

/** Throws UsageError for an output that must not be replaced or cannot be written, before any work is done for it. */
export function checkOutput(path: string, force: boolean): void {
  if (path === PIPED) return
  const folder = dirname(path)
  if (!existsSync(folder) || !statSync(folder).isDirectory()) throw new UsageError(`${folder}: there is no such folder`)
  if (existsSync(path) && statSync(path).isDirectory()) throw new UsageError(`${path} is a folder; name a file with -o`)
  if (existsSync(path) && !force) throw new UsageError(`${path} exists; --force replaces it, -o names another file`)
  try {
    accessSync(folder, constants.W_OK)
  } catch {
    throw new UsageError(`${folder}: no permission to write; name another file with -o`)
  }
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
  return new UsageError(`${path}: ${code === 'ENOSPC' ? 'the disk is full' : `cannot be written (${code})`}`)
}
