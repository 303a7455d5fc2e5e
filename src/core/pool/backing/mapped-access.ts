// The devices that may use mapped memory. A new mapping has no access, so each growth must give it to all devices here.

import { isDriverError } from '../../base/thrown.js'
import { CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { PoolAccess } from '../access.js'
import type { MemoryAccess } from './memory-access.js'

export class MappedAccess implements MemoryAccess {
  /** the driver's numbers of the devices with access, the owner's first */
  devices: readonly number[]
  private readonly granted = new Set<Context>()

  /** other devices with access from the start, whose contexts come here when they first use the memory */
  private open: readonly number[]

  constructor(
    private readonly owner: Context,
    /** sets one device's access to all memory that is mapped */
    private readonly apply: (device: number, flags: number) => void,
    open: readonly number[] = [],
  ) {
    this.open = open
    this.devices = [owner.device, ...open]
  }

  /** Changes the access of another device. When the driver refuses new access, all stays as it was. */
  change(peer: Context, access: PoolAccess): void {
    if (access === 'none') {
      // The context is dropped also if the driver refuses and the memory stays open; a repetition may close it.
      for (const context of this.granted) if (context.sharesDevice(peer)) this.granted.delete(context)
      this.open = this.open.filter(device => device !== peer.device)
      this.devices = this.devices.filter(device => device !== peer.device)
      this.apply(peer.device, CU_MEM_ACCESS_FLAGS_PROT_NONE)
      return
    }
    if (!this.devices.includes(peer.device)) {
      try {
        this.apply(peer.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      } catch (error) {
        this.closeAgain(peer)
        throw error
      }
      this.devices = [...this.devices, peer.device]
    }
    this.granted.add(peer)
  }

  /** Whether work of `context` can use the memory. */
  reaches(context: Context): boolean {
    if (context.sharesDevice(this.owner) || this.granted.has(context)) return true
    if (!this.open.includes(context.device) || !context.sharesAddresses(this.owner)) return false
    this.granted.add(context)
    return true
  }

  /** contexts of other devices whose work may be using the memory */
  get peers(): readonly Context[] {
    return [...this.granted]
  }

  /** Undoes a change that failed midway, unless the driver refuses this, too. */
  private closeAgain(peer: Context): void {
    try {
      this.apply(peer.device, CU_MEM_ACCESS_FLAGS_PROT_NONE)
    } catch (error) {
      if (!isDriverError(error)) throw error
    }
  }
}
