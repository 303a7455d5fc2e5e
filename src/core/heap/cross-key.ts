// Searches free blocks of several keys, for a stream that may use blocks of other streams as well. A block, and a
// rest that is cut off, keeps its own dependency, so neighbours of different keys never merge. But one block can be
// taken out of a run of them.

import { type Admission, type FreeRun, isAdmitted } from './free-run.js'
import { Double, State, Word } from './records.js'
import type { SegregatedFit } from './segregated-fit.js'
import { CLASSES, classOf } from './size-classes.js'

/** Blocks of a key that a search looks at. Old blocks, which are usually the admitted ones, lie last. */
const MOST_SCANNED = 512

/**
 * The smallest admitted free block with room for `units` at a multiple of `alignUnits`, and the oldest of equal ones
 * of a key; 0 for none. `heap.carve` takes it, from `startIn` on.
 */
export function findAdmitted(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): number {
  let best = 0
  const keys = Math.min(heap.keyLimit, admission.length)
  for (let key = 0; key < keys; key++) {
    if (heap.unitsByKey[key] < units || admission[key] === 0) continue
    best = betterOf(heap, key, units, alignUnits, admission[key], best)
  }
  return best
}

/**
 * The best block of one key with a stamp up to `latest`: the smallest, and the oldest of equal ones. `best` if that is
 * no better. Classes are looked at from the least on, so the first one with a fitting block is the last one.
 */
function betterOf(
  heap: SegregatedFit,
  key: number,
  units: number,
  alignUnits: number,
  latest: number,
  best: number,
): number {
  const { words, doubles } = heap.records
  let bestUnits = best === 0 ? Infinity : words[(best << 4) | Word.units]
  let bestStamp = best === 0 ? Infinity : doubles[(best << 3) | Double.stamp]
  let mostClass = best === 0 ? CLASSES : classOf(bestUnits)
  let left = MOST_SCANNED
  let sizeClass = heap.nextClass(key, classOf(units))
  for (; sizeClass !== -1 && sizeClass <= mostClass; sizeClass = heap.nextClass(key, sizeClass + 1)) {
    for (let record = heap.head(key, sizeClass); record !== 0; record = words[(record << 4) | Word.binNext]) {
      if (left-- === 0) return best
      const size = words[(record << 4) | Word.units]
      const stamp = doubles[(record << 3) | Double.stamp]
      if (stamp > latest || size > bestUnits || (size === bestUnits && stamp >= bestStamp)) continue
      if (startIn(heap, record, alignUnits) - words[(record << 4) | Word.offset] + units > size) continue
      best = record
      bestUnits = size
      bestStamp = stamp
      mostClass = sizeClass
    }
  }
  return best
}

/**
 * Takes a block of `key`, or an admitted one. Returns a record outside all bins, and the caller sets its state; 0 if no
 * free block fits.
 */
export function takeAdmitted(
  heap: SegregatedFit,
  units: number,
  alignUnits: number,
  key: number,
  admission: Admission,
): number {
  const record = heap.allocate(units, alignUnits, key)
  if (record !== 0) return record
  const block = findAdmitted(heap, units, alignUnits, admission)
  return block === 0 ? 0 : heap.carve(block, startIn(heap, block, alignUnits), units)
}

/** The first unit in a block that is a multiple of `alignUnits`. */
export function startIn(heap: SegregatedFit, record: number, alignUnits: number): number {
  const offset = heap.records.words[(record << 4) | Word.offset]
  return alignUnits === 1 ? offset : Math.ceil(offset / alignUnits) * alignUnits // avoids the cost of a division
}

/**
 * A place for `units` in the shortest run of neighbouring admitted free blocks that has room, or null. `heap.takeRun`
 * takes it. Walks every block.
 */
export function findAdmittedRun(
  heap: SegregatedFit,
  units: number,
  alignUnits: number,
  admission: Admission,
): FreeRun | null {
  const { records } = heap
  let admittedUnits = 0
  for (let key = 0; key < heap.keyLimit; key++)
    if (key === 0 || admission[key] > 0) admittedUnits += heap.unitsByKey[key]
  if (admittedUnits < units) return null
  let best: FreeRun | null = null
  let bestUnits = Infinity
  for (let range = 0; range < heap.firstRecords.limit; range++) {
    for (let record = heap.firstRecords.get(range); record !== 0; ) {
      const first = record
      let runUnits = 0
      while (record !== 0 && isAdmitted(records, record, admission)) {
        runUnits += records.unitsOf(record)
        record = records.nextOf(record)
      }
      const offset = records.offsetOf(first)
      const start = startIn(heap, first, alignUnits)
      if (start - offset + units <= runUnits && runUnits < bestUnits) {
        best = { record: blockAt(heap, first, start), range, start, units, absentUnits: 0 }
        bestUnits = runUnits
      }
      if (record !== 0) record = records.nextOf(record)
    }
  }
  return best
}

/** The free blocks that a run lies on, in address order. */
export function blocksOf(heap: SegregatedFit, { record, start, units }: FreeRun): number[] {
  const { records } = heap
  const blocks: number[] = []
  let block = record
  while (block !== 0 && records.offsetOf(block) < start + units) {
    if (records.state(block) === State.free) blocks.push(block)
    block = records.nextOf(block)
  }
  return blocks
}

/** The block at or after `record` that holds unit `start`. */
function blockAt(heap: SegregatedFit, record: number, start: number): number {
  const { records } = heap
  while (records.offsetOf(record) + records.unitsOf(record) <= start) {
    record = records.nextOf(record)
  }
  return record
}
