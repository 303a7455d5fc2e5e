// The primary context of a device, made in another thread: the driver takes 0.1 s for it, and this thread can work
// meanwhile. A later cuDevicePrimaryCtxRetain of this thread waits for it.

import { RESULT } from '../constants.js'
import type { Library } from './library.js'

export class EarlyContext {
  /** where the driver writes the handle */
  private readonly handle = new Uint32Array(new ArrayBuffer(8))
  private state: 'wanted' | 'dropped' | 'ended' = 'wanted'

  /** Begins to make it. `release` gives up the reference of the other thread. */
  constructor(
    library: Library,
    device: number,
    private readonly release: () => void,
  ) {
    const name = 'cuDevicePrimaryCtxRetain'
    library.start(name, [library.addressOf(this.handle), device], code => this.noteEnd(code))
  }

  /** Whether it is made. If it cannot be made, it never is. */
  get isReady(): boolean {
    return this.handle[0] !== 0 || this.handle[1] !== 0
  }

  /** Gives up the reference: at once, or as soon as the other thread has one. */
  drop(): void {
    if (this.state !== 'wanted') return
    this.state = 'dropped'
    if (this.isReady) this.giveUp()
  }

  private noteEnd(code: number): void {
    if (code !== RESULT.CUDA_SUCCESS) this.state = 'ended'
    else if (this.state === 'dropped') this.giveUp()
  }

  private giveUp(): void {
    this.state = 'ended'
    this.release()
  }
}
