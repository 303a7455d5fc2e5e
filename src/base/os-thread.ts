// Operating system threads of this process, as Linux lists them under /proc: what is not listed there has ended, whether it
// returned, threw or was terminated, and nothing of it runs any more.

import { readFileSync, readlinkSync } from 'node:fs'
import { PoolError } from './errors.js'

/** Fields of a `stat` line behind the name, which may contain anything and ends with the last parenthesis. */
const START_TIME = 22 - 3

/** The number of the calling thread, which no other thread of the process has while it lives. Throws PoolError where nothing tells. */
export function threadId(): number {
  try {
    return Number(readlinkSync('/proc/thread-self').split('/').at(-1))
  } catch (error) {
    throw new PoolError('sharing between threads needs Linux, whose /proc tells which threads still live', {
      cause: error,
    })
  }
}

/** When a thread of this process started, as an int32 that is never 0 and tells it from an earlier one of its number; 0 when it has ended. */
export function threadStart(id: number): number {
  let stat: string
  try {
    stat = readFileSync(`/proc/self/task/${id}/stat`, 'latin1')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return 0
    throw error
  }
  const ticks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_TIME])
  return ticks | 0 || 1
}
