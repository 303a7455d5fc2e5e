// The holders of a set of blocks: as a table of groups, and as an icicle of call stacks.

import { formatBytes } from '../base/bytes.js'
import { lifetimeNames, lifetimeOf } from './block-lives.js'
import { Cell } from './cells.js'
import type { Colouring } from './colouring.js'
import type { Picture } from './picture.js'
import { isMachinery, linesOf, siteText } from './stack-text.js'

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
  const sums = new Map<number, { bytes: number; blocks: number; before: number }>()
  const entry = (block: number) => {
    const group = colouring.group[block]
    let sum = sums.get(group)
    if (sum === undefined) {
      sum = { bytes: 0, blocks: 0, before: 0 }
      sums.set(group, sum)
    }
    return sum
  }
  for (const block of list) {
    const sum = entry(block)
    sum.bytes += blocks.bytes[block]
    sum.blocks++
  }
  if (before !== null) for (const block of before) entry(block).before += blocks.bytes[block]
  const rows = [...sums]
    .sort(([, a], [, b]) => b.bytes - a.bytes || b.before - a.before)
    .slice(0, most)
    .map(([group, sum]) => ({
      group,
      label: colouring.labelOf(group),
      cell: colouring.cellOfGroup[group],
      bytes: sum.bytes,
      blocks: sum.blocks,
      grown: before === null ? 0 : sum.bytes - sum.before,
    }))
  return { rows, groups: sums.size }
}

/** A box of an icicle: everything that a call and the calls below it hold. */
export interface IcicleBox {
  readonly depth: number
  /** left edge and width as shares of the whole */
  readonly left: number
  readonly width: number
  readonly label: string
  /** where the call is, for the box's description */
  readonly place: string
  readonly bytes: number
  readonly blocks: number
  /** the cell of all its blocks; Cell.rest if they have several */
  readonly cell: number
}

/** How an icicle is made. */
export interface IcicleOptions {
  /** the innermost call first */
  readonly inverted: boolean
  /** with the allocator's and the dispatcher's calls */
  readonly machinery: boolean
}

/** A box narrower than this share of the whole is left out. */
const LEAST_SHARE = 1 / 1500

interface Node {
  readonly label: string
  readonly place: string
  readonly children: Map<string, Node>
  bytes: number
  blocks: number
  cell: number
}

/** The boxes of an icicle, each before those below it. Without call stacks it shows lifetimes, and sizes below them. */
export function icicleOf(
  picture: Picture,
  colouring: Colouring,
  list: Int32Array,
  options: IcicleOptions,
): IcicleBox[] {
  const { blocks, stacks } = picture
  const hasStacks = stacks.parent.length > 1
  const root = newNode('all', '')
  const paths = new Map<number, readonly [string, string][]>()
  for (const block of list) {
    const key = hasStacks ? blocks.stack[block] || (block < blocks.initial ? -1 : 0) : block
    let path = hasStacks ? paths.get(key) : undefined
    if (path === undefined) {
      path = hasStacks ? stackPath(picture, key, options) : sizePath(picture, block)
      if (hasStacks) paths.set(key, path)
    }
    const cell = colouring.cellOf[block]
    let node = add(root, blocks.bytes[block], cell)
    for (const [label, place] of path) {
      const id = `${label}\n${place}`
      let child = node.children.get(id)
      if (child === undefined) {
        child = newNode(label, place)
        node.children.set(id, child)
      }
      node = add(child, blocks.bytes[block], cell)
    }
  }
  const boxes: IcicleBox[] = []
  const place = (node: Node, depth: number, left: number) => {
    const { label, place: where, bytes, blocks: count, cell } = node
    const width = bytes / root.bytes
    if (width < LEAST_SHARE) return
    boxes.push({ depth, left, width, label, place: where, bytes, blocks: count, cell: Math.max(Cell.rest, cell) })
    let at = left
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      place(child, depth + 1, at)
      at += child.bytes / root.bytes
    }
  }
  if (root.bytes > 0) place(root, 0, 0)
  return boxes
}

function newNode(label: string, place: string): Node {
  return { label, place, children: new Map(), bytes: 0, blocks: 0, cell: 0 }
}

function add(node: Node, bytes: number, cell: number): Node {
  node.cell = node.blocks === 0 || node.cell === cell ? cell : Cell.rest
  node.bytes += bytes
  node.blocks++
  return node
}

function stackPath({ stacks }: Picture, node: number, { inverted, machinery }: IcicleOptions): [string, string][] {
  if (node < 0) return [['before the recording', '']]
  if (node === 0) return [['no call stack', '']]
  const lines = linesOf(stacks, node)
  const own = machinery ? lines : lines.filter(line => !isMachinery(line))
  const shown = own.length > 0 ? own : lines
  const path = shown.map((line): [string, string] => [line.name, siteText(line)])
  // A call that recurs directly is one box.
  const folded = path.filter(([name], i) => i === 0 || path[i - 1][0] !== name)
  return inverted ? folded : folded.reverse()
}

function sizePath(picture: Picture, block: number): [string, string][] {
  const lifetime = lifetimeNames(picture)[lifetimeOf(picture, block)]
  return [
    [lifetime, 'how long the blocks live'],
    [formatBytes(picture.blocks.bytes[block]), 'size of each block'],
  ]
}
