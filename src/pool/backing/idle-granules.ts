// Finds the granules without blocks or pending work, which can be unmapped.

import { type Admission, type FreeRun, isAdmitted } from '../../heap/free-run.js'
import { State } from '../../heap/records.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { classOf } from '../../heap/size-classes.js'
import { type GranuleLastUses, SEVERAL } from './granule-last-uses.js'

/** The addresses of one heap, and the memory mapped into each granule of them. */
export interface Reservation {
  readonly heap: SegregatedFit
  readonly base: number
  /** 0 once given back */
  bytes: number
  /** the driver's handle of the memory mapped into each granule, 0 for none */
  readonly handles: Float64Array
  /**
   * 1 if the heap has the granule's memory; a granule that is mapped but not committed is the rest of a failed growth
   */
  readonly committed: Uint8Array
  readonly uses: GranuleLastUses
}

export class IdleGranules {
  constructor(private readonly granuleUnits: number) {}

  /**
   * Finds up to `most` neighbouring whole granules of free blocks whose last use is known complete; smaller blocks
   * first.
   */
  find(reservation: Reservation, most: number, avoid: FreeRun | null) {
    const { heap } = reservation
    for (let key = 0; key < heap.keyLimit; key++) {
      let sizeClass = heap.nextClass(key, classOf(this.granuleUnits))
      for (; sizeClass !== -1; sizeClass = heap.nextClass(key, sizeClass + 1)) {
        for (let record = heap.head(key, sizeClass); record !== 0; record = heap.records.binNextOf(record)) {
          const idle = this.granulesOf(reservation, record, key, most, avoid)
          if (idle !== null) return idle
        }
      }
    }
    return null
  }

  private granulesOf(reservation: Reservation, record: number, key: number, most: number, avoid: FreeRun | null) {
    const { records } = reservation.heap
    const start = records.offsetOf(record)
    const end = Math.floor((start + records.unitsOf(record)) / this.granuleUnits)
    const from = avoid === null ? 0 : Math.floor(avoid.start / this.granuleUnits)
    const to = avoid === null ? 0 : Math.ceil((avoid.start + avoid.units) / this.granuleUnits)
    let count = 0
    for (let granule = Math.ceil(start / this.granuleUnits); granule < end; granule++) {
      const settled = key === 0 || reservation.uses.isSettled(granule)
      if (settled && (granule < from || granule >= to)) count++
      else if (count > 0) return { record, granule: granule - count, count }
      if (count === most) return { record, granule: granule - count + 1, count }
    }
    return count === 0 ? null : { record, granule: end - count, count }
  }

  /** Counts whole granules of free blocks outside of `run` whose last use is within `settled`. */
  countAfter(reservations: readonly Reservation[], run: FreeRun, settled: Admission): number {
    let idle = 0
    const from = Math.floor(run.start / this.granuleUnits)
    const to = Math.ceil((run.start + run.units) / this.granuleUnits)
    reservations.forEach(({ heap, uses }, range) => {
      for (let record = heap.firstRecords.get(range); record !== 0; record = heap.records.nextOf(record)) {
        if (heap.records.state(record) !== State.free) continue
        const start = heap.records.offsetOf(record)
        const end = Math.floor((start + heap.records.unitsOf(record)) / this.granuleUnits)
        for (let granule = Math.ceil(start / this.granuleUnits); granule < end; granule++) {
          if (range === run.range && granule >= from && granule < to) continue
          const key = uses.keys[granule]
          const isIdle =
            key === SEVERAL
              ? isAdmitted(heap.records, record, settled)
              : key === 0 || uses.stamps[granule] <= settled[key]
          if (isIdle) idle++
        }
      }
    })
    return idle
  }
}
