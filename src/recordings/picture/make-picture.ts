// Makes a picture from a trace and the placements of policies.

import { shortened } from '../../core/base/shown-text.js'
import { stepsOf } from '../trace/analysis/steps.js'
import { namedFrames } from '../trace/frames/call-sites.js'
import { Action, type Trace } from '../trace/trace.js'
import type { Picture, PictureBlocks } from './picture.js'
import { type PlacedPolicy, policyPicture } from './policy-picture.js'
import { pictureFrame } from './stack-text.js'

/** The picture of a trace. */
export function makePicture(trace: Trace, policies: readonly PlacedPolicy[]): Picture {
  const { events, action } = trace
  const timeUs = new Float64Array(events)
  let latest = 0
  for (let event = 0; event < events; event++) {
    // Clocks of several threads may go back by a little.
    latest = Math.max(latest, Math.round(trace.timeUs[event] - trace.timeUs[0]))
    timeUs[event] = latest
  }
  const isShown = (event: number) => action[event] === Action.alloc || action[event] === Action.freeRequested
  const { parent, frame, frames, node } = trace.stacks
  const [pools, poolNames] = usedOnly(trace.blocks.pool, trace.pools)
  const [tags, tagNames] = usedOnly(trace.blocks.tag, trace.tags)
  const blocks = blocksOf(trace, node, pools, tags)
  return {
    events,
    action,
    block: trace.block.map((block, event) => (isShown(event) ? block : -1)),
    timeUs,
    blocks,
    names: { stream: trace.streams.map(handle => `stream ${handle}`), pool: poolNames, tag: tagNames },
    stacks: { parent, frame, frames: namedFrames(frames).map(pictureFrame) },
    policies: policies.map(policy => policyPicture(policy, blocks, events)),
    steps: Int32Array.from(stepsOf(trace)?.steps ?? [], ({ to }) => to - 1),
  }
}

function blocksOf({ blocks }: Trace, nodes: Int32Array, pool: Int32Array, tag: Int32Array): PictureBlocks {
  const { count, initial, bytes, allocatedAt, freeRequestedAt } = blocks
  const stack = blocks.stack.map(number => nodes[number])
  return {
    count,
    initial,
    bytes,
    allocatedAt,
    freeRequestedAt,
    stack,
    stream: Int32Array.from(blocks.stream),
    pool,
    tag,
  }
}

/** The numbers of blocks and their names, without names that no block has. Number 0 is the usual name, ''. */
function usedOnly(numbers: Uint32Array, names: readonly string[]): [Int32Array, string[]] {
  if (names.length <= 1) return [new Int32Array(numbers.length), ['']]
  const used = new Map([[0, 0]])
  const column = Int32Array.from(numbers, number => {
    if (!used.has(number)) used.set(number, used.size)
    return used.get(number)!
  })
  return [column, [...used.keys()].map(number => (number === 0 ? '' : shortened(names[number])))]
}
