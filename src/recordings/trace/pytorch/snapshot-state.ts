// What a memory snapshot says besides events: its `segments`, which are all memory at the time when it was taken, and
// its annotations.

import { FormatError } from '../../../core/base/errors.js'
import type { AnnotationMark } from '../columns/annotations.js'
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
  const bases = new Set<number>()
  const lists = new Set<unknown>()
  let wrongSums = 0
  list(value, 'segments').forEach((entry, i) => {
    const place = `segments[${i}]`
    const segment = dictionary(entry, place)
    if ((segment['device'] ?? 0) !== device) return
    const address = whole(segment, 'address', place, ADDRESS)
    const bytes = whole(segment, 'total_size', place, BYTES)
    const stream = whole(segment, 'stream', place, STREAM)
    const inside = list(segment['blocks'] ?? [], `${place}.blocks`)
    if (bases.has(address)) throw new FormatError(`${place}.address is that of another segment too`)
    if (inside.length > 0 && lists.has(inside)) {
      throw new FormatError(`${place}.blocks are those of another segment too`)
    }
    bases.add(address)
    lists.add(inside)
    const pool = poolOf(segment['segment_pool_id'])
    segments.push({ address, bytes, stream, pool, expandable: segment['is_expandable'] === true })
    const used = finalBlocks(inside, address, bytes, place, stackOf)
    for (const block of used) blocks.push({ ...block, stream })
    if (hasOtherSums(segment, used)) wrongSums++
  })
  return { segments, blocks, wrongSums }
}

/** Whether the sums that a segment gives are not those of its blocks in use. */
function hasOtherSums(segment: Record<string, unknown>, used: readonly Omit<FinalBlock, 'stream'>[]): boolean {
  const sum = (blocks: typeof used) => blocks.reduce((total, { grantedBytes = 0 }) => total + grantedBytes, 0)
  const { allocated_size: allocated, active_size: active } = segment
  const isOther = (said: unknown, blocks: typeof used) => typeof said === 'number' && said !== sum(blocks)
  return (
    isOther(active, used) ||
    isOther(
      allocated,
      used.filter(({ pending }) => !pending),
    )
  )
}

/** The blocks of a segment that are in use. Snapshots from before 2023 have no block addresses. */
function finalBlocks(
  blocks: readonly unknown[],
  base: number,
  total: number,
  segmentPlace: string,
  stackOf: (frames: unknown) => number,
) {
  const used: Omit<FinalBlock, 'stream'>[] = []
  let cursor = base
  blocks.forEach((entry, i) => {
    const place = `${segmentPlace}.blocks[${i}]`
    const block = dictionary(entry, place)
    const size = whole(block, 'size', place, BYTES)
    const address = whole(block, 'address', place, ADDRESS, cursor)
    if (address < cursor || address + size > base + total) {
      throw new FormatError(`${place} lies outside its segment, or over the block before it`)
    }
    cursor = address + size
    const { state } = block
    if (state === 'inactive') return
    const pending = state === 'active_pending_free' || state === 'active_awaiting_free'
    if (!pending && state !== 'active_allocated') throw new FormatError(`${place}.state is none that is known`)
    const described = { ...allocationOf(block), ...block }
    const bytes = whole(described, 'requested_size', place, BYTES, size)
    const isRounded = described.requested_size === undefined
    const stack = stackOf(described.frames)
    used.push({ address, bytes, isRounded, grantedBytes: size, pending, stack, ...labelsOf(block) })
  })
  return used
}

/** PyTorch 2.0 has sizes and call stacks in a list of the allocations at the place of a block, the latest first. */
function allocationOf({ history, size }: Record<string, unknown>): { requested_size?: unknown; frames?: unknown } {
  const latest: unknown = Array.isArray(history) ? history[0] : undefined
  if (!isDictionary(latest)) return {}
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

function labelsOf({ tag, user_metadata: metadata }: Record<string, unknown>): { tag?: string; metadata?: string } {
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
