// Helpers of the tests on a real GPU. Opening the first device throws on a machine without a GPU.

import { CudaError } from '../../base/errors.js'
import { CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE } from '../constants.js'
import type { MemPoolProperties } from '../driver.js'
import { NativeDriver } from './native-driver.js'

export const MiB = 1024 * 1024

/** Properties of a pool in device memory that is not exported. */
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

/** Whether each of `bytes` bytes from `ptr` on is `value`. */
export function isFilled(driver: NativeDriver, ptr: number, bytes: number, value: number): boolean {
  const host = new Uint8Array(bytes)
  driver.cuMemcpyDtoH(host, ptr)
  return host.every(byte => byte === value)
}

/** Matches a CudaError of `call`, with result `code` if one is given. */
export function refused(call: string, code?: number): (error: Error) => boolean {
  return error => error instanceof CudaError && error.call === call && (code === undefined || error.result === code)
}
