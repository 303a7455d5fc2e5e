// The primary context of an open device, and which context is current in this thread. Pools, streams and kernels call
// the driver through it; core/device/open.ts opens it.

import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { DEVICE_ATTRIBUTE, RESULT } from './constants.js'
import type { Driver } from './driver.js'

/** The latest context made current here: a needless cuCtxSetCurrent can cost more than the next call. */
let current: Context | null = null

/** The primary context of one device. The streams, memory and modules of the device belong to it. */
export class Context {
  /** @internal */
  readonly handle: number
  /**
   * true once released: nothing of the context can be used any more
   * @internal
   */
  released = false
  /**
   * throws PoolError, in the name of a call, while a stream of the device is captured; the device's clocks set it
   * @internal
   */
  checkNoCapture: (call: string) => void = () => {}
  /**
   * bytes that the platform lets this process have, which the device sets; a pool's default limit is not above them
   * @internal
   */
  memoryLimit = Infinity
  /** contexts that gave this context access to their linear memory */
  private readonly owners = new Set<Context>()
  /** contexts with access to the linear memory of this context */
  private readonly users = new Set<Context>()
  /** destroying calls that the driver has refused */
  private readonly undestroyed: ((driver: Driver) => void)[] = []

  private constructor(
    /** @internal */
    readonly driver: Driver,
    /**
     * the driver's number of the device
     * @internal
     */
    readonly device: number,
    /** @internal */
    readonly ordinal: number,
  ) {
    this.handle = driver.cuDevicePrimaryCtxRetain(device)
  }

  /**
   * Retains the primary context of device `ordinal` and makes it current in this thread.
   * @internal
   */
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

  /**
   * Makes this context current in this thread, as every driver call needs it. Costs nothing if it already is.
   * @internal
   */
  activate(): Driver {
    if (current !== this) {
      if (this.released) throw new PoolError('the device is closed; open it again', 'ERR_DEVICE_CLOSED')
      this.driver.cuCtxSetCurrent(this.handle)
      current = this
    }
    return this.driver
  }

  /**
   * Bytes of the device's memory, which a share such as '80%' is of.
   * @internal
   */
  get totalBytes(): number {
    return this.activate().cuDeviceTotalMem(this.device)
  }

  /**
   * What the driver says of the device.
   * @internal
   */
  attribute(name: keyof typeof DEVICE_ATTRIBUTE): number {
    return this.activate().cuDeviceGetAttribute(DEVICE_ATTRIBUTE[name], this.device)
  }

  /**
   * Runs `work`, which returns an object to the driver. Does nothing on a lost device, which has no objects left.
   * @internal
   */
  giveBack(work: (driver: Driver) => void): void {
    try {
      work(this.activate())
    } catch (error) {
      if (!(error instanceof DeviceLostError)) throw error
    }
  }

  /**
   * As `giveBack`, for an object without further references: after a refusal, `destroyRest` tries again.
   * @internal
   */
  destroy(work: (driver: Driver) => void): void {
    try {
      this.giveBack(work)
    } catch (error) {
      this.undestroyed.push(work)
      throw error
    }
  }

  /**
   * As `destroy`, without an error for a refusal: the caller already has a result or a more useful error.
   * @internal
   */
  discard(work: (driver: Driver) => void): void {
    try {
      this.destroy(work)
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
    }
  }

  /**
   * Destroys the objects that the driver has refused to destroy.
   * @internal
   */
  destroyRest(): void {
    // Taken out first: the close of a stream destroys the rest, too.
    for (let work = this.undestroyed.pop(); work !== undefined; work = this.undestroyed.pop()) this.destroy(work)
  }

  /**
   * Whether an address means the same memory in both contexts. All native drivers of a process share one libcuda.
   * Each simulated driver has addresses of its own.
   * @internal
   */
  sharesAddresses(other: Context): boolean {
    return this.driver === other.driver || !(this.driver.simulated || other.driver.simulated)
  }

