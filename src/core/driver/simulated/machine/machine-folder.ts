// Checks the folder of a simulated machine, so that each mistake is one error that names the remedy.

import { accessSync, constants, realpathSync, statSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { NoDeviceError } from '../../../base/errors.js'

/** The real path of the folder. Throws NoDeviceError for one that cannot serve. */
export function checkFolder(folder: string, platform: string = process.platform): string {
  const fail = (reason: string) => new NoDeviceError(`${nameOf(folder)} ${reason}`)
  if (platform !== 'linux') {
    throw fail(`is shared by processes on Linux, not on ${platform}; unset CUDA_MEMPOOL_SIMULATED to go without`)
  }
  if (!isAbsolute(folder)) throw fail('needs an absolute path, such as /dev/shm/my-machine')
  const found = onFolder(folder, () => statSync(folder, { throwIfNoEntry: false }))
  if (found === undefined) throw fail(`does not exist; make it by mkdir -m 700 ${folder}`)
  if (!found.isDirectory()) throw fail('is no folder; name an empty one')
  if (found.uid !== process.geteuid!()) throw fail(`belongs to user ${found.uid}; name a folder of this user's own`)
  if ((found.mode & 0o022) !== 0) throw fail(`can be written by other users; forbid that by chmod 700 ${folder}`)
  return onFolder(folder, () => {
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK)
    return realpathSync(folder)
  })
}

/** Calls `work`; a refusal of the system is thrown as NoDeviceError. */
export function onFolder<T>(folder: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === undefined || code.startsWith('ERR_')) throw error
    const message = `${nameOf(folder)} cannot be used (${(error as Error).message}); name a writable folder of this user's own`
    throw new NoDeviceError(message, { cause: error })
  }
}

function nameOf(folder: string): string {
  return `the simulated machine ${folder} (CUDA_MEMPOOL_SIMULATED, or the option machine)`
}
