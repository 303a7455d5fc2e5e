// How much of its segment each block takes.

import { firstIndex } from '../../../core/base/binary-search.js'
import { IndexSet } from '../placements/index-set.js'
import { MOST_UNSPLIT_BYTES } from '../pytorch/model/placement-rules.js'
import { MOST_SMALL_BYTES, roundPytorchBytes } from '../pytorch/model/policy-blocks.js'
import { Action, type Trace } from '../trace.js'

/**
 * By block: the granted bytes, or the rounded ones with the rest that was too small to split off. That rest ended at
 * the block that lay behind it at the allocation. A rest that ended at the end of a segment is not counted, nor are
 * those of blocks from before the recording.
 */
export function takenBytes(trace: Trace): Float64Array {
  const known = takenOf.get(trace)
  if (known !== undefined) return known
  const taken = findTaken(trace)
  takenOf.set(trace, taken)
  return taken
}

/** Several questions to a trace need them. */
const takenOf = new WeakMap<Trace, Float64Array>()

function findTaken({ action, block, blocks, events, saysCompleted }: Trace): Float64Array {
  const places = Float64Array.from(new Set(blocks.address)).sort()
  const indexes = new Map<number, number>()
  for (const [index, address] of places.entries()) indexes.set(address, index)
  const indexOf = (number: number) => indexes.get(blocks.address[number])!
  const inUse = new IndexSet(places.length)
  for (let number = 0; number < blocks.initial; number++) inUse.add(indexOf(number))
  const taken = blocks.grantedBytes.map((granted, number) => granted || roundPytorchBytes(blocks.bytes[number]))
  const idleFrom = saysCompleted ? Action.freeCompleted : Action.freeRequested
  for (let event = 0; event < events; event++) {
    const number = block[event]
    if (action[event] === idleFrom) inUse.delete(indexOf(number))
    if (action[event] !== Action.alloc) continue
    inUse.add(indexOf(number))
    if (taken[number] <= MOST_SMALL_BYTES || blocks.grantedBytes[number] > 0) continue
    const rest = blocks.address[number] + taken[number]
    const next = inUse.from(firstIndex(places.length, i => places[i] >= rest))
    if (next >= 0 && places[next] <= rest + MOST_UNSPLIT_BYTES) taken[number] = places[next] - blocks.address[number]
  }
  return taken
}