  /**
   * Whether both contexts belong to the same device, which may be open more than once.
   * @internal
   */
  sharesDevice(other: Context): boolean {
    return this.sharesAddresses(other) && this.device === other.device
  }

  /**
   * Whether the driver can give work of this device access to memory of `owner`; always true for its own memory.
   * @internal
   */
  canAccess(owner: Context): boolean {
    if (this.sharesDevice(owner)) return true
    return this.sharesAddresses(owner) && this.activate().cuDeviceCanAccessPeer(this.device, owner.device)
  }

  /**
   * Throws PoolError in the name of `call` if `canAccess` is false, or if either device is closed.
   * @internal
   */
  checkCanAccess(call: string, owner: Context): void {
    const [mine, other] = [`device ${this.ordinal}`, `device ${owner.ordinal}`]
    if (!this.sharesAddresses(owner)) {
      throw new PoolError(
        `${call}: ${mine} and ${other} belong to two drivers; open both with openDevices()`,
        'ERR_OTHER_DEVICE',
      )
    }
    if (this.released || owner.released) {
      throw new PoolError(`${call}: ${this.released ? mine : other} is closed; open it again`, 'ERR_DEVICE_CLOSED')
    }
    if (this.canAccess(owner)) return
    throw new PoolError(
      `${call}: ${mine} cannot be given access to memory of ${other}: there is no way between them; copy with copyFrom, which needs none`,
      'ERR_OTHER_DEVICE',
    )
  }

  /**
   * Gives work of this context access to linear memory (cuMemAlloc) of `owner`, present and future.
   * @internal
   */
  enablePeerAccess(owner: Context): void {
    this.checkCanAccess('enablePeerAccess', owner)
    if (this.hasPeerAccess(owner)) return
    try {
      this.activate().cuCtxEnablePeerAccess(owner.handle)
    } catch (error) {
      // Another library, or another Context of these devices, has enabled it.
      if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) throw error
    }
    this.owners.add(owner)
    owner.users.add(this)
  }

  /**
   * Whether work of this context may use linear memory of `owner`.
   * @internal
   */
  hasPeerAccess(owner: Context): boolean {
    return this.sharesDevice(owner) || this.owners.has(owner)
  }

  /**
   * The contexts with access to linear memory of this context.
   * @internal
   */
  get peers(): readonly Context[] {
    return [...this.users]
  }

  /**
   * Waits for all work of the peers.
   * @internal
   */
  finishPeers(): void {
    for (const peer of this.users) peer.finishWork()
  }

  /**
   * Waits for all work of the context, so that memory in use by the work can be freed. Does nothing on a released or
   * lost context. Throws PoolError, in the name of `call`, if an open capture forbids the wait.
   * @internal
   */
  finishWork(call = 'close'): void {
    if (this.released) return
    this.checkNoCapture(call) // a wait that the driver refuses breaks the capture
    try {
      this.giveBack(driver => driver.cuCtxSynchronize())
    } catch (error) {
      if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) throw error
      const fact = `a stream of device ${this.ordinal} is being captured, in another thread or by another library`
      throw new PoolError(`${call}: ${fact}; end the capture first, then ${call} again`, 'ERR_STREAM_CAPTURED')
    }
  }

  /**
   * Releases the context. Objects that were not freed live on until the last retainer releases it, or until the
   * process ends. A second release does nothing.
   * @internal
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

/** The error for memory `what` of `owner`'s device if work of `user`'s device has no access to it. */
export function unreachable(what: string, user: Context, owner: Context): PoolError {
  if (!owner.sharesAddresses(user)) {
    return new PoolError(
      `${what} belongs to another device, of another driver; open all devices with openDevices()`,
      'ERR_OTHER_DEVICE',
    )
  }
  return new PoolError(
    `${what} belongs to another device: device ${user.ordinal} has no access to this memory of device ${owner.ordinal}; ` +
      `give it with pool.setAccess(device${user.ordinal}, 'readWrite') unless threads share the pool, or copy with copyFrom`,
    'ERR_OTHER_DEVICE',
  )
}
