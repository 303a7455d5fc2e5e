import { DeviceLostError, PoolError } from '../base/errors.js'
import type { Driver } from './driver.js'

/** What this thread made current last, remembered because a needless cuCtxSetCurrent can cost more than the call it precedes. */
let current: Context | null = null

/** The primary context of one device: what streams, memory and modules of that device belong to. */
export class Context {
  readonly handle: number
  /** true once let go of: nothing of it can be used any more */
  released = false

  private constructor(
    readonly driver: Driver,
    /** the driver's number of the device */
    readonly device: number,
    readonly ordinal: number,
  ) {
    this.handle = driver.cuDevicePrimaryCtxRetain(device)
  }

  /** Retains the primary context of device `ordinal` and makes it current in this thread. */
  static open(driver: Driver, ordinal: number): Context {
    const context = new Context(driver, driver.cuDeviceGet(ordinal), ordinal)
    context.activate()
    return context
  }

  /** Makes this context current in this thread, as every driver call needs it; free when it already is. */
  activate(): Driver {
    if (current !== this) {
      if (this.released) throw new PoolError('the device is closed; open it again')
      this.driver.cuCtxSetCurrent(this.handle)
      current = this
    }
    return this.driver
  }

  /** Runs `work`, which gives something back to the driver; on a lost device nothing is left to give, and it ends quietly. */
  giveBack(work: (driver: Driver) => void): void {
    try {
      work(this.activate())
    } catch (error) {
      if (!(error instanceof DeviceLostError)) throw error
    }
  }

  /**
   * Lets go of the context. What was made in it and not freed stays until the process ends or the last retainer lets go.
   * A second release does nothing.
   */
  release(): void {
    if (this.released) return
    this.driver.cuDevicePrimaryCtxRelease(this.device)
    this.released = true
    if (current === this) current = null
  }
}
