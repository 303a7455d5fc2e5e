// Whether another process still runs: the process of a rank, or of the maker of a world.

import { readFileSync } from 'node:fs'

const START_TIME = 19 // index behind the name of the process, which may contain any characters
/** States of a process that has ended, and that its parent has not noticed yet. */
const ENDED = ['Z', 'X']

/** A process: its number and its start time, since numbers are used again. */
export interface ProcessMark {
  readonly pid: number
  /** in ticks of the system; '' if the system does not tell */
  readonly start: string
}

/** The calling process. */
export function ownMark(): ProcessMark {
  return { pid: process.pid, start: startOf(process.pid) ?? '' }
}

/** Whether the process runs. */
export function isRunning({ pid, start }: ProcessMark): boolean {
  if (pid === process.pid) return true
  const found = startOf(pid)
  if (found !== null && start !== '') return found === start
  try {
    return start === '' && process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** The start time of a process; null if it has ended, or if the system does not tell. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return ENDED.includes(fields[0]) ? null : fields[START_TIME]
  } catch {
    return null
  }
}
