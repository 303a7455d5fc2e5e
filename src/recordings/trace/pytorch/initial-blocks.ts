// The blocks from before the first event of a trace, in their segments. A recording has their requested bytes, not
// the bytes of their blocks. So what PyTorch rounded up, and what it did not split off, is inferred.

import { firstIndex } from '../../../core/base/binary-search.js'
import { Action, type Segment, type Trace } from '../trace.js'
import { isSmallSegment, MOST_UNSPLIT_BYTES, PlacementRules } from './model/placement-rules.js'
import type { UsedRange } from './model/policy-blocks.js'
import { recordedPytorchSettings } from './named-settings.js'

interface InitialSegment {
  readonly segment: Segment
  /** the blocks in use, by rising address */
  readonly numbers: readonly number[]
  /** the ranges of these blocks */
  readonly used: readonly UsedRange[]
}

/** The segments before the first event, by rising address, with their blocks. */
export function initialSegments(trace: Trace): InitialSegment[] {
  const { blocks } = trace
  const numbers = Array.from({ length: blocks.initial }, (_, number) => number)
  numbers.sort((a, b) => blocks.address[a] - blocks.address[b])
  const unsplit = new UnsplitBytes(trace)
  let next = 0
  const segments = trace.initialSegments.map(segment => {
    const end = segment.address + segment.bytes
    const inside: number[] = []
    let cursor = segment.address
    while (next < numbers.length && blocks.address[numbers[next]] < end) {
      const number = numbers[next++]
      const address = blocks.address[number]
      if (address < cursor || address + blocks.bytes[number] > end) continue
      cursor = address + blocks.bytes[number]
      inside.push(number)
    }
    inside.forEach((number, i) => {
      const limit = i + 1 < inside.length ? blocks.address[inside[i + 1]] : end
      unsplit.note(number, limit, segment)
    })
    return { segment, numbers: inside }
  })
  unsplit.search()
  return segments.map(({ segment, numbers: inside }) => ({
    segment,
    numbers: inside,
    used: inside.map(number => unsplit.rangeOf(number)),
  }))
}

/**
 * Finds the bytes of each block with the rest that was too small to split off. They reach to the first block that is
 * allocated above it while it is in use.
 */
class UnsplitBytes {
  /** by block number */
  private readonly grantedBytes: Float64Array
  /** blocks of unknown size, by rising address */
  private readonly unknown: number[] = []
  /** by block number: 1 for blocks of unknown size that events do not tell */
  private readonly unsure: Uint8Array
  /** by the settings that the recording was made with */
  private readonly rules: PlacementRules

  constructor(private readonly trace: Trace) {
    this.rules = new PlacementRules(recordedPytorchSettings(trace))
    this.grantedBytes = new Float64Array(trace.blocks.initial)
    this.unsure = new Uint8Array(trace.blocks.initial)
  }

  rangeOf(number: number): UsedRange {
    const address = this.trace.blocks.address[number]
    const bytes = this.grantedBytes[number]
    return this.unsure[number] === 0 ? { address, bytes } : { address, bytes, mostBytes: bytes + MOST_UNSPLIT_BYTES }
  }

  /** Notes a block, below the next block in use or the end of its segment at `limit`. */
  note(number: number, limit: number, segment: Segment): void {
    const { blocks } = this.trace
    const rounded = this.rules.round(blocks.bytes[number])
    const room = limit - blocks.address[number]
    const small = segment.expandable || isSmallSegment(segment.bytes)
    const known = blocks.grantedBytes[number]
    if (known >= rounded && known <= room) this.grantedBytes[number] = known
    else if (!this.rules.splits(room - rounded, rounded, small)) this.grantedBytes[number] = room
    else {
      this.grantedBytes[number] = rounded
      if (!small) {
        this.unknown.push(number)
        this.unsure[number] = 1
      }
    }
  }

  search(): void {
    const { unknown, unsure, grantedBytes } = this
    const { events, action, address, blocks } = this.trace
    for (let event = 0; event < events && unknown.length > 0; event++) {
      if (action[event] !== Action.alloc) continue
      const number = this.below(address[event])
      if (number < 0 || unsure[number] === 0 || blocks.freeCompletedAt[number] < event) continue
      const granted = address[event] - blocks.address[number]
      const rounded = this.rules.round(blocks.bytes[number])
      if (granted < rounded || this.rules.splits(granted - rounded, rounded, false)) continue
      grantedBytes[number] = granted
      unsure[number] = 0
    }
  }

  /** The last block of unknown size that begins below `address`, or -1. */
  private below(address: number): number {
    const { unknown } = this
    const { blocks } = this.trace
    const next = firstIndex(unknown.length, i => blocks.address[unknown[i]] >= address)
    return next === 0 ? -1 : unknown[next - 1]
  }
}
