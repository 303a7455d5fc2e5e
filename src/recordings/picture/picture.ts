// The contents of a page about one recording: typed arrays without pointers, so that five million events fit in a
// browser's worker. Event numbers are those of the trace. Addresses are squeezed: ranges that never had memory are
// left out.

import type { NamedFrame } from '../trace/frames/call-sites.js'
import type { Blocks } from '../trace/trace.js'

/** Addresses count in units of this many bytes. */
export const UNIT_BYTES = 512
/** In `PolicyPicture.place`: the policy did not place the block, or the recording does not tell where. */
export const NOWHERE = -1
/** In `PolicyPicture.place`: numbers up to this one stand for `parts`. */
export const FIRST_IN_PARTS = -2
/** All blocks, one column for each field, as in a trace; those of the trace that no picture shows are left out. */
export interface PictureBlocks extends Pick<Blocks, 'count' | 'initial' | 'bytes' | 'allocatedAt' | 'freeRequestedAt'> {
  /** a node of the picture's `stacks`; 0 if no stack was recorded */
  readonly stack: Int32Array
  /** index into `names.stream` */
  readonly stream: Int32Array
  /** index into `names.pool` */
  readonly pool: Int32Array
  /** index into `names.tag` */
  readonly tag: Int32Array
}

/** Names behind numbers of blocks. */
export interface BlockNames {
  readonly stream: readonly string[]
  readonly pool: readonly string[]
  readonly tag: readonly string[]
}

/** One line of a call stack. */
export type PictureFrame = NamedFrame

/**
 * Call stacks as a tree with the outermost call at its root, number 0. Node `n` is the call of `frame[n]` by its
 * parent.
 */
export interface StackTree {
  readonly frames: readonly PictureFrame[]
  /** less than the node's own number */
  readonly parent: Int32Array
  readonly frame: Int32Array
}

/** A range of addresses that had memory, in the order of squeezed addresses. */
export interface AddressRange {
  /** the range's first byte on the device */
  readonly address: number
  /** the same place, squeezed, in units */
  readonly at: number
  /** length in units */
  readonly units: number
}

/** Memory of the device that a policy had at squeezed units `at` to `at + units`, from event `from` until `to`. */
export interface MemoryRectangle {
  readonly at: number
  readonly units: number
  /** the first event with it; -1 if it was there before */
  readonly from: number
  /** the first event without it, or NEVER */
  readonly to: number
}

/** Where the parts of blocks lie whose memory is in several places, as in views of a caching pool. */
export interface BlockParts {
  /** the parts of number `i` are those from `start[i]` to `start[i + 1] - 1` */
  readonly start: Int32Array
  /** squeezed units */
  readonly at: Float64Array
  /** length in units */
  readonly units: Float64Array
}

/** The bytes that a policy has of the device: `bytes[i]` from event `event[i]` until the next one. */
export interface ReservedCurve {
  readonly event: Int32Array
  readonly bytes: Float64Array
}

/** One policy's blocks and memory. */
export interface PolicyPicture {
  readonly policy: string
  readonly label: string
  /**
   * squeezed unit of each block; NOWHERE; or FIRST_IN_PARTS - i for number `i` of `parts`. Null for a policy without
   * addresses
   */
  readonly place: Int32Array | null
  readonly parts: BlockParts
  readonly ranges: readonly AddressRange[]
  readonly memory: readonly MemoryRectangle[]
  readonly reserved: ReservedCurve
}

/** A recording as a page shows it. */
export interface Picture {
  readonly events: number
  /** an `Action` for each event */
  readonly action: Uint8Array
  /** the block of each alloc or freeRequested event; -1 for other events */
  readonly block: Int32Array
  /** microseconds since the first event; never falls */
  readonly timeUs: Float64Array
  readonly blocks: PictureBlocks
  readonly names: BlockNames
  readonly stacks: StackTree
  readonly policies: readonly PolicyPicture[]
  /** the last events of steps, rising */
  readonly steps: Int32Array
}

/** Units of a policy's address axis. */
export function unitsOf({ ranges }: PolicyPicture): number {
  const last = ranges.at(-1)
  return last === undefined ? 0 : last.at + last.units
}

/** Units that a block covers. */
export function blockUnits(bytes: number): number {
  return Math.max(1, Math.ceil(bytes / UNIT_BYTES))
}

/** The device address of a squeezed unit. */
export function addressOf({ ranges }: PolicyPicture, unit: number): number {
  const range = ranges.find(({ at, units }) => unit >= at && unit < at + units)
  return range === undefined ? NaN : range.address + (unit - range.at) * UNIT_BYTES
}

/** Calls `visit` with each run of units of a block. */
export function visitBlock(
  { place, parts }: PolicyPicture,
  block: number,
  bytes: number,
  visit: (at: number, units: number) => void,
): void {
  const at = place?.[block] ?? NOWHERE
  if (at >= 0) visit(at, blockUnits(bytes))
  else if (at <= FIRST_IN_PARTS) {
    const number = FIRST_IN_PARTS - at
    for (let i = parts.start[number]; i < parts.start[number + 1]; i++) visit(parts.at[i], parts.units[i])
  }
}

/** The runs of units of a block: of each its first unit, and how many. */
export function runsOf(policy: PolicyPicture, block: number, bytes: number): Float64Array {
  const runs: number[] = []
  visitBlock(policy, block, bytes, (at, units) => runs.push(at, units))
  return Float64Array.from(runs)
}

/** Whether a block covers any of the units from `from` to `to` - 1. */
export function blockOverlaps(policy: PolicyPicture, block: number, bytes: number, from: number, to: number): boolean {
  const at = policy.place?.[block] ?? NOWHERE
  if (at >= 0) return at < to && at + blockUnits(bytes) > from
  let overlaps = false
  visitBlock(policy, block, bytes, (start, units) => {
    overlaps ||= start < to && start + units > from
  })
  return overlaps
}
