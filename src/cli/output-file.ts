// Writes a file of results: beside its place first, then renamed, so that it is whole or not there.

import { once } from 'node:events'
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  lstatSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { PIPED } from '../recordings/trace/formats/read-recording.js'
import { UsageError } from './exit.js'

const PERMISSIONS = 0o777
/** What a new file has, less the umask. */
const USUAL_MODE = 0o666
const ENDING_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Names that Windows takes for devices, in each folder and with each ending. */
const DEVICES_OF_WINDOWS = /^(?:con|prn|aux|nul|com\d|lpt\d) *(?:\.|$)/i

/** The place of an output. */
interface Place {
  /** behind symbolic links */
  readonly path: string
  /** the permissions of the file that is there, if any */
  readonly mode: number | undefined
}

/** Throws UsageError for an output that must not be replaced or cannot be written, before any work is done for it. */
export function checkOutput(path: string, force: boolean): void {
  if (path !== PIPED) placeOf(path, force)
}

/**
 * Writes all pieces. If it fails, it throws UsageError with one line, and leaves no file behind; nor does it if a
 * signal ends the process meanwhile.
 */
export async function writeOutput(path: string, pieces: Iterable<string | Uint8Array>, force: boolean): Promise<void> {
  if (path === PIPED) return writePiped(pieces)
  const place = placeOf(path, force)
  const partial = `${place.path}.${process.pid}.partial`
  const remove = () => rmSync(partial, { force: true })
  const stop = beforeEnd(remove)
  let file: number | undefined
  try {
    file = openSync(partial, 'wx', place.mode ?? USUAL_MODE)
    if (place.mode !== undefined) fchmodSync(file, place.mode)
    for (const piece of pieces) {
      writeWhole(file, typeof piece === 'string' ? Buffer.from(piece) : piece)
      await setImmediate() // signals come between turns
    }
    closeSync(file)
    file = undefined
    placeOf(path, force)
    renameSync(partial, place.path)
  } catch (error) {
    if (file !== undefined) closeSync(file)
    remove()
    throw readable(path, error)
  } finally {
    stop()
  }
}

/** Calls `clean` when a signal ends the process, which then ends by it; until the returned function is called. */
function beforeEnd(clean: () => void): () => void {
  const end = (signal: NodeJS.Signals) => {
    clean()
    stop()
    process.kill(process.pid, signal)
  }
  const stop = () => {
    for (const signal of ENDING_SIGNALS) process.off(signal, end)
  }
  for (const signal of ENDING_SIGNALS) process.on(signal, end)
  return stop
}

/** Throws UsageError unless a file may be written there. */
function placeOf(path: string, force: boolean): Place {
  try {
    checkFolder(dirname(path))
    const there = statSync(path, { throwIfNoEntry: false })
    if (there?.isDirectory()) throw new UsageError(`${path} is a folder; name a file with -o`)
    const isNamedDevice = process.platform === 'win32' && DEVICES_OF_WINDOWS.test(basename(path))
    if (isNamedDevice || there?.isFile() === false) {
      throw new UsageError(`${path} is a device, pipe or socket; name a file with -o, or write to -o - in convert`)
    }
    if (there !== undefined && !force) {
      throw new UsageError(`${path} exists; --force replaces it, -o names another file`)
    }
    const target = behindLinks(path)
    checkFolder(dirname(target))
    checkWritable(dirname(target))
    return { path: target, mode: there && there.mode & PERMISSIONS }
  } catch (error) {
    throw readable(path, error)
  }
}

/** Where the last link points, whether or not a file is there. Links without an end must have been refused before. */
function behindLinks(path: string): string {
  const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
  return isLink ? behindLinks(resolve(realpathSync(dirname(path)), readlinkSync(path))) : path
}

function checkFolder(folder: string): void {
  if (!existsSync(folder) || !statSync(folder).isDirectory()) throw new UsageError(`${folder}: there is no such folder`)
}

function checkWritable(folder: string): void {
  try {
    accessSync(folder, constants.W_OK)
  } catch {
    throw new UsageError(`${folder}: no permission to write; name another file with -o`)
  }
}

async function writePiped(pieces: Iterable<string | Uint8Array>): Promise<void> {
  try {
    for (const piece of pieces) if (!process.stdout.write(piece)) await once(process.stdout, 'drain')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error // the reader wants no more
  }
}

function writeWhole(file: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
}

function readable(path: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (code === undefined) return error
  const isHeld = process.platform === 'win32' && ['EBUSY', 'EPERM', 'EACCES'].includes(code)
  const cause = isHeld ? `another program has it open, or it is protected (${code})` : `cannot be written (${code})`
  return new UsageError(`${path}: ${code === 'ENOSPC' ? 'the disk is full' : cause}`)
}
