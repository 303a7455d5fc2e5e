// Writes a trace in the format of PyTorch's memory snapshots (a pickle of protocol 4), so that viewers for snapshots
// can show our pools.

import { firstIndex } from '../../../core/base/binary-search.js'
import { MiB } from '../../../core/base/bytes.js'
import { hasSegments, ReservedSegments } from '../reserved-segments.js'
import {
  Action,
  type ActionCode,
  BEFORE,
  checkTrace,
  type Frame,
  NEVER,
  type Segment,
  stackFrames,
  type Trace,
} from '../trace.js'
import { allocatorSettingsEntry } from './allocator-settings.js'
import { roundPytorchBytes } from './model/policy-blocks.js'
import { PickleTuple, writePickle } from './pickle-writer.js'

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

/**
 * The bytes of a PyTorch memory snapshot of `trace`, a pickle of protocol 4. `readRecording` makes the same trace
 * from them, but for `otherDevices`. Other readers leave the keys of our own alone, which docs/recordings.md lists.
 * Throws TypeError for anything but a trace.
 */
export function pickleSnapshot(trace: Trace): Buffer {
  checkTrace('pickleSnapshot', trace)
  return writePickle(new SnapshotEntries(trace).snapshot())
}

/** The entries of a snapshot. Equal stacks and ids are one object each, which the pickle has once. */
class SnapshotEntries {
  private readonly stacks = new Map<number, Frame[]>()
  private readonly pools: readonly PickleTuple[]
  /** the blocks that the written segments have */
  private readonly inSegments = new Set<number>()
  /** how many of the held blocks, by rising address, lie below the end of these segments */
  private placed = 0

  constructor(private readonly trace: Trace) {
    this.pools = trace.pools.map(id => new PickleTuple(id.split(',').map(Number)))
  }

  snapshot(): object {
    const { trace } = this
    const { recordedPeakReservedBytes: peak } = trace
    const deviceTraces: object[][] = Array.from({ length: trace.device + 1 }, () => [])
    deviceTraces[trace.device] = Array.from({ length: trace.events }, (_, event) => this.event(event))
    const held = heldAtEnd(trace)
    const segments = finalSegments(trace).map(segment => this.segment(segment, held))
    const before = this.blocksBefore()
    return {
      segments,
      device_traces: deviceTraces,
      allocator_settings: allocatorSettingsEntry(trace.settings),
      external_annotations: annotationEntries(trace),
      ...(trace.recorder === 'PyTorch' ? {} : { recorder: trace.recorder }),
      ...(trace.dropped === null ? {} : { dropped: trace.dropped }),
      ...(trace.skippedEvents === 0 ? {} : { skipped: trace.skippedEvents }),
      ...(hasSegments(trace) || peak === null ? {} : { peak_reserved: peak }),
      ...(trace.saysCompleted && !trace.action.includes(Action.freeCompleted) ? { says_completed: true } : {}),
      ...(before.length === 0 ? {} : { blocks_before: before }),
    }
  }

  /** The blocks from before the first event that no written segment has, with the keys of an alloc event. */
  private blocksBefore(): object[] {
    const { address, bytes, stream, stack, metadata, initial, freeRequestedAt } = this.trace.blocks
    const entries: object[] = []
    for (let block = 0; block < initial; block++) {
      if (this.inSegments.has(block)) continue
      entries.push({
        addr: address[block],
        size: bytes[block],
        stream: this.trace.streams[stream[block]],
        pending: freeRequestedAt[block] === BEFORE,
        user_metadata: this.trace.metadata[metadata[block]],
        frames: this.frames(stack[block]),
        ...this.ownKeys(block),
        pool_id: this.pools[this.trace.blocks.pool[block]],
      })
    }
    return entries
  }

  private event(event: number): object {
    const { trace } = this
    const { blocks } = trace
    const action = trace.action[event] as ActionCode
    const address = trace.address[event]
    const stack = trace.stack[event]
    const block = action === Action.alloc ? trace.block[event] : -1
    return {
      action: NAMES[action],
      // NaN where it is not known: PyTorch's viewers format it as a number, and throw for null.
      ...(action === Action.outOfMemory ? { device_free: address } : { addr: address }),
      size: trace.bytes[event],
      stream: trace.streams[trace.stream[event]],
      time_us: trace.timeUs[event],
      compile_context: 'N/A',
      user_metadata: block < 0 ? '' : trace.metadata[blocks.metadata[block]],
      ...(stack === 0 ? {} : { frames: this.frames(stack) }),
      ...(trace.pool[event] === 0 ? {} : { pool_id: this.pools[trace.pool[event]] }),
      ...(block < 0 ? {} : this.ownKeys(block)),
    }
  }

