// The same allocation in two recordings of a program that ran with two sizes. Steps are matched in their order, and
// within a step the allocations are aligned: both in their order, with equal call stacks, as few left out as possible.

import { stepsOf } from '../analysis/steps.js'
import { addTo } from '../groups.js'
import type { Trace } from '../trace.js'

/** No block of the other recording is the same. */
export const UNMATCHED = -1

/** The alignment follows allocations that are shifted by at most this number of others. */
const MOST_SHIFT = 64
/** Of one step: more would take seconds and hundreds of megabytes. */
const MOST_CELLS = 2 ** 25

const LEFT_OUT = 2
const UNLIKELY = 3
/** More than both left out: such a pair is on a path only where the band leaves no other one, and counts as none. */
const DIFFERENT = 2 * LEFT_OUT + 1

const [PAIR, SKIP_FIRST, SKIP_SECOND] = [0, 1, 2]

/** A recording. Both recordings number their call stacks alike. */
export interface Comparable {
  readonly trace: Trace
  /** the size that the program ran with */
  readonly size: number
  /** by number of the trace's call stacks */
  readonly stacks: readonly number[]
}

/** By block of `second`: the block of `first` that is the same allocation, or UNMATCHED. */
export function matchBlocks(first: Comparable, second: Comparable): Int32Array {
  const matched = new Int32Array(second.trace.blocks.count).fill(UNMATCHED)
  matchInitial(first.trace, second.trace, matched)
  const [ends, others] = [partsOf(first.trace), partsOf(second.trace)]
  let [from, otherFrom] = [first.trace.blocks.initial, second.trace.blocks.initial]
  for (let part = 0; part < Math.min(ends.length, others.length); part++) {
    align(first, [from, ends[part]], second, [otherFrom, others[part]], matched)
    from = ends[part]
    otherFrom = others[part]
  }
  return matched
}

/** Blocks from before the recordings have no order: those of equal bytes are the same. */
function matchInitial({ blocks }: Trace, { blocks: others }: Trace, matched: Int32Array): void {
  const bySize = new Map<number, number[]>()
  for (let number = blocks.initial - 1; number >= 0; number--) {
    addTo(bySize, blocks.bytes[number], number)
  }
  for (let number = 0; number < others.initial; number++) {
    matched[number] = bySize.get(others.bytes[number])?.pop() ?? UNMATCHED
  }
}

/** The numbers of the blocks after each step, and after the rest. */
function partsOf(trace: Trace): number[] {
  const { blocks } = trace
  const ends: number[] = []
  let number = blocks.initial
  for (const { to } of stepsOf(trace)?.steps ?? []) {
    while (number < blocks.count && blocks.allocatedAt[number] < to) number++
    ends.push(number)
  }
  return [...ends, blocks.count]
}

type Part = readonly [from: number, end: number]

function align(first: Comparable, part: Part, second: Comparable, otherPart: Part, matched: Int32Array): void {
  const count = part[1] - part[0]
  const otherCount = otherPart[1] - otherPart[0]
  if (count === 0 || otherCount === 0) return
  const cost = costsOf(first, part[0], second, otherPart[0])
  if (count === otherCount && isSameOrder(count, cost)) {
    for (let i = 0; i < count; i++) matched[otherPart[0] + i] = part[0] + i
    return
  }
  const least = Math.min(0, otherCount - count)
  const spread = Math.abs(otherCount - count)
  const shift = Math.min(MOST_SHIFT, Math.floor((MOST_CELLS / (count + 1) - spread - 1) / 2))
  if (shift < 0) return
  const band = { from: least - shift, width: spread + 2 * shift + 1 }
  const path = cheapestPath(count, otherCount, band, cost)
  let [i, j] = [count, otherCount]
  while (i > 0 || j > 0) {
    const step = path[i * band.width + (j - i - band.from)]
    if (step === PAIR) {
      i--
      j--
      if (cost(i, j) < DIFFERENT) matched[otherPart[0] + j] = part[0] + i
    } else if (step === SKIP_FIRST) i--
    else j--
  }
}

type Cost = (i: number, j: number) => number

/** The cost of taking allocation `i` of one part and `j` of the other for the same. */
function costsOf(first: Comparable, from: number, second: Comparable, otherFrom: number): Cost {
  const { blocks } = first.trace
  const { blocks: others } = second.trace
  return (i, j) => {
    const [number, other] = [from + i, otherFrom + j]
    if (first.stacks[blocks.stack[number]] !== second.stacks[others.stack[other]]) return DIFFERENT
    const [bytes, otherBytes] = [blocks.bytes[number], others.bytes[other]]
    if (bytes === otherBytes || Math.abs((bytes * second.size) / first.size - otherBytes) < 1) return 0
    return isPlausible(first, bytes, second, otherBytes) ? 1 : UNLIKELY
  }
}

/** Whether two byte counts differ by at most the square of the two sizes. */
export function isPlausible(first: Comparable, bytes: number, second: Comparable, otherBytes: number): boolean {
  const growth = Math.max(second.size / first.size, first.size / second.size) ** 2
  return bytes <= otherBytes * growth && otherBytes <= bytes * growth
}

function isSameOrder(count: number, cost: Cost): boolean {
  for (let i = 0; i < count; i++) if (cost(i, i) >= UNLIKELY) return false
  return true
}

/** By pair of prefixes within a band of differences of their lengths: the last step of the cheapest alignment. */
function cheapestPath(
  count: number,
  otherCount: number,
  { from, width }: { readonly from: number; readonly width: number },
  cost: Cost,
): Uint8Array {
  const path = new Uint8Array((count + 1) * width)
  let above = new Float64Array(width).fill(Infinity)
  let row = new Float64Array(width)
  for (let i = 0; i <= count; i++) {
    row.fill(Infinity)
    for (let at = 0; at < width; at++) {
      const j = i + from + at
      if (j < 0 || j > otherCount) continue
      if (i === 0 && j === 0) {
        row[at] = 0
        continue
      }
      const paired = i > 0 && j > 0 ? above[at] + cost(i - 1, j - 1) : Infinity
      const withoutFirst = i > 0 && at + 1 < width ? above[at + 1] + LEFT_OUT : Infinity
      const withoutSecond = j > 0 && at > 0 ? row[at - 1] + LEFT_OUT : Infinity
      const best = Math.min(paired, withoutFirst, withoutSecond)
      row[at] = best
      path[i * width + at] = best === paired ? PAIR : best === withoutFirst ? SKIP_FIRST : SKIP_SECOND
    }
    ;[above, row] = [row, above]
  }
  return path
}
