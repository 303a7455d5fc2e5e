// Devices and contexts of the simulated driver.

import type { Bytes } from '../../../base/typed-arrays.js'
import { RESULT } from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import { deviceAttribute } from '../device-attributes.js'
import { Simulation } from './simulation.js'

const DRIVER_VERSION = 13_000

export class DeviceCalls extends Simulation {
  cuInit(): void {
    this.interceptor.enter(CALL.cuInit)
    this.initialised = true
  }

  cuDriverGetVersion(): number {
    this.interceptor.enter(CALL.cuDriverGetVersion)
    return DRIVER_VERSION
  }

  cuDeviceGetCount(): number {
    this.begin(CALL.cuDeviceGetCount)
    return this.devices.length
  }

  cuDeviceGet(ordinal: number): number {
    this.begin(CALL.cuDeviceGet)
    return this.device(ordinal).ordinal
  }

  cuDeviceGetName(device: number): string {
    this.begin(CALL.cuDeviceGetName)
    this.device(device)
    return 'simulated GPU'
  }

  /** The text "simulated", and in the last bytes the seed and the ordinal. */
  cuDeviceGetUuid(device: number): Bytes {
    this.begin(CALL.cuDeviceGetUuid)
    const uuid = new Uint8Array(16)
    uuid.set(new TextEncoder().encode('simulated'))
    const last = new DataView(uuid.buffer)
    last.setInt32(10, this.options.seed | 0)
    last.setUint16(14, this.device(device).ordinal)
    return uuid
  }

  cuDeviceTotalMem(device: number): number {
    this.begin(CALL.cuDeviceTotalMem)
    return this.device(device).capacityBytes
  }

  cuDeviceGetAttribute(attribute: number, device: number): number {
    this.begin(CALL.cuDeviceGetAttribute)
    this.device(device)
    const value = deviceAttribute(attribute, this.options)
    if (value === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no attribute ${attribute}`)
    return value
  }

  cuDeviceCanAccessPeer(device: number, peer: number): boolean {
    this.begin(CALL.cuDeviceCanAccessPeer)
    return this.peers.canAccess(this.device(device), this.device(peer))
  }

  cuDevicePrimaryCtxRetain(device: number): number {
    this.begin(CALL.cuDevicePrimaryCtxRetain)
    return this.contexts.retain(this.device(device)).handle
  }

  /**
   * The last release ends the context: its work completes, its streams, events, modules and linear memory are gone.
   */
  cuDevicePrimaryCtxRelease(device: number): void {
    this.begin(CALL.cuDevicePrimaryCtxRelease)
    const context = this.contexts.primaryOf(this.device(device))
    if (context === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'never retained')
    if (--context.retained > 0) return
    this.finishAll(context)
    this.linear.releaseOf(context)
    this.modules.removeOf(context)
    this.captures.removeOf(context)
    this.streams.removeOf(context)
    this.contexts.remove(context)
  }

  cuCtxSetCurrent(context: number): void {
    this.begin(CALL.cuCtxSetCurrent)
    this.interceptor.thread.current = context === 0 ? null : this.context(context)
  }

  cuCtxSynchronize(): void {
    const context = this.enter(CALL.cuCtxSynchronize)
    this.captures.checkIdle(context)
    context.observeAll()
    this.finishAll(context)
    context.synchronizedAt = ++this.moments
    this.synchronized(context)
  }

  cuCtxEnablePeerAccess(peerContext: number): void {
    const context = this.enter(CALL.cuCtxEnablePeerAccess)
    this.peers.enable(context, this.context(peerContext))
  }
}
