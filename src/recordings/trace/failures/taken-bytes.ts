// How much of its segment each block takes.

import { placesOf } from '../placements/address-places.js'
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
  const places = placesOf(blocks.address)
  const { addresses, of } = places
  const inUse = new IndexSet(addresses.length)
  for (let number = 0; number < blocks.initial; number++) inUse.add(of[number])
  const taken = blocks.grantedBytes.map((granted, number) => granted || roundPytorchBytes(blocks.bytes[number]))
  const idleFrom = saysCompleted ? Action.freeCompleted : Action.freeRequested
  for (let event = 0; event < events; event++) {
    const number = block[event]
    if (action[event] === idleFrom) inUse.delete(of[number])
    if (action[event] !== Action.alloc) continue
    inUse.add(of[number])
    if (taken[number] <= MOST_SMALL_BYTES || blocks.grantedBytes[number] > 0) continue
    const rest = blocks.address[number] + taken[number]
    const next = inUse.from(places.from(rest))
    if (next >= 0 && addresses[next] <= rest + MOST_UNSPLIT_BYTES)
      taken[number] = addresses[next] - blocks.address[number]
  }
  return taken
}
