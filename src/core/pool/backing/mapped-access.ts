// The devices that may use memory that is mapped piece by piece. A new mapping has no access, so each growth must give
// it to all devices here.

import { isDriverError } from '../../base/thrown.js'
import { CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { PoolAccess } from '../access.js'

export class MappedAccess {
  /** the driver's numbers of the devices with access, the owner's first */
  devices: readonly number[]
  private readonly granted = new Set<Context>()

  constructor(
    private readonly owner: Context,
    /** sets one device's access to all memory that is mapped */
    private readonly apply: (device: number, flags: number) => void,
  ) {
    this.devices = [owner.device]
  }

  /** Changes the access of another device. When the driver refuses new access, all stays as it was. */
  change(peer: Context, access: PoolAccess): void {
    if (access === 'none') {
      // The context is dropped also if the driver refuses and the memory stays open; a repetition may close it.
      for (const context of this.granted) if (context.sharesDevice(peer)) this.granted.delete(context)
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
    return context.sharesDevice(this.owner) || this.granted.has(context)
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
