// Runs the keeper in the foreground until a signal ends it.

import { OutOfRangeError } from '../../core/base/argument-errors.js'
import { DescriptorError, KeepError, NoLibraryError } from '../../core/base/errors.js'
import { printable } from '../../core/base/shown-text.js'
import { Keeper } from '../../core/keeper/keeper.js'
import { openFiles } from '../../core/keeper/open-files.js'
import { usualSocketPath } from '../../core/keeper/socket-path.js'
import { serviceManager } from '../../core/keeper/store/service-manager.js'
import type { RunOptions } from './keeper-options.js'

const REFUSED = 2
/** systemd's store holds as many descriptors with the unit that the documents have. */
const USUAL_DESCRIPTORS = 10_000
const EXPECTED = [DescriptorError, KeepError, NoLibraryError, RangeError]

/** The number of descriptors to keep: the usual one, or fewer, if the system or its store allows no more. */
function descriptorsFor(wanted: number | null, room: number): number {
  const { most, descriptors } = openFiles()
  if (wanted === null) return Math.min(USUAL_DESCRIPTORS, descriptors, room)
  if (wanted <= Math.min(descriptors, room)) return wanted
  const why =
    room < descriptors
      ? `${room}, not ${wanted}: FileDescriptorStoreMax of the unit is ${room + 1}`
      : `${descriptors}, not ${wanted}: ${descriptors} are left of the ${most} open files that ulimit -n allows`
  throw new OutOfRangeError(`--max-descriptors must be at most ${why}; raise that`)
}

/** Serves until SIGINT, SIGTERM or SIGHUP. Returns the exit status; with status 2 it has printed why. */
export async function runKeeper({ socket, replace, quiet, ...limits }: RunOptions): Promise<number> {
  const path = socket ?? usualSocketPath()
  try {
    const manager = serviceManager()
    if (replace && (manager.listener ?? manager.store) !== null)
      throw new OutOfRangeError('--replace: a service manager has started this keeper; restart it there instead')
    const maxDescriptors = descriptorsFor(limits.maxDescriptors, manager.room)
    const options = { path, limits: { ...limits, maxDescriptors } }
    const keeper = replace ? await Keeper.takeOver(options, manager) : new Keeper(options, null, manager)
    const end = () => keeper.end()
    process.on('SIGINT', end).on('SIGTERM', end).on('SIGHUP', end)
    process.on('exit', end) // the end of the process waits for the thread that waits, also after an error
    process.stdout.on('error', () => {}) // a log that is full or gone ends no keeper
    if (!quiet) process.stdout.write(`keeps device memory; listens at ${printable(path)}\n`)
    await keeper.run()
    process.off('exit', end)
    return 0
  } catch (error) {
    if (!EXPECTED.some(kind => error instanceof kind)) throw error
    process.stderr.write(`cuda-mempool: ${printable((error as Error).message)}\n`)
    return REFUSED
  }
}
