import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { RESULT } from './constants.js'
import type { Driver } from './driver.js'

/** What this thread made current last, remembered because a needless cuCtxSetCurrent can cost more than the call it precedes. */
let current: Context | null = null

/** The primary context of one device: what streams, memory and modules of that device belong to. */
export class Context {
  readonly handle: number
  /** true once let go of: nothing of it can be used any more */
  released = false
  /** those whose ordinary allocations work of this context may use, and those whose work may use those of this one */
  private readonly owners = new Set<Context>()
  private readonly users = new Set<Context>()
  /** what the driver has refused to destroy */
  private readonly undestroyed: ((driver: Driver) => void)[] = []

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
    try {
      context.activate()
    } catch (error) {
      context.release()
      throw error
    }
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

  /** As `giveBack`, for an object that nothing refers to afterwards: where that is refused, `destroyRest` tries again. */
  destroy(work: (driver: Driver) => void): void {
    try {
      this.giveBack(work)
    } catch (error) {
      this.undestroyed.push(work)
      throw error
    }
  }

  /** The same beside a result, or an error that tells more: a refusal is not thrown. */
  discard(work: (driver: Driver) => void): void {
    try {
      this.destroy(work)
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
    }
  }

  /** Destroys what the driver has refused to destroy before. */
  destroyRest(): void {
    for (let work = this.undestroyed.at(-1); work !== undefined; work = this.undestroyed.at(-1)) {
      this.giveBack(work)
      this.undestroyed.pop()
    }
  }

  /**
   * Whether an address means the same in both: libcuda is one in a process, however often it is opened, and a simulated
   * driver is a world of its own.
   */
  sharesAddresses(other: Context): boolean {
    return this.driver === other.driver || !(this.driver.simulated || other.driver.simulated)
  }

  /** Whether both are of one device, which may be open more than once. */
  sharesDevice(other: Context): boolean {
    return this.sharesAddresses(other) && this.device === other.device
  }

  /** Whether the driver can give work of this device access to memory of `owner`'s; to its own it always has that. */
  canAccess(owner: Context): boolean {
    if (this.sharesDevice(owner)) return true
    return this.sharesAddresses(owner) && this.activate().cuDeviceCanAccessPeer(this.device, owner.device)
  }

  /** Refuses in the name of `call` where `canAccess` says no, or `owner` is closed. */
  checkCanAccess(call: string, owner: Context): void {
    const [mine, other] = [`device ${this.ordinal}`, `device ${owner.ordinal}`]
    if (!this.sharesAddresses(owner)) {
      throw new PoolError(`${call}: ${mine} and ${other} belong to two drivers; open both with openDevices()`)
    }
    if (this.released || owner.released) {
      throw new PoolError(`${call}: ${this.released ? mine : other} is closed; open it again`)
    }
    if (this.canAccess(owner)) return
    throw new PoolError(
      `${call}: ${mine} cannot be given access to memory of ${other}: there is no way between them; copy with copyFrom, which needs none`,
    )
  }

  /** Lets work of this context use the ordinary allocations (cuMemAlloc) of `owner`, those to come too; once is enough. */
  enablePeerAccess(owner: Context): void {
    this.checkCanAccess('enablePeerAccess', owner)
    if (this.hasPeerAccess(owner)) return
    try {
      this.activate().cuCtxEnablePeerAccess(owner.handle)
    } catch (error) {
      // By another library, or for another Context of these devices.
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) throw error
    }
    this.owners.add(owner)
    owner.users.add(this)
  }

  /** Whether work of this context may use the ordinary allocations of `owner`. */
  hasPeerAccess(owner: Context): boolean {
    return this.sharesDevice(owner) || this.owners.has(owner)
  }

  /** The contexts whose work may use ordinary allocations of this one. */
  get peers(): readonly Context[] {
    return [...this.users]
  }

  /** Waits for all work of those. */
  finishPeers(): void {
    for (const peer of this.users) peer.finishWork()
  }

  /**
   * Waits for all work of the context, if there can still be any, so that what the work uses can be given back. Throws PoolError
   * where a capture forbids it.
   */
  finishWork(): void {
    if (this.released) return
    try {
      this.giveBack(driver => driver.cuCtxSynchronize())
    } catch (error) {
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) throw error
      const fact = `a stream of device ${this.ordinal} is being captured, in another thread or by another library`
      throw new PoolError(`close: ${fact}; end the capture first, then close again`)
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
    for (const owner of this.owners) owner.users.delete(this)
    for (const user of this.users) user.owners.delete(this)
    if (current === this) current = null
  }
}

/** The error for `what`, of `owner`'s device, that work of `user`'s device cannot reach. */
export function unreachable(what: string, user: Context, owner: Context): PoolError {
  if (!owner.sharesAddresses(user)) {
    return new PoolError(`${what} belongs to another device, of another driver; open all devices with openDevices()`)
  }
  return new PoolError(
    `${what} belongs to another device: device ${user.ordinal} has no access to this memory of device ${owner.ordinal}; ` +
      `give it with pool.setAccess(device${user.ordinal}, 'readWrite'), or copy with copyFrom`,
  )
}
