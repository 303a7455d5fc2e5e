// Addresses for views. To reserve addresses for each view takes longer than to map a piece, so they come from few large
// reservations. Addresses of views that were unmapped serve views of the same size.

import type { Context } from '../../../driver/context.js'
import { MOST_ALIGNMENT_BYTES } from '../backing.js'

interface Reservation {
  readonly base: number
  readonly bytes: number
}

export class ViewAddresses {
  private readonly reservations: Reservation[] = []
  /** free addresses by size */
  private readonly free = new Map<number, number[]>()
  private readonly alignment: number
  /** the addresses of the last reservation that no view had yet */
  private next = 0
  private end = 0

  constructor(
    private readonly context: Context,
    /** bytes of a reservation */
    private readonly rangeBytes: number,
    granuleBytes: number,
  ) {
    this.alignment = Math.max(granuleBytes, MOST_ALIGNMENT_BYTES)
  }

  /** The address of `bytes`. Throws the driver's error if it reserves no more. */
  take(bytes: number): number {
    const known = this.free.get(bytes)?.pop()
    if (known !== undefined) return known
    if (this.end - this.next < bytes) this.reserve(Math.max(bytes, this.rangeBytes))
    const address = this.next
    this.next += Math.ceil(bytes / this.alignment) * this.alignment
    return address
  }

  /** Takes addresses back in which nothing is mapped. */
  giveBack(address: number, bytes: number): void {
    const known = this.free.get(bytes)
    if (known === undefined) this.free.set(bytes, [address])
    else known.push(address)
  }

  /** Frees all addresses; no view may be mapped. */
  close(): void {
    const driver = this.context.activate()
    for (let last = this.reservations.at(-1); last !== undefined; last = this.reservations.at(-1)) {
      driver.cuMemAddressFree(last.base, last.bytes)
      this.reservations.length--
    }
  }

  private reserve(bytes: number): void {
    const base = this.context.activate().cuMemAddressReserve(bytes, this.alignment)
    this.reservations[this.reservations.length] = { base, bytes }
    this.next = base
    this.end = base + bytes
  }
}
