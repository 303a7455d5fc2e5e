// Whether another thread of the process has ended, also when it was terminated and could say nothing. The operating system
// knows, under the number of the thread and the moment it began, since numbers come round again. Only Linux is asked.

import { readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'

const TASKS = '/proc/self/task'
const START_TIME = 19 // behind the name of the thread, which may hold anything

/** What the calling thread is known by for `hasEnded`; empty where the system does not tell. */
export function markOfThread(): string {
  try {
    const thread = basename(readlinkSync('/proc/thread-self'))
    return `${thread} ${startOf(thread)}`
  } catch {
    return ''
  }
}

/** Whether the thread of a mark has ended; never where the system does not tell. */
export function hasEnded(mark: string): boolean {
  if (mark === '') return false
  const [thread, start] = mark.split(' ')
  return startOf(thread) !== start
}

/** When a thread of this process began, as the system writes it; null when there is none of that number. */
function startOf(thread: string): string | null {
  try {
    const stat = readFileSync(`${TASKS}/${thread}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_TIME]
  } catch {
    return null
  }
}
