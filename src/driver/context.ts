import type { Driver } from './driver.js'

/** What this thread made current last, remembered because a needless cuCtxSetCurrent can cost more than the call it precedes. */
let current: Context | null = null

/** The primary context of one device: what streams, memory and modules of that device belong to. */
export class Context {
  readonly handle: number

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
      this.driver.cuCtxSetCurrent(this.handle)
      current = this
    }
    return this.driver
  }

  /** Lets go of the context. What was made in it and not freed stays until the process ends or the last retainer lets go. */
  release(): void {
    if (current === this) current = null
    this.driver.cuDevicePrimaryCtxRelease(this.device)
  }
}
