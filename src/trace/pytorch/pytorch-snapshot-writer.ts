// Writes a trace in the format of PyTorch's memory snapshots (a pickle of protocol 4), so that viewers for snapshots
// can show our pools.

import { MiB } from '../../base/bytes.js'
import { ReservedSegments } from '../reserved-segments.js'
import { Action, type ActionCode, type Frame, framesOf, NEVER, type Segment, type Trace } from '../trace.js'
import { PickleTuple, writePickle } from './pickle-writer.js'
import { roundPytorchBytes } from './model/policy-blocks.js'

const NAMES: Readonly<Record<ActionCode, string>> = {
  [Action.alloc]: 'alloc',
  [Action.freeRequested]: 'free_requested',
  [Action.freeCompleted]: 'free_completed',
  [Action.segmentAlloc]: 'segment_alloc',
  [Action.segmentFree]: 'segment_free',
  [Action.segmentMap]: 'segment_map',
  [Action.segmentUnmap]: 'segment_unmap',
  [Action.outOfMemory]: 'oom',
  [Action.snapshot]: 'snapshot',
}
const MOST_SMALL_SEGMENT_BYTES = 2 * MiB
const DEFAULT_POOL = new PickleTuple([0, 0])

/**
 * The bytes of a PyTorch memory snapshot of `trace`, a pickle of protocol 4. `parseSnapshot` makes the same trace
 * from them.
 */
export function pickleSnapshot(trace: Trace): Buffer {
  const deviceTraces: object[][] = Array.from({ length: trace.device + 1 }, () => [])
  deviceTraces[trace.device] = Array.from({ length: trace.events }, (_, event) => eventEntry(trace, event))
  const held = heldAtEnd(trace)
  return writePickle({
    segments: finalSegments(trace).map(segment => segmentEntry(trace, segment, held)),
    device_traces: deviceTraces,
    allocator_settings: trace.settings === null ? {} : { PYTORCH_CUDA_ALLOC_CONF: trace.settings },
    external_annotations: [],
    ...(trace.recorder === 'PyTorch' ? {} : { recorder: trace.recorder }),
  })
}

function eventEntry(trace: Trace, event: number): object {
  const action = trace.action[event] as ActionCode
  const address = trace.address[event]
  const frames = framesOf(trace, event)
  return {
    action: NAMES[action],
    ...(action === Action.outOfMemory ? { device_free: Number.isNaN(address) ? null : address } : { addr: address }),
    size: trace.bytes[event],
    stream: trace.streams[trace.stream[event]],
    time_us: trace.timeUs[event],
    compile_context: 'N/A',
    user_metadata: '',
    ...(frames.length > 0 ? { frames: [...frames] } : {}),
  }
}

/** The segments after the last event. */
function finalSegments(trace: Trace): Segment[] {
  const set = new ReservedSegments(trace.initialSegments)
  for (let event = 0; event < trace.events; event++) {
    set.apply(trace.action[event], trace.address[event], trace.bytes[event], trace.stream[event])
  }
  return set.list()
}

function segmentEntry(trace: Trace, segment: Segment, held: readonly number[]): object {
  const blocks = blockEntries(trace, segment, held)
  const total = (field: 'size' | 'requested_size', ...states: string[]) =>
    blocks.reduce((sum, block) => sum + (states.includes(block.state) ? block[field] : 0), 0)
  return {
    device: trace.device,
    address: segment.address,
    total_size: segment.bytes,
    allocated_size: total('size', 'active_allocated'),
    active_size: total('size', 'active_allocated', 'active_pending_free'),
    requested_size: total('requested_size', 'active_allocated', 'active_pending_free'),
    stream: trace.streams[segment.stream],
    segment_type: segment.bytes <= MOST_SMALL_SEGMENT_BYTES ? 'small' : 'large',
    segment_pool_id: DEFAULT_POOL,
    is_expandable: segment.expandable,
    frames: [],
    blocks,
  }
}

/** The numbers of the blocks in use after the last event, by rising address. */
function heldAtEnd({ blocks }: Trace): number[] {
  const numbers: number[] = []
  for (let i = 0; i < blocks.count; i++) if (blocks.freeCompletedAt[i] === NEVER) numbers.push(i)
  return numbers.sort((a, b) => blocks.address[a] - blocks.address[b])
}

/**
 * The blocks in use in a segment, and the free blocks between them. Sizes that the trace does not have are rounded
 * like PyTorch's.
 */
function blockEntries({ blocks, stacks }: Trace, segment: Segment, held: readonly number[]) {
  const end = segment.address + segment.bytes
  const inside = held.filter(number => blocks.address[number] >= segment.address && blocks.address[number] < end)
  let cursor = segment.address
  const entries: { address: number; size: number; requested_size: number; state: string; frames: Frame[] }[] = []
  const append = (to: number, requested: number, state: string, stack = 0) => {
    const frames = [...stacks[stack]]
    if (to > cursor) entries.push({ address: cursor, size: to - cursor, requested_size: requested, state, frames })
    cursor = Math.max(cursor, to)
  }
  inside.forEach((number, i) => {
    append(blocks.address[number], 0, 'inactive')
    const limit = i + 1 < inside.length ? blocks.address[inside[i + 1]] : end
    const state = blocks.freeRequestedAt[number] === NEVER ? 'active_allocated' : 'active_pending_free'
    const bytes = blocks.grantedBytes[number] || roundPytorchBytes(blocks.bytes[number])
    // The other blocks have their stack in the alloc event.
    const stack = number < blocks.initial ? blocks.stack[number] : 0
    append(Math.min(limit, cursor + bytes), blocks.bytes[number], state, stack)
  })
  append(end, 0, 'inactive')
  return entries
}
