// Runs the keeper in the foreground until a signal ends it.

import { DescriptorError, KeepError, NoLibraryError } from '../../core/base/errors.js'
import { printable } from '../../core/base/shown-text.js'
import { Keeper } from '../../core/keeper/keeper.js'
import { usualSocketPath } from '../../core/keeper/socket-path.js'
import type { RunOptions } from './keeper-options.js'

const REFUSED = 2
const EXPECTED = [DescriptorError, KeepError, NoLibraryError, RangeError]

/** Serves until SIGINT, SIGTERM or SIGHUP. Returns the exit status; with status 2 it has printed why. */
export async function runKeeper({ socket, ...limits }: RunOptions): Promise<number> {
  const path = socket ?? usualSocketPath()
  try {
    const keeper = new Keeper({ path, limits })
    const end = () => keeper.end()
    process.on('SIGINT', end).on('SIGTERM', end).on('SIGHUP', end)
    process.stdout.write(`keeps device memory; listens at ${printable(path)}\n`)
    await keeper.run()
    return 0
  } catch (error) {
    if (!EXPECTED.some(kind => error instanceof kind)) throw error
    process.stderr.write(`cuda-mempool: ${printable((error as Error).message)}\n`)
    return REFUSED
  }
}