  /** The keys of an allocation that PyTorch's format lacks. */
  private ownKeys(block: number): object {
    const { tag, category, grantedBytes } = this.trace.blocks
    return {
      ...(tag[block] === 0 ? {} : { tag: this.trace.tags[tag[block]] }),
      ...(category[block] === 0 ? {} : { category: this.trace.categories[category[block]] }),
      ...(Number.isNaN(grantedBytes[block]) ? {} : { granted: grantedBytes[block] }),
    }
  }

  private frames(stack: number): Frame[] {
    let frames = this.stacks.get(stack)
    if (frames === undefined) {
      frames = stackFrames(this.trace.stacks, stack)
      this.stacks.set(stack, frames)
    }
    return frames
  }

  private segment(segment: Segment, held: readonly number[]): object {
    const { trace } = this
    const { address, pool } = trace.blocks
    const heldBelow = (end: number) => firstIndex(held.length, i => address[held[i]] >= end)
    // Segments of a contradictory recording may overlap.
    const from = Math.max(this.placed, heldBelow(segment.address))
    this.placed = Math.max(from, heldBelow(segment.address + segment.bytes))
    const inside = held.slice(from, this.placed)
    for (const number of inside) this.inSegments.add(number)
    const blocks = this.blocks(segment, inside)
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
      segment_pool_id: this.pools[segment.pool || (inside.length > 0 ? pool[inside[0]] : 0)],
      is_expandable: segment.expandable,
      frames: [],
      blocks,
    }
  }

  /**
   * The blocks in use in a segment, and the free blocks between them. Sizes that the trace does not have are rounded
   * like PyTorch's.
   */
  private blocks(segment: Segment, inside: readonly number[]) {
    const { blocks, tags, metadata } = this.trace
    const end = segment.address + segment.bytes
    let cursor = segment.address
    const entries: { address: number; size: number; requested_size: number; state: string; frames: Frame[] }[] = []
    const append = (to: number, requested: number, state: string, frames: Frame[] = [], labels: object = {}) => {
      const size = to - cursor
      if (size > 0) entries.push({ address: cursor, size, requested_size: requested, state, frames, ...labels })
      cursor = Math.max(cursor, to)
    }
    inside.forEach((number, i) => {
      append(blocks.address[number], 0, 'inactive')
      const limit = i + 1 < inside.length ? blocks.address[inside[i + 1]] : end
      const state = blocks.freeRequestedAt[number] === NEVER ? 'active_allocated' : 'active_pending_free'
      const bytes = blocks.grantedBytes[number] || roundPytorchBytes(blocks.bytes[number])
      const to = Math.min(limit, cursor + bytes)
      // The other blocks have their stack and labels in the alloc event.
      if (number >= blocks.initial) append(to, blocks.bytes[number], state)
      else {
        append(to, blocks.bytes[number], state, this.frames(blocks.stack[number]), {
          ...(blocks.tag[number] === 0 ? {} : { tag: tags[blocks.tag[number]] }),
          ...(blocks.metadata[number] === 0 ? {} : { user_metadata: metadata[blocks.metadata[number]] }),
        })
      }
    })
    append(end, 0, 'inactive')
    return entries
  }
}

/** A mark for each start and each end, in an order in which equal names find each other again. */
function annotationEntries({ annotations, device }: Trace): object[] {
  const marks = annotations.flatMap(({ name, startUs, endUs }) => [
    { stage: 'START', name, timeUs: startUs, rank: 1 },
    { stage: 'END', name, timeUs: endUs, rank: startUs === endUs ? 2 : 0 },
  ])
  return marks
    .filter(({ timeUs }) => !Number.isNaN(timeUs))
    .sort((a, b) => a.timeUs - b.timeUs || a.rank - b.rank)
    .map(({ stage, name, timeUs }) => ({ stage, name, device, time_us: timeUs }))
}

/** The segments after the last event. */
function finalSegments(trace: Trace): Segment[] {
  const set = new ReservedSegments(trace.initialSegments)
  set.applyEvents(trace, 0, trace.events)
  return set.list()
}

/** The numbers of the blocks in use after the last event, by rising address. */
function heldAtEnd({ blocks, saysCompleted }: Trace): number[] {
  const { count, address, freeRequestedAt, freeCompletedAt } = blocks
  const numbers: number[] = []
  for (let i = 0; i < count; i++) {
    if (freeCompletedAt[i] === NEVER && (saysCompleted || freeRequestedAt[i] === NEVER)) numbers.push(i)
  }
  return numbers.sort((a, b) => address[a] - address[b])
}
