// Access rights: the devices that may read and write a piece of memory. Address ranges and mappings carry these
// rights; peer-access.ts, virtual-memory.ts and pools/ grant them.

import type { SimulatedDevice } from '../device.js'

/** The devices that may read and write a piece of memory. One object serves all memory with the same rights. */
export interface AccessRights {
  /** bit d is set if device d has access */
  devices: number
  /** bit d is set if the access of device d is for reading only; only mappings have such access */
  readOnly?: number
}

/** The rights of managed memory, and of registered host memory. */
export const EVERY_DEVICE: Readonly<AccessRights> = { devices: 0xffff }

/** The rights of a range that is free. */
export const NO_DEVICE: Readonly<AccessRights> = { devices: 0 }

/** The bit of `device` in `AccessRights.devices`. */
export function bitOf(device: SimulatedDevice): number {
  return 1 << device.ordinal
}
