// Makes a picture from a trace and the placements of policies.

import { Action, BEFORE, NEVER, stackFrames, type Trace } from '../trace/trace.js'
import {
  type AddressRange,
  blockUnits,
  HELD,
  Kind,
  type MemoryRectangle,
  NOWHERE,
  type Picture,
  type PictureBlocks,
  type PolicyPicture,
  type ReservedCurve,
  UNIT_BYTES,
} from './picture.js'
import { StackTreeBuilder } from './stack-tree-builder.js'

/** Memory that existed at `address` from event `from` until event `to`. */
export interface PlacedMemory {
  readonly address: number
  readonly bytes: number
  readonly from: number
  readonly to: number
}

/** Where a policy put the blocks of a trace, and what memory it had. */
export interface PlacedPolicy {
  readonly policy: string
  readonly label: string
  /** by block number, NaN for a block that got none; null for a policy without addresses */
  readonly address: Float64Array | null
  readonly memory: readonly PlacedMemory[]
  /** needed without `memory` */
  readonly reserved?: ReservedCurve
}

/** What a trace may have beside its events. */
export interface PictureExtras {
  /** the last events of steps, rising */
  readonly steps?: readonly number[]
  /** by block: what a number of a private pool or a tag is called */
  readonly pool?: readonly (string | null)[] | null
  readonly tag?: readonly (string | null)[] | null
}

/** Longest name of a file or function that a page shows. */
const MOST_NAME = 300
const NO_NAMES: readonly string[] = ['']

/** The picture of a trace. */
export function makePicture(trace: Trace, policies: readonly PlacedPolicy[], extras: PictureExtras = {}): Picture {
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
  const stacks = new StackTreeBuilder()
  const nodes = Array.from({ length: trace.stacks.count }, (_, stack) =>
    stacks.node(stackFrames(trace.stacks, stack).toReversed().map(shortened)),
  )
  const [pool, poolNames] = numbered(extras.pool, trace.blocks.count)
  const [tag, tagNames] = numbered(extras.tag, trace.blocks.count)
  const blocks = blocksOf(trace, nodes, pool, tag)
  return {
    events,
    kind,
    block,
    timeUs,
    blocks,
    names: { stream: trace.streams.map(handle => `stream ${handle}`), pool: poolNames, tag: tagNames },
    stacks: stacks.build(),
    policies: policies.map(policy => policyOf(policy, blocks)),
    steps: Int32Array.from(extras.steps ?? []),
    failures: Int32Array.from(failures),
  }
}

function shortened({ filename, line, name }: { filename: string; line: number; name: string }) {
  const cut = (text: string) => (text.length <= MOST_NAME ? text : `…${text.slice(1 - MOST_NAME)}`)
  return { file: cut(filename), line, name: cut(name) }
}

function blocksOf({ blocks }: Trace, nodes: readonly number[], pool: Int32Array, tag: Int32Array): PictureBlocks {
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

/** Numbers for names; blocks without a name have number 0. */
function numbered(names: readonly (string | null)[] | null | undefined, count: number): [Int32Array, string[]] {
  const numbers = new Int32Array(count)
  const known = new Map<string, number>([['', 0]])
  names?.forEach((name, block) => {
    if (name === null) return
    if (!known.has(name)) known.set(name, known.size)
    numbers[block] = known.get(name)!
  })
  return [numbers, names ? [...known.keys()] : [...NO_NAMES]]
}

function policyOf({ policy, label, address, memory, reserved }: PlacedPolicy, blocks: PictureBlocks): PolicyPicture {
  const curve = reserved ?? reservedCurve(memory)
  if (address === null) return { policy, label, place: null, ranges: [], memory: [], reserved: curve }
  const ranges = squeezed(memory)
  const place = new Int32Array(blocks.count).fill(NOWHERE)
  for (let block = 0; block < blocks.count; block++) {
    if (Number.isNaN(address[block])) continue
    const unit = unitAt(ranges, address[block])
    // A block outside of all known memory: the recording lost the segment.
    if (unit !== NOWHERE) place[block] = unit
  }
  const rectangles = memory
    .map(({ address, bytes, from, to }): MemoryRectangle => {
      const at = unitAt(ranges, address)
      return { at, units: blockUnits(bytes), from, to: to === NEVER ? HELD : to }
    })
    .sort((a, b) => a.from - b.from || a.at - b.at)
  return { policy, label, place, ranges, memory: rectangles, reserved: curve }
}

/** Address ranges that ever had memory, joined where they touch. */
function squeezed(memory: readonly PlacedMemory[]): AddressRange[] {
  const ranges: { address: number; at: number; units: number }[] = []
  let at = 0
  for (const { address, bytes } of [...memory].sort((a, b) => a.address - b.address)) {
    const start = Math.floor(address / UNIT_BYTES) * UNIT_BYTES
    const end = Math.ceil((address + bytes) / UNIT_BYTES) * UNIT_BYTES
    const last = ranges.at(-1)
    const lastEnd = last === undefined ? -1 : last.address + last.units * UNIT_BYTES
    const added = (end - Math.max(start, lastEnd)) / UNIT_BYTES
    if (added <= 0) continue
    if (last !== undefined && start <= lastEnd) last.units += added
    else ranges.push({ address: start, at, units: added })
    at += added
  }
  return ranges
}

function unitAt(ranges: readonly AddressRange[], address: number): number {
  let [low, high] = [0, ranges.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (ranges[middle].address <= address) low = middle + 1
    else high = middle
  }
  const range = ranges[low - 1]
  if (range === undefined) return NOWHERE
  const unit = Math.floor((address - range.address) / UNIT_BYTES)
  return unit < range.units ? range.at + unit : NOWHERE
}

function reservedCurve(memory: readonly PlacedMemory[]): ReservedCurve {
  const changes = new Map<number, number>([[0, 0]])
  const change = (event: number, bytes: number) => changes.set(event, (changes.get(event) ?? 0) + bytes)
  for (const { bytes, from, to } of memory) {
    change(Math.max(0, from), bytes)
    if (to !== NEVER) change(Math.max(0, to), -bytes)
  }
  const event = Int32Array.from(changes.keys()).sort()
  let total = 0
  const bytes = Float64Array.from(event, each => {
    total += changes.get(each)!
    return total
  })
  return { event, bytes }
}
