import { assert } from '../../../base/assert.js'
import { blockOfPart, partsOf } from '../../../heap/lent-parts.js'
import { State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { FIRST_VIEW_RANGE, HOME_RANGE } from '../backing.js'
import type { HomeRange } from './home-range.js'
import type { ViewUses } from './last-uses.js'
import type { View, Views } from './views.js'

/** Asserts that pieces, views and the heap agree. */
export function checkPieces(home: HomeRange, views: Views, heap: SegregatedFit, uses: ViewUses): void {
  checkHomes(home, heap)
  const pieces = new Set(home.pieces)
  const byNumber = new Map<number, View>()
  for (const view of views) {
    byNumber.set(view.number, view)
    assert(new Set(view.pieces).size === view.pieces.length, 'no piece is twice in a view')
    assert(
      view.pieces.every(piece => pieces.has(piece)),
      'a view joins pieces that exist',
    )
  }
  const { records } = heap
  const blocks = new Set<number>()
  for (let record = heap.firstRecords.get(HOME_RANGE); record !== 0; record = records.nextOf(record)) {
    if (records.state(record) !== State.lent) continue
    const block = blockOfPart(records, record)
    if (block !== 0) assert(partsOf(records, block).includes(record), 'a part is a part of its block')
    if (block !== 0) blocks.add(block)
  }
  const counts = new Int32Array(uses.blocks.length)
  for (const block of blocks) {
    const view = byNumber.get(records.rangeOf(block) - FIRST_VIEW_RANGE)
    assert(view !== undefined, 'a block lies in a view that is mapped')
    counts[view.number]++
    checkTiling(heap, block, view)
  }
  assert(
    counts.every((count, view) => uses.blocks[view] === count),
    'a view counts its blocks',
  )
}

/** Each unit of the home range outside holes lies in exactly one piece. */
function checkHomes(home: HomeRange, heap: SegregatedFit): void {
  const { records } = heap
  let end = 0
  let covered = 0
  for (const piece of home.pieces) {
    assert(piece.start >= end, 'pieces do not overlap')
    end = piece.start + piece.units
    covered += piece.units
  }
  assert(covered === heap.totalUnits - heap.absentUnits, 'pieces cover what is no hole')
  let index = 0
  for (let record = heap.firstRecords.get(HOME_RANGE); record !== 0; record = records.nextOf(record)) {
    if (records.state(record) !== State.absent) continue
    const start = records.offsetOf(record)
    while (index < home.pieces.length && home.pieces[index].start + home.pieces[index].units <= start) index++
    const next = home.pieces[index]
    assert(next === undefined || next.start >= start + records.unitsOf(record), 'no piece lies in a hole')
  }
}

/** The parts of a block are the memory behind its addresses. */
function checkTiling(heap: SegregatedFit, block: number, view: View): void {
  const { records } = heap
  const start = records.offsetOf(block)
  const end = start + records.unitsOf(block)
  let reached = start
  for (const part of partsOf(records, block)) {
    let offset = 0
    for (const piece of view.pieces) {
      if (reached < offset + piece.units) {
        assert(records.offsetOf(part) === piece.start + reached - offset, 'a part lies behind its address')
        break
      }
      offset += piece.units
    }
    reached += records.unitsOf(part)
  }
  assert(reached === end, 'parts tile their block')
}
