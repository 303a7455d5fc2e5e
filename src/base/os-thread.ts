// Whether another thread of the process has ended, also when it was terminated and could say nothing. The operating system
// knows, under the number of the thread and the moment it began, since numbers come round again. Only Linux is asked.

import { readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'

const TASKS = '/proc/self/task'
const START_TIME = 19 // behind the name of the thread, which may hold anything

/** The system's number of the calling thread, which no other thread has while it lives; 0 where the system does not tell. */
export function threadNumber(): number {
  try {
    return Number(basename(readlinkSync('/proc/thread-self')))
  } catch {
    return 0
  }
}

/** When a thread of this process began, as an int32 that is never 0; 0 when there is none of that number. */
export function threadStart(thread: number): number {
  let stat: string
  try {
    stat = readFileSync(`${TASKS}/${thread}/stat`, 'latin1')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return 0
    throw error // say for want of file descriptors, which means nothing
  }
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_TIME]) | 0 || 1
}

/** What the calling thread is known by for `hasEnded`; empty where the system does not tell. */
export function markOfThread(): string {
  const thread = threadNumber()
  return thread === 0 ? '' : `${thread} ${threadStart(thread)}`
}

/** Whether the thread of a mark has ended; not as long as the system does not tell. */
export function hasEnded(mark: string): boolean {
  if (mark === '') return false
  const [thread, start] = mark.split(' ').map(Number)
  return isOver(thread, start)
}

/** The same of a number and when its thread began, 0 for not known. */
export function isOver(thread: number, start: number): boolean {
  try {
    const now = threadStart(thread)
    return now === 0 || (start !== 0 && now !== start)
  } catch {
    return false
  }
}
