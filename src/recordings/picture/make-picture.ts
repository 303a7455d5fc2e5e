// Makes a picture from a trace and the placements of policies.

import { shortened } from '../../core/base/shown-text.js'
import { stepsOf } from '../trace/analysis/steps.js'
import { Action, BEFORE, NEVER, type Trace } from '../trace/trace.js'
import { HELD, Kind, type Picture, type PictureBlocks } from './picture.js'
import { type PlacedPolicy, policyPicture } from './policy-picture.js'
import { pictureFrame } from './stack-text.js'

/** The picture of a trace. */
export function makePicture(trace: Trace, policies: readonly PlacedPolicy[]): Picture {
  const { events, action } = trace
  const kind = new Uint8Array(events)
  const block = new Int32Array(events).fill(-1)
  const timeUs = new Float64Array(events)
  const failures: number[] = []
  let [first, latest] = [NaN, 0]
  for (let event = 0; event < events; event++) {
    const code = action[event]
    if (code === Action.alloc) kind[event] = Kind.allocation
    else if (code === Action.freeRequested) kind[event] = Kind.free
    else if (code === Action.outOfMemory) failures.push(event)
    if (kind[event] !== Kind.other) block[event] = trace.block[event]
    // Clocks of several threads may go back by a little.
    if (Number.isNaN(first)) first = trace.timeUs[event]
    latest = Math.max(latest, Math.round(trace.timeUs[event] - first))
    timeUs[event] = latest
  }
  const { parent, frame, frames, node } = trace.stacks
  const [pools, poolNames] = usedOnly(trace.blocks.pool, trace.pools)
  const [tags, tagNames] = usedOnly(trace.blocks.tag, trace.tags)
  const blocks = blocksOf(trace, node, pools, tags)
  return {
    events,
    kind,
    block,
    timeUs,
    blocks,
    names: { stream: trace.streams.map(handle => `stream ${handle}`), pool: poolNames, tag: tagNames },
    stacks: { parent, frame, frames: frames.map(pictureFrame) },
    policies: policies.map(policy => policyPicture(policy, blocks, events)),
    steps: Int32Array.from(stepsOf(trace)?.steps ?? [], ({ to }) => to - 1),
    failures: Int32Array.from(failures),
  }
}

function blocksOf({ blocks }: Trace, nodes: Int32Array, pool: Int32Array, tag: Int32Array): PictureBlocks {
  const { count, initial, bytes, allocatedAt, freeRequestedAt } = blocks
  const freedAt = freeRequestedAt.map(at => (at === NEVER ? HELD : at === BEFORE ? -1 : at))
  const stack = blocks.stack.map(number => nodes[number])
  return {
    count,
    initial,
    bytes,
    allocatedAt,
    freedAt,
    stack,
    stream: Int32Array.from(blocks.stream),
    pool,
    tag,
  }
}

/** The numbers of blocks and their names, without names that no block has. Number 0 is the usual name, ''. */
function usedOnly(numbers: Uint32Array, names: readonly string[]): [Int32Array, string[]] {
  const used = new Map([[0, 0]])
  const column = Int32Array.from(numbers, number => {
    if (!used.has(number)) used.set(number, used.size)
    return used.get(number)!
  })
  return [column, [...used.keys()].map(number => (number === 0 ? '' : shortened(names[number])))]
}
