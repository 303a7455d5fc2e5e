// A recording whose blocks have other bytes: the events of one that was made, without its segments and addresses.

import { marksOf } from '../columns/annotations.js'
import { knownReleases } from '../pytorch/program-releases.js'
import type { StackTable } from '../stack-table.js'
import { Action, BEFORE, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'

/** Addresses only tell the blocks apart. */
const ADDRESS_STEP = 512

/**
 * The trace with `bytes` for its blocks. Blocks from before it are allocated first. Requests that failed are left out,
 * and of the memory given back only what the program itself gave back: the allocator's own depends on sizes.
 */
export function withBytes(
  trace: Trace,
  bytes: ArrayLike<number>,
  stacks: StackTable,
  numbers: readonly number[],
): Trace {
  const { blocks, action, block, timeUs, streams, pools } = trace
  const builder = new TraceBuilder(stacks)
  const poolNumbers = pools.map(name => builder.pools.number(name))
  const releases = knownReleases(trace)
  const startUs = trace.events === 0 ? 0 : timeUs[0]
  const add = (code: number, number: number, us: number) => {
    const stack = code === Action.alloc ? numbers[blocks.stack[number]] : 0
    const address = (number + 1) * ADDRESS_STEP
    const event = builder.add(code, address, bytes[number], streams[blocks.stream[number]], us, stack)
    builder.notePool(event, poolNumbers[blocks.pool[number]])
  }
  for (let number = 0; number < blocks.initial; number++) {
    add(Action.alloc, number, startUs)
    if (blocks.freeRequestedAt[number] === BEFORE) add(Action.freeRequested, number, startUs)
  }
  for (let event = 0; event < trace.events; event++) {
    if (action[event] <= Action.freeCompleted) add(action[event], block[event], timeUs[event])
    else if (releases.has(event)) builder.add(Action.segmentFree, 0, 0, 0, timeUs[event])
  }
  const { file, device, settings, saysCompleted } = trace
  const annotations = trace.annotations.flatMap(marksOf)
  return builder.build({ file, device, settings, saysCompleted, annotations, before: [] })
}
