// What the tests on a real GPU have in common: opening the first device throws where there is none.

import { CudaError } from '../../base/errors.js'
import { CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE } from '../constants.js'
import type { MemPoolProperties } from '../driver.js'
import { NativeDriver } from './native-driver.js'

export const KiB = 1024
export const MiB = 1024 * KiB

/** A pool of device memory that is not shared. */
export const PINNED: MemPoolProperties = {
  allocationType: CU_MEM_ALLOCATION_TYPE_PINNED,
  handleTypes: CU_MEM_HANDLE_TYPE_NONE,
  locationType: CU_MEM_LOCATION_TYPE_DEVICE,
  locationId: 0,
  maxBytes: 0,
}

/** A driver with the primary context of the first device current. */
export function openFirst(): NativeDriver {
  const driver = NativeDriver.open()
  driver.cuInit()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)))
  return driver
}

/** Whether `bytes` of memory are all `value`. */
export function isFilled(driver: NativeDriver, ptr: number, bytes: number, value: number): boolean {
  return contents(driver, ptr, bytes).every(byte => byte === value)
}

/** `bytes` of memory. */
export function contents(driver: NativeDriver, ptr: number, bytes: number): Uint8Array<ArrayBuffer> {
  const host = new Uint8Array(bytes)
  driver.cuMemcpyDtoH(host, ptr)
  return host
}

/** Tells a refusal of the driver, for any reason where no code is given. */
export function refused(call: string, code?: number): (error: Error) => boolean {
  return error => error instanceof CudaError && error.call === call && (code === undefined || error.code === code)
}
