// The access of devices to the memory of a pool or arena. Mapped memory gives it device by device (mapped-access.ts).
// Plain and managed memory, which are here, cannot choose.

import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { changePlainAccess, type PoolAccess } from '../access.js'

export interface MemoryAccess {
  /**
   * Changes another device's access to all memory, now and later. Throws PoolError if it cannot be changed, or the
   * driver's error, and then does not rely on the access.
   */
  change(peer: Context, access: PoolAccess): void
  /** Whether work of `context` can use the memory. */
  reaches(context: Context): boolean
  /** contexts of other devices whose work may be using the memory */
  readonly peers: readonly Context[]
}

/** Access to plain allocations, which the driver opens to a device all or none. */
export class PlainAccess implements MemoryAccess {
  constructor(private readonly owner: Context) {}

  change(peer: Context, access: PoolAccess): void {
    changePlainAccess(this.owner, peer, access)
  }

  reaches(context: Context): boolean {
    return context.hasPeerAccess(this.owner)
  }

  get peers(): readonly Context[] {
    return this.owner.peers
  }
}

/** Access to managed memory, which is open to every device. */
export class ManagedAccess implements MemoryAccess {
  private readonly users = new Set<Context>()

  constructor(private readonly owner: Context) {}

  change(_peer: Context, access: PoolAccess): void {
    if (access === 'readWrite') return
    throw new PoolError("setAccess: managed memory is open to every device; use a pool with backing 'virtual'")
  }

  reaches(context: Context): boolean {
    if (!context.sharesAddresses(this.owner)) return false
    this.users.add(context)
    return true
  }

  get peers(): readonly Context[] {
    return [...this.users]
  }
}
