// The system's files about threads that src/core/threads/os-thread.ts reads.

import type { Scheduler } from './scheduler.js'

const BEFORE_START = 19

export function systemFiles(scheduler: () => Scheduler): Record<string, unknown> {
  const taskOf = (path: string) => {
    const number = Number(/^\/proc\/self\/task\/(\d+)/.exec(path)?.[1])
    const { threads } = scheduler()
    const task = threads.find(each => each.number === number && scheduler().isThere(each))
    scheduler().memory.settle(scheduler().current.index) // a thread is gone when all that it stored is seen
    if (task === undefined) throw Object.assign(new Error(`no ${path}`), { code: 'ENOENT' })
    return task
  }
  return {
    readlinkSync: () => `1000/task/${scheduler().current.number}`,
    readFileSync: (path: string) => `0 (node) ${'0 '.repeat(BEFORE_START)}${taskOf(path).start} 0`,
    statSync: (path: string) => taskOf(path),
    existsSync: (path: string) => {
      try {
        return taskOf(path) !== null
      } catch {
        return false
      }
    },
  }
}
