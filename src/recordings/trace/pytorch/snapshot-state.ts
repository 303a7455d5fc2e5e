// What a memory snapshot says besides events: its `segments`, which are all memory at the time when it was taken, and
// its annotations.

import { FormatError } from '../../../core/base/errors.js'
import type { AnnotationMark } from '../columns/annotations.js'
import { firstRepeated } from '../placements/address-places.js'
import type { FinalBlock, FinalSegment, FinalState } from '../trace-builder.js'
import { dictionary, isDictionary, isTimeUs, isWhole, list, whole } from './data-checks.js'

const ADDRESS = 'an address'
const BYTES = 'a whole number of bytes'
const STREAM = 'a stream handle'

/** Numbers of the names in segments and blocks. */
interface Numbers {
  /** the number of a list of stack frames */
  readonly stackOf: (frames: unknown) => number
  /** the number of the id of a private pool */
  readonly poolOf: (id: unknown) => number
}

/** The segments and live blocks of one device. Throws FormatError naming the first bad place. */
export function finalState(value: unknown, device: number, { stackOf, poolOf }: Numbers): FinalState {
  const segments: FinalSegment[] = []
  const blocks: FinalBlock[] = []
  const lists = new Set<unknown>()
  /** by segment: its index in the snapshot */
  const places: number[] = []
  let wrongSums = 0
  list(value, 'segments').forEach((entry, i) => {
    const place = `segments[${i}]`
    const segment = dictionary(entry, place)
    if ((segment['device'] ?? 0) !== device) return
    const address = whole(segment, 'address', place, ADDRESS)
    const bytes = whole(segment, 'total_size', place, BYTES)
    const stream = whole(segment, 'stream', place, STREAM)
    const inside = list(segment['blocks'] ?? [], `${place}.blocks`)
    if (inside.length > 0) {
      if (lists.has(inside)) throw new FormatError(`${place}.blocks are those of another segment too`)
      lists.add(inside)
    }
    places.push(i)
    const pool = poolOf(segment['segment_pool_id'])
    segments.push({ address, bytes, stream, pool, expandable: segment['is_expandable'] === true })
    const before = blocks.length
    addBlocks(blocks, inside, { address, bytes, stream, place, stackOf })
    if (hasOtherSums(segment, blocks, before)) wrongSums++
  })
  const repeated = firstRepeated(Float64Array.from(segments.map(({ address }) => address)))
  if (repeated >= 0) throw new FormatError(`segments[${places[repeated]}].address is that of another segment too`)
  return { segments, blocks, wrongSums }
}

/** Whether the sums that a segment gives are not those of its blocks in use, which are `blocks` from `first` on. */
function hasOtherSums(segment: Record<string, unknown>, blocks: readonly FinalBlock[], first: number): boolean {
  let used = 0
  let held = 0
  for (let i = first; i < blocks.length; i++) {
    const { grantedBytes = 0, pending } = blocks[i]
    used += grantedBytes
    if (!pending) held += grantedBytes
  }
  const isOther = (said: unknown, sum: number) => typeof said === 'number' && said !== sum
  return isOther(segment['active_size'], used) || isOther(segment['allocated_size'], held)
}

interface OfSegment {
  readonly address: number
  readonly bytes: number
  readonly stream: number
  /** in the snapshot, for errors */
  readonly place: string
  readonly stackOf: (frames: unknown) => number
}

/** Adds the blocks of a segment that are in use. Snapshots from before 2023 have no block addresses. */
function addBlocks(added: FinalBlock[], entries: readonly unknown[], segment: OfSegment): void {
  const end = segment.address + segment.bytes
  let cursor = segment.address
  entries.forEach((entry, i) => {
    const place = `${segment.place}.blocks[${i}]`
    const block = dictionary(entry, place)
    const size = whole(block, 'size', place, BYTES)
    const address = whole(block, 'address', place, ADDRESS, cursor)
    if (address < cursor || address + size > end) {
      throw new FormatError(`${place} lies outside its segment, or over the block before it`)
    }
    cursor = address + size
    const { state } = block
    if (state === 'inactive') return
    const pending = state === 'active_pending_free' || state === 'active_awaiting_free'
    if (!pending && state !== 'active_allocated') throw new FormatError(`${place}.state is none that is known`)
    const past = allocationOf(block)
    // A key with null tells, too.
    const has = (key: string) => (key in block ? block : past)
    const bytes = whole(has('requested_size'), 'requested_size', place, BYTES, size)
    const isRounded = has('requested_size')['requested_size'] === undefined
    const stack = segment.stackOf(has('frames')['frames'])
    added.push({
      address,
      bytes,
      isRounded,
      grantedBytes: size,
      pending,
      stack,
      stream: segment.stream,
      ...labelsOf(block),
    })
  })
}

const UNKNOWN_ALLOCATION: Record<string, unknown> = {}

/** PyTorch 2.0 has sizes and call stacks in a list of the allocations at the place of a block, the latest first. */
function allocationOf({ history, size }: Record<string, unknown>): Record<string, unknown> {
  const latest: unknown = Array.isArray(history) ? history[0] : undefined
  if (!isDictionary(latest)) return UNKNOWN_ALLOCATION
  const { real_size: requested, frames } = latest
  return isWhole(requested) && requested <= Number(size) ? { requested_size: requested, frames } : { frames }
}

/**
 * The blocks from before the first event that our writer lists, those of no segment. Throws FormatError naming the
 * first bad place.
 */
export function blocksBefore(value: unknown, { stackOf, poolOf }: Numbers): FinalBlock[] {
  return list(value ?? [], 'blocks_before').map((entry, i) => {
    const place = `blocks_before[${i}]`
    const block = dictionary(entry, place)
    const { granted } = block
    return {
      address: whole(block, 'addr', place, ADDRESS),
      bytes: whole(block, 'size', place, BYTES),
      ...(isWhole(granted) ? { grantedBytes: granted } : {}),
      stream: whole(block, 'stream', place, STREAM),
      pool: poolOf(block['pool_id']),
      pending: block['pending'] === true,
      stack: stackOf(block['frames']),
      ...labelsOf(block),
    }
  })
}

const UNLABELLED = {}

function labelsOf({ tag, user_metadata: metadata }: Record<string, unknown>): { tag?: string; metadata?: string } {
  if (tag === undefined && metadata === undefined) return UNLABELLED
  return {
    ...(typeof tag === 'string' ? { tag } : {}),
    ...(typeof metadata === 'string' ? { metadata } : {}),
  }
}

/**
 * The marks of `external_annotations` for one device, and those without a device. Throws FormatError naming the first
 * bad place.
 */
export function annotationMarks(value: unknown, device: number): AnnotationMark[] {
  const marks: AnnotationMark[] = []
  list(value ?? [], 'external_annotations').forEach((entry, i) => {
    const place = `external_annotations[${i}]`
    const { stage, name, device: of = device, time_us: timeUs } = dictionary(entry, place)
    if (of !== device) return
    if (stage !== 'START' && stage !== 'END') throw new FormatError(`${place}.stage must be START or END`)
    if (typeof name !== 'string') throw new FormatError(`${place}.name must be text`)
    if (!isTimeUs(timeUs)) throw new FormatError(`${place}.time_us must be a number of microseconds below 2^53`)
    marks.push({ isStart: stage === 'START', name, timeUs })
  })
  return marks
}
