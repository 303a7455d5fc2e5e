// The holders of a set of blocks: as a table of groups, and as an icicle of call stacks.

import { formatBytes } from '../../core/base/bytes.js'
import { lifetimeNames, lifetimeOf } from './block-lives.js'
import { Cell } from './cells.js'
import { type Colouring, mostOf } from './colouring.js'
import { Icicle, type IcicleBoxes, type Step } from './drawing/icicle.js'
import type { Picture, PictureFrame } from './picture.js'
import { callsOf, callText, linesOf } from './stack-text.js'

/** A group of blocks, as a row of a table. */
export interface HolderRow {
  readonly group: number
  readonly label: string
  readonly cell: number
  readonly bytes: number
  readonly blocks: number
  /** bytes more than in the set that it is compared with */
  readonly grown: number
}

/** The groups of `list` by bytes, and those of `before` that are gone; groups beyond `most` are left out. */
export function holderRows(
  { blocks }: Picture,
  colouring: Colouring,
  list: Int32Array,
  before: Int32Array | null,
  most: number,
): { rows: HolderRow[]; groups: number } {
  const { group, cellOfGroup, labelOf } = colouring
  const [bytes, earlier] = [new Float64Array(cellOfGroup.length), new Float64Array(cellOfGroup.length)]
  const count = new Int32Array(cellOfGroup.length)
  for (const block of list) {
    bytes[group[block]] += blocks.bytes[block]
    count[group[block]]++
  }
  for (const block of before ?? []) earlier[group[block]] += blocks.bytes[block]
  const held = mostOf(bytes, most)
  const gone = mostOf(
    earlier.map((each, i) => (count[i] === 0 ? each : 0)),
    most - held.length,
  )
  const rows = [...held, ...gone].map(each => ({
    group: each,
    label: labelOf(each),
    cell: cellOfGroup[each],
    bytes: bytes[each],
    blocks: count[each],
    grown: before === null ? 0 : bytes[each] - earlier[each],
  }))
  return { rows, groups: earlier.reduce((sum, each, i) => sum + (each > 0 || count[i] > 0 ? 1 : 0), 0) }
}

/** Call stacks of an icicle with calls of their own: so many, 20 calls deep, take about half a second. */
const MOST_STACKS = 20_000

/** Everything that the blocks below a box hold. */
interface HeldSum {
  bytes: number
  blocks: number
  /** the cell of all its blocks; Cell.rest if they have several */
  cell: number
}

/** An icicle of calls, each with everything that it and the calls below it hold. */
export type HeldIcicle = IcicleBoxes<Readonly<HeldSum>>

/** How an icicle is made. */
export interface IcicleOptions {
  /** the innermost call first */
  readonly inverted: boolean
  /** with the allocator's and the dispatcher's calls */
  readonly machinery: boolean
  /** the path of calls whose inner calls are wanted in detail, as keys; none for all calls alike */
  readonly under: readonly string[]
}

/** The boxes of an icicle. Without call stacks it shows lifetimes, and sizes below them. */
export function icicleOf(picture: Picture, colouring: Colouring, list: Int32Array, options: IcicleOptions): HeldIcicle {
  const { blocks, stacks } = picture
  const hasStacks = stacks.parent.length > 1
  const icicle = new Icicle<HeldSum>(noBlocks, sum => sum.bytes)
  const sums = new Map<number, HeldSum>()
  const likeOf = alike(picture)
  for (const block of list) {
    const key = hasStacks ? blocks.stack[block] || (block < blocks.initial ? -1 : 0) : likeOf(block)
    const sum = sums.get(key) ?? noBlocks()
    sums.set(key, sum)
    const cell = Math.max(Cell.rest, colouring.cellOf[block])
    join(sum, { bytes: blocks.bytes[block], blocks: 1, cell })
  }
  const pathOf = hasStacks ? stackPaths(picture, options) : (block: number) => sizePath(picture, block)
  const most = sums.size <= MOST_STACKS ? [...sums] : [...sums].sort(([, a], [, b]) => b.bytes - a.bytes)
  for (const [key, sum] of most.slice(0, MOST_STACKS)) icicle.add(pathOf(key), whole => join(whole, sum))
  const others = most.slice(MOST_STACKS)
  const path = [stepOf(`${others.length.toLocaleString('en-US')} stacks that hold less`, '')]
  for (const [, sum] of others) icicle.add(path, whole => join(whole, sum))
  return icicle.boxes(options.under)
}

function noBlocks(): HeldSum {
  return { bytes: 0, blocks: 0, cell: Cell.rest }
}

function join(whole: HeldSum, { bytes, blocks, cell }: HeldSum): void {
  whole.cell = whole.blocks === 0 || whole.cell === cell ? cell : Cell.rest
  whole.bytes += bytes
  whole.blocks += blocks
}

function stepOf(label: string, place: string): Step {
  return { id: `${label}\n${place}`, label, place }
}

/** The path of each stack, by its node; all paths share the steps of their frames. */
function stackPaths(
  { stacks }: Picture,
  { inverted, machinery }: Omit<IcicleOptions, 'under'>,
): (node: number) => Step[] {
  const steps = new Map<PictureFrame, Step>()
  const stepOfFrame = (line: PictureFrame) => {
    const step = steps.get(line) ?? stepOf(line.name, callText(line))
    steps.set(line, step)
    return step
  }
  return node => {
    if (node < 0) return [stepOf('before the recording', '')]
    if (node === 0) return [stepOf('no call stack', '')]
    const path = callsOf(linesOf(stacks, node), machinery).map(stepOfFrame)
    return inverted ? path : path.reverse()
  }
}

/** For each block the first one seen of its size and lifetime: so one path stands for all of them. */
function alike(picture: Picture): (block: number) => number {
  const firsts = lifetimeNames(picture).map(() => new Map<number, number>())
  return block => {
    const first = firsts[lifetimeOf(picture, block)]
    const bytes = picture.blocks.bytes[block]
    const known = first.get(bytes)
    if (known === undefined) first.set(bytes, block)
    return known ?? block
  }
}

function sizePath(picture: Picture, block: number): Step[] {
  const lifetime = lifetimeNames(picture)[lifetimeOf(picture, block)]
  return [
    stepOf(lifetime, 'how long the blocks live'),
    stepOf(formatBytes(picture.blocks.bytes[block]), 'size of each block'),
  ]
}
