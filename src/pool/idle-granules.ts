// Which granules hold no block and are no longer used by any work, so that they can be unmapped. Each remembers its last use by
// itself, since blocks that merge would make all their granules look as young as the youngest.

import { State, Stride, Word } from '../heap/records.js'
import type { SegregatedFit } from '../heap/segregated-fit.js'
import { classOf } from '../heap/size-classes.js'
import { type Admission, isAdmitted, type Window } from '../heap/window.js'

/** One heap's addresses, and what is behind each granule of them. */
export interface Reservation {
  readonly heap: SegregatedFit
  readonly base: number
  /** 0 once given back */
  bytes: number
  /** the driver's handle of the memory mapped into a granule, 0 for none */
  readonly handles: Float64Array
  /** 1 where the heap knows that there is memory; a granule that is mapped but not committed is left from a failed growth */
  readonly committed: Uint8Array
  /** the last use of a granule's memory, as the key and stamp of a free; SEVERAL when streams disagree */
  readonly useKeys: Uint8Array
  readonly useStamps: Float64Array
}

/** As a key: blocks of several streams lay on the granule, so only the heap's own dependencies tell when it is idle. */
const SEVERAL = 255

export class IdleGranules {
  constructor(
    private readonly granuleUnits: number,
    /** by stream slot: the latest stamp that the host has seen complete */
    private readonly seen: Float64Array,
  ) {}

  /** A block is about to go back to its heap, to be used again after `stamp` of `key`. */
  noteFree({ heap, useKeys, useStamps }: Reservation, record: number, key: number, stamp: number): void {
    const { words } = heap.records
    const start = words[record * Stride.words + Word.offset]
    const end = start + words[record * Stride.words + Word.units]
    const last = Math.ceil(end / this.granuleUnits)
    for (let granule = Math.floor(start / this.granuleUnits); granule < last; granule++) {
      const covered = granule * this.granuleUnits >= start && (granule + 1) * this.granuleUnits <= end
      if (covered || useKeys[granule] === key || this.isSettled(useKeys[granule], useStamps[granule])) {
        useStamps[granule] = useKeys[granule] === key ? Math.max(stamp, useStamps[granule]) : stamp
        useKeys[granule] = key
      } else useKeys[granule] = SEVERAL
    }
  }

  /** Up to `most` neighbouring whole granules of free blocks whose last use is known complete; smaller blocks first. */
  find(reservation: Reservation, most: number, avoid: Window | null) {
    const { heap } = reservation
    const { words } = heap.records
    for (let key = 0; key < heap.keyLimit; key++) {
      let sizeClass = heap.nextClass(key, classOf(this.granuleUnits))
      for (; sizeClass !== -1; sizeClass = heap.nextClass(key, sizeClass + 1)) {
        for (
          let record = heap.head(key, sizeClass);
          record !== 0;
          record = words[record * Stride.words + Word.binNext]
        ) {
          const idle = this.granulesOf(reservation, record, key, most, avoid)
          if (idle !== null) return idle
        }
      }
    }
    return null
  }

  private granulesOf(reservation: Reservation, record: number, key: number, most: number, avoid: Window | null) {
    const { words } = reservation.heap.records
    const start = words[record * Stride.words + Word.offset]
    const end = Math.floor((start + words[record * Stride.words + Word.units]) / this.granuleUnits)
    const from = avoid === null ? 0 : Math.floor(avoid.start / this.granuleUnits)
    const to = avoid === null ? 0 : Math.ceil((avoid.start + avoid.units) / this.granuleUnits)
    let count = 0
    for (let granule = Math.ceil(start / this.granuleUnits); granule < end; granule++) {
      const settled = key === 0 || this.isSettled(reservation.useKeys[granule], reservation.useStamps[granule])
      if (settled && (granule < from || granule >= to)) count++
      else if (count > 0) return { record, granule: granule - count, count }
      if (count === most) return { record, granule: granule - count + 1, count }
    }
    return count === 0 ? null : { record, granule: end - count, count }
  }

  /** Whole granules of free blocks outside the window whose last use is among what is settled. */
  countAfter(reservations: readonly Reservation[], window: Window, settled: Admission): number {
    let idle = 0
    const from = Math.floor(window.start / this.granuleUnits)
    const to = Math.ceil((window.start + window.units) / this.granuleUnits)
    reservations.forEach(({ heap, useKeys, useStamps }, range) => {
      const { words } = heap.records
      for (let record = heap.firstRecords.get(range); record !== 0; record = words[record * Stride.words + Word.next]) {
        if (heap.records.state(record) !== State.free) continue
        const start = words[record * Stride.words + Word.offset]
        const end = Math.floor((start + words[record * Stride.words + Word.units]) / this.granuleUnits)
        for (let granule = Math.ceil(start / this.granuleUnits); granule < end; granule++) {
          if (range === window.range && granule >= from && granule < to) continue
          const key = useKeys[granule]
          const isIdle =
            key === SEVERAL
              ? isAdmitted(heap.records, record, settled)
              : key === 0 || useStamps[granule] <= settled[key]
          if (isIdle) idle++
        }
      }
    })
    return idle
  }

  private isSettled(key: number, stamp: number): boolean {
    return key === 0 || (key !== SEVERAL && this.seen[key - 1] >= stamp)
  }
}
