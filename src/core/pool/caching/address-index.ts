// Finds the live block that begins at an address, by a page table over the units of each range. Small blocks have an
// entry for each unit, in pages that are made on demand. Large blocks have an entry for each mebibyte, their least
// size. A free clears no entry: a lookup compares the entry with its record.

import type { RecordTable } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { SMALL_UNITS } from '../backing/backing.js'

const PAGE_SHIFT = 13
const PAGE_UNITS = 1 << PAGE_SHIFT
const LARGE_SHIFT = Math.log2(SMALL_UNITS)

/** The addresses of a pool's memory. */
interface Addresses {
  /** the address of unit 0, by range */
  readonly bases: ArrayLike<number>
  /** the ranges that may contain an address */
  rangesAt(ptr: number): readonly number[]
}

export class AddressIndex {
  private readonly small: (Int32Array | undefined)[][] = []
  private readonly large: number[][] = []

  constructor(
    private readonly records: RecordTable,
    /** tells which records describe a live block */
    private readonly blocks: { isLive(record: number): boolean },
  ) {}

  /** The index of all live and cached blocks: a cached one may become live. */
  static of(records: RecordTable, blocks: { isLive(record: number): boolean }): AddressIndex {
    const index = new AddressIndex(records, blocks)
    for (const record of records.taken()) index.note(record)
    return index
  }

  /** Enters a block at the address that its record gives. */
  note(record: number): void {
    const { records } = this
    const unit = records.offsetOf(record)
    const range = records.rangeOf(record)
    if (records.unitsOf(record) >= SMALL_UNITS) {
      this.large[range] ??= []
      this.large[range][unit >>> LARGE_SHIFT] = record
      return
    }
    this.small[range] ??= []
    const pages = this.small[range]
    const page = unit >>> PAGE_SHIFT
    pages[page] ??= new Int32Array(PAGE_UNITS)
    pages[page][unit & (PAGE_UNITS - 1)] = record
  }

  /** The live block that begins at an address; 0 for none, and for a value that is no address. */
  findAt(ptr: number, addresses: Addresses): number {
    for (const range of Number.isSafeInteger(ptr) ? addresses.rangesAt(ptr) : []) {
      const record = this.find(range, (ptr - addresses.bases[range]) / UNIT_BYTES)
      if (record !== 0) return record
    }
    return 0
  }

  /** The live block that begins at `unit` of a range, or 0. */
  find(range: number, unit: number): number {
    const small = this.small[range]?.[unit >>> PAGE_SHIFT]?.[unit & (PAGE_UNITS - 1)] ?? 0
    if (this.begins(small, range, unit)) return small
    const large = this.large[range]?.[unit >>> LARGE_SHIFT] ?? 0
    return this.begins(large, range, unit) ? large : 0
  }

  private begins(record: number, range: number, unit: number): boolean {
    if (record === 0 || !this.blocks.isLive(record)) return false
    return this.records.offsetOf(record) === unit && this.records.rangeOf(record) === range
  }
}
