// The file that a recorder writes when its pool runs out of memory. It never throws, since the program is about to get
// the OutOfMemoryError, and it rests between two files, since a full server may run out at each request.

import { thrownText } from '../../../core/base/thrown.js'

const { performance } = globalThis
const REST_MS = 60_000

export class OutOfMemoryFile {
  private writtenMs = Number.NEGATIVE_INFINITY

  constructor(private readonly path: string) {}

  /** Calls `save`, unless the last call is less than a minute ago. If it throws, a process warning says why. */
  write(save: (path: string) => void): void {
    const nowMs = performance.now()
    if (nowMs - this.writtenMs < REST_MS) return
    this.writtenMs = nowMs
    try {
      save(this.path)
    } catch (error) {
      process.emitWarning(`recorded: the recording of an out of memory is lost: ${thrownText(error)}`, 'PoolWarning')
    }
  }
}
