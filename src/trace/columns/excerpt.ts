import { ReservedSegments } from '../reserved-segments.js'
import { BEFORE, type Trace } from '../trace.js'
import { type FinalBlock, TraceBuilder } from '../trace-builder.js'

/**
 * The events from `from` to `end - 1` as a trace of their own. Blocks and segments that exist at its start are its
 * initial ones. Annotations are left out unless they end within it.
 */
export function excerptOf(trace: Trace, from: number, end: number): Trace {
  const { action, address, bytes, stream, timeUs, stack, pool, block, blocks, streams, stacks } = trace
  const builder = new TraceBuilder()
  const entries = stacks.frames.map(({ filename, line, name }) => builder.stacks.entry(filename, line, name))
  const numbers = Array.from(stacks.node, node => {
    const items: unknown[] = []
    for (let at = node; at > 0; at = stacks.parent[at]) items.push(entries[stacks.frame[at]])
    return builder.stacks.number(items)
  })
  const poolNumber = trace.pools.map(name => builder.pools.number(name))
  for (let event = from; event < end; event++) {
    const handle = streams[stream[event]]
    const added = builder.add(action[event], address[event], bytes[event], handle, timeUs[event], numbers[stack[event]])
    builder.notePool(added, poolNumber[pool[event]])
    const number = block[event]
    if (number < 0 || blocks.allocatedAt[number] !== event) continue
    builder.noteMetadata(added, trace.metadata[blocks.metadata[number]])
    builder.noteTag(added, trace.tags[blocks.tag[number]])
    if (!Number.isNaN(blocks.grantedBytes[number])) builder.noteGranted(added, blocks.grantedBytes[number])
  }
  const segments = new ReservedSegments(trace.initialSegments)
  segments.applyEvents(trace, 0, end)
  /** The blocks in use just before an event. */
  const heldBefore = (event: number) => {
    const held: FinalBlock[] = []
    for (let number = 0; number < blocks.count; number++) {
      if (blocks.allocatedAt[number] >= event || blocks.freeCompletedAt[number] < event) continue
      const pending = blocks.freeRequestedAt[number] < event
      if (pending && !trace.saysCompleted) continue
      const place = {
        address: blocks.address[number],
        bytes: blocks.bytes[number],
        grantedBytes: blocks.grantedBytes[number],
        stream: streams[blocks.stream[number]],
        pool: poolNumber[blocks.pool[number]],
      }
      const labels = { metadata: trace.metadata[blocks.metadata[number]], tag: trace.tags[blocks.tag[number]] }
      held.push({ ...place, ...labels, pending, stack: numbers[blocks.stack[number]] })
    }
    return held
  }
  const { file, device, skippedEvents, otherDevices, recorder, settings, dropped } = trace
  const list = segments.list().map(segment => ({ ...segment, stream: streams[segment.stream] }))
  const annotations = trace.annotations
    .filter(({ end: last, start }) => last > from && last <= end && start !== BEFORE)
    .flatMap(({ name, startUs, endUs }) => [
      ...(Number.isNaN(startUs) ? [] : [{ isStart: true, name, timeUs: startUs }]),
      ...(Number.isNaN(endUs) ? [] : [{ isStart: false, name, timeUs: endUs }]),
    ])
  return builder.build({
    file,
    device,
    skippedEvents,
    otherDevices,
    recorder,
    settings,
    annotations,
    dropped,
    saysCompleted: trace.saysCompleted,
    before: heldBefore(from),
    final: { segments: list, blocks: heldBefore(end) },
  })
}
