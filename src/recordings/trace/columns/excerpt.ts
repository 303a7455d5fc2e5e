import { ReservedSegments } from '../reserved-segments.js'
import type { StackTable } from '../stack-table.js'
import { BEFORE, type Trace } from '../trace.js'
import { type FinalBlock, TraceBuilder } from '../trace-builder.js'
import { marksOf } from './annotations.js'

/**
 * The events from `from` to `end - 1` as a trace of their own. Blocks and segments that exist at its start are its
 * initial ones. Annotations are left out unless they end within it.
 */
export function excerptOf(trace: Trace, from: number, end: number): Trace {
  const { file, device, skippedEvents, otherDevices, recorder, settings, dropped, saysCompleted, streams } = trace
  const builder = new TraceBuilder()
  const numbers = {
    stacks: stackNumbers(trace.stacks, builder.stacks),
    pools: trace.pools.map(name => builder.pools.number(name)),
  }
  addEvents(builder, trace, from, end, numbers)
  const segments = new ReservedSegments(trace.initialSegments)
  segments.applyEvents(trace, 0, end)
  const annotations = trace.annotations.filter(each => each.end > from && each.end <= end && each.start !== BEFORE)
  return builder.build({
    file,
    device,
    skippedEvents,
    otherDevices,
    recorder,
    settings,
    annotations: annotations.flatMap(marksOf),
    dropped,
    saysCompleted,
    before: heldBefore(trace, from, numbers),
    final: {
      segments: segments.list().map(segment => ({ ...segment, stream: streams[segment.stream] })),
      blocks: heldBefore(trace, end, numbers),
    },
  })
}

/** By number in the trace: the numbers of its call stacks and pools in the excerpt. */
interface Numbers {
  readonly stacks: readonly number[]
  readonly pools: readonly number[]
}

/** By number of a trace's call stacks: their numbers in another table. */
export function stackNumbers({ frames, node, parent, frame }: Trace['stacks'], table: StackTable): number[] {
  const entries = frames.map(({ filename, line, name }) => table.entry(filename, line, name))
  return Array.from(node, innermost => {
    const items: unknown[] = []
    for (let at = innermost; at > 0; at = parent[at]) items.push(entries[frame[at]])
    return table.number(items)
  })
}

function addEvents(builder: TraceBuilder, trace: Trace, from: number, end: number, { stacks, pools }: Numbers): void {
  const { action, address, bytes, stream, timeUs, stack, pool, block, blocks, streams, metadata, tags, categories } =
    trace
  for (let event = from; event < end; event++) {
    const handle = streams[stream[event]]
    const added = builder.add(action[event], address[event], bytes[event], handle, timeUs[event], stacks[stack[event]])
    builder.notePool(added, pools[pool[event]])
    const number = block[event]
    if (number < 0 || blocks.allocatedAt[number] !== event) continue
    builder.noteMetadata(added, metadata[blocks.metadata[number]])
    builder.noteTag(added, tags[blocks.tag[number]])
    if (blocks.category[number] > 0) builder.noteCategory(added, categories[blocks.category[number]])
    if (!Number.isNaN(blocks.grantedBytes[number])) builder.noteGranted(added, blocks.grantedBytes[number])
  }
}

/** The blocks in use just before an event. */
function heldBefore(trace: Trace, event: number, { stacks, pools }: Numbers): FinalBlock[] {
  const { blocks, streams, metadata, tags, saysCompleted } = trace
  const held: FinalBlock[] = []
  for (let number = 0; number < blocks.count; number++) {
    if (blocks.allocatedAt[number] >= event || blocks.freeCompletedAt[number] < event) continue
    const pending = blocks.freeRequestedAt[number] < event
    if (pending && !saysCompleted) continue
    held.push({
      address: blocks.address[number],
      bytes: blocks.bytes[number],
      grantedBytes: blocks.grantedBytes[number],
      stream: streams[blocks.stream[number]],
      pool: pools[blocks.pool[number]],
      pending,
      stack: stacks[blocks.stack[number]],
      metadata: metadata[blocks.metadata[number]],
      tag: tags[blocks.tag[number]],
    })
  }
  return held
}
