// The place where clients connect to a keeper. If no descriptor is left for a connection, it is refused by means of a
// spare one; else it would wait, and wake the keeper again and again.

import { openSync } from 'node:fs'
import { DescriptorError } from '../base/errors.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import type { UnixSocket } from '../libraries/unix-socket.js'
import type { Place } from './socket-path.js'

export class Entrance {
  private spare = openSync('/dev/null', 'r')

  constructor(readonly place: Place) {}

  get descriptor(): number {
    return this.place.listener.descriptor
  }

  /** The next connection; null without one, and if it was refused. */
  accept(): UnixSocket | null {
    const { listener } = this.place
    try {
      return listener.accept()
    } catch (error) {
      if (!(error instanceof DescriptorError) || !['EMFILE', 'ENFILE'].includes(error.resultName)) throw error
      closeDescriptor(this.spare)
      listener.accept()?.close()
      this.spare = openSync('/dev/null', 'r')
      return null
    }
  }

  /** Removes the socket's file, too, unless a successor has it. */
  close(isTaken: boolean): void {
    const { listener, lock } = this.place
    if (isTaken) listener.leaveFile()
    else listener.close()
    closeDescriptor(lock)
    closeDescriptor(this.spare)
  }
}
