// An ncclUniqueId of the simulation names a fresh folder below the system's folder for temporary files. All that the
// ranks tell each other is in its files (world.ts). A process that ends removes its folders, unless
// another process uses them. A folder that killed processes leave is removed when the next id is made.

import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { UNIQUE_ID_BYTES } from '../constants.js'
import { isRunning, ownMark, type ProcessMark } from './processes.js'

const PREFIX = 'cuda-mempool-nccl-'
const MAGIC = 'simulated NCCL '
const MAKER = 'maker'
/** of files that begin with the mark of a process: MAKER, and the journals of ranks */
const MARKED = /^(maker|rank-\d+)$/
/** A folder without a mark of a process may be one that another process is making. */
const UNMARKED_MS = 60_000
/** the folders that this thread has made */
const made: string[] = []

/** Makes a folder that only this user can read, and writes its id. */
export function makeUniqueId(id: Uint8Array): void {
  removeStale()
  const folder = fs.mkdtempSync(join(tmpdir(), PREFIX))
  if (made.length === 0 && isMainThread) process.once('exit', removeOwn)
  made.push(folder)
  fs.writeFileSync(join(folder, MAKER), `${JSON.stringify(ownMark())}\n`)
  id.fill(0, 0, UNIQUE_ID_BYTES)
  id.set(new TextEncoder().encode(MAGIC + basename(folder)))
}

/** The folder that an id names, which may be gone; null for any other bytes. */
export function folderOf(id: Uint8Array): string | null {
  const [text] = new TextDecoder().decode(id.subarray(0, UNIQUE_ID_BYTES)).split('\0')
  const isId = text.startsWith(MAGIC + PREFIX) && /^[\w-]+$/.test(text.slice(MAGIC.length))
  return isId ? join(tmpdir(), text.slice(MAGIC.length)) : null
}

/** Whether the process that made the id runs; only it can let ranks join. */
export function isMakerRunning(folder: string): boolean {
  const mark = markIn(join(folder, MAKER))
  return mark !== null && isRunning(mark)
}

function removeOwn(): void {
  for (const folder of made) {
    const isUsed = marksIn(folder).some(mark => mark.pid !== process.pid && isRunning(mark))
    if (!isUsed) fs.rmSync(folder, { recursive: true, force: true })
  }
}

function removeStale(): void {
  for (const name of fs.readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue
    const folder = join(tmpdir(), name)
    const marks = marksIn(folder)
    const { mtimeMs, uid } = fs.statSync(folder, { throwIfNoEntry: false }) ?? { mtimeMs: Infinity, uid: -1 }
    if (uid !== (process.geteuid?.() ?? uid)) continue
    const isAbandoned = marks.length > 0 ? !marks.some(isRunning) : Date.now() - mtimeMs > UNMARKED_MS
    if (isAbandoned) fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** The processes that a folder names; none if it is gone, or of another user. */
function marksIn(folder: string): ProcessMark[] {
  try {
    const files = fs.readdirSync(folder).filter(file => MARKED.test(file))
    return files.map(file => markIn(join(folder, file))).filter(mark => mark !== null)
  } catch {
    return []
  }
}

/** The process that a file names in its first line; null for a file without a mark. */
function markIn(file: string): ProcessMark | null {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8').split('\n')[0]) as ProcessMark
  } catch {
    return null
  }
}
