// Devices and contexts of libcuda.

import type { Bytes } from '../../../base/typed-arrays.js'
import { exact, int } from '../../../libraries/arguments.js'
import { RESULT } from '../../constants.js'
import { EarlyContext } from '../early-context.js'
import { BoundLibrary, NO_CONTEXT } from './bound-library.js'

export class DeviceCalls extends BoundLibrary {
  cuInit(): void {
    this.check('cuInit', this.functions.cuInit(0), NO_CONTEXT)
  }

  /** Begins `cuInit` in another thread. The result tells whether the driver is not initialised yet. */
  startInit(): () => boolean {
    this.library.start('cuInit', [0], () => {})
    return () => this.functions.cuDeviceGetCount(this.buffer.first) === RESULT.CUDA_ERROR_NOT_INITIALIZED
  }

  cuDriverGetVersion(): number {
    this.check('cuDriverGetVersion', this.functions.cuDriverGetVersion(this.buffer.first), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGetCount(): number {
    this.check('cuDeviceGetCount', this.functions.cuDeviceGetCount(this.buffer.first), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGet(ordinal: number): number {
    this.check('cuDeviceGet', this.functions.cuDeviceGet(this.buffer.first, int(ordinal, 'ordinal')), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGetName(device: number): string {
    const { text, textBytes } = this.buffer
    this.check('cuDeviceGetName', this.functions.cuDeviceGetName(text, textBytes, int(device, 'device')), NO_CONTEXT)
    return this.buffer.readText()
  }

  cuDeviceGetUuid(device: number): Bytes {
    const code = this.functions.cuDeviceGetUuid(this.buffer.first, int(device, 'device'))
    this.check('cuDeviceGetUuid', code, NO_CONTEXT)
    return this.buffer.uuid()
  }

  cuDeviceTotalMem(device: number): number {
    const code = this.functions.cuDeviceTotalMem(this.buffer.first, int(device, 'device'))
    this.check('cuDeviceTotalMem', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuDeviceGetAttribute(attribute: number, device: number): number {
    const { first } = this.buffer
    const code = this.functions.cuDeviceGetAttribute(first, int(attribute, 'attribute'), int(device, 'device'))
    this.check('cuDeviceGetAttribute', code, NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceCanAccessPeer(device: number, peer: number): boolean {
    const code = this.functions.cuDeviceCanAccessPeer(this.buffer.first, int(device, 'device'), int(peer, 'peer'))
    this.check('cuDeviceCanAccessPeer', code, NO_CONTEXT)
    return this.buffer.int() !== 0
  }

  cuDevicePrimaryCtxRetain(device: number): number {
    const code = this.functions.cuDevicePrimaryCtxRetain(this.buffer.first, int(device, 'device'))
    this.check('cuDevicePrimaryCtxRetain', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  /** Begins to make the primary context in another thread. */
  startPrimaryContext(device: number): EarlyContext {
    // A refusal is ignored: it comes between two turns of the program, which could not act on it.
    return new EarlyContext(this.library, int(device, 'device'), () => this.functions.cuDevicePrimaryCtxRelease(device))
  }

  cuDevicePrimaryCtxRelease(device: number): void {
    const code = this.functions.cuDevicePrimaryCtxRelease(int(device, 'device'))
    this.check('cuDevicePrimaryCtxRelease', code, NO_CONTEXT)
  }

  cuCtxSetCurrent(context: number): void {
    this.check('cuCtxSetCurrent', this.functions.cuCtxSetCurrent(exact(context, 'context')), context)
    this.context = context
  }

  cuCtxSynchronize(): void {
    this.check('cuCtxSynchronize', this.live.cuCtxSynchronize())
  }

  cuCtxEnablePeerAccess(peerContext: number): void {
    this.check('cuCtxEnablePeerAccess', this.live.cuCtxEnablePeerAccess(exact(peerContext, 'peerContext'), 0))
  }
}
