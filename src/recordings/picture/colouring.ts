// The colours of blocks. The eight groups with most bytes at the peak have their own, since a legend of eight can be
// read.

import { firstIndex } from '../../core/base/binary-search.js'
import { formatBytes } from '../../core/base/bytes.js'
import { siteFrames } from '../trace/frames/call-sites.js'
import { lifetimeNames, lifetimeOf } from './block-lives.js'
import { Cell, COLOURS } from './cells.js'
import type { LiveBlocks } from './live-blocks.js'
import { firstAtOrAfter } from './moments.js'
import type { Picture } from './picture.js'
import { siteText } from './stack-text.js'

/** The ways to group blocks. */
export const GROUPINGS = ['stack', 'size', 'stream', 'pool', 'tag', 'step', 'lifetime', 'age'] as const
export type Grouping = (typeof GROUPINGS)[number]

/** A group of blocks in a legend. */
export interface LegendEntry {
  readonly cell: number
  readonly label: string
  /** bytes at the peak */
  readonly bytes: number
  readonly share: number
}

/** The groups of all blocks, and their cells. */
export interface Colouring {
  readonly grouping: Grouping
  /** whether the colours are a scale, and not names */
  readonly isScale: boolean
  /** by block */
  readonly group: Int32Array
  /** by block */
  readonly cellOf: Uint8Array
  /** by group */
  readonly cellOfGroup: Uint8Array
  readonly legend: readonly LegendEntry[]
  readonly labelOf: (group: number) => string
}

/** The groupings that tell blocks of this picture apart. */
export function usefulGroupings(picture: Picture): Grouping[] {
  const { names, steps, stacks } = picture
  return GROUPINGS.filter(grouping => {
    if (grouping === 'stack') return stacks.parent.length > 1
    if (grouping === 'stream' || grouping === 'pool' || grouping === 'tag') return names[grouping].length > 1
    return grouping !== 'step' || steps.length > 1
  })
}

/** The colours for blocks in groups. */
export function colouringOf(live: LiveBlocks, grouping: Grouping): Colouring {
  const { picture } = live
  const { group, count, labelOf, isOrdered } = groupsOf(picture, grouping)
  const atPeak = new Float64Array(count)
  for (const block of live.at(live.peakEvent)) atPeak[group[block]] += picture.blocks.bytes[block]
  const cellOfGroup = new Uint8Array(count).fill(Cell.rest)
  const shown = isOrdered ? Array.from({ length: Math.min(COLOURS, count) }, (_, i) => i) : mostOf(atPeak, COLOURS)
  shown.forEach((each, i) => {
    cellOfGroup[each] = Cell.first + i
  })
  const total = live.peakBytes || 1
  const isUsed = new Uint8Array(count)
  for (const each of group) isUsed[each] = 1
  const legend = shown.flatMap((each, i) =>
    isUsed[each] === 0
      ? []
      : [{ cell: Cell.first + i, label: labelOf(each), bytes: atPeak[each], share: atPeak[each] / total }],
  )
  const restBytes = live.peakBytes - legend.reduce((sum, { bytes }) => sum + bytes, 0)
  for (const each of shown) isUsed[each] = 0
  const others = isUsed.reduce((sum, used) => sum + used, 0)
  if (others > 0) {
    const label = others === 1 ? '1 other' : `${others.toLocaleString('en-US')} others`
    legend.push({ cell: Cell.rest, label, bytes: restBytes, share: restBytes / total })
  }
  const cellOf = new Uint8Array(group.length)
  for (let block = 0; block < cellOf.length; block++) cellOf[block] = cellOfGroup[group[block]]
  return { grouping, isScale: grouping === 'age', group, cellOf, cellOfGroup, legend, labelOf }
}

/** The groups with most bytes, at most `most`: of a million groups that takes a fraction of the time of sorting. */
export function mostOf(bytes: Float64Array, most: number): number[] {
  const found: number[] = []
  for (let group = 0; group < bytes.length; group++) {
    if (bytes[group] === 0 || (found.length === most && bytes[group] <= bytes[found[most - 1]])) continue
    found.splice(
      firstIndex(found.length, at => bytes[found[at]] < bytes[group]),
      0,
      group,
    )
    found.length = Math.min(found.length, most)
  }
  return found
}

interface Groups {
  /** by block */
  readonly group: Int32Array
  readonly count: number
  readonly labelOf: (group: number) => string
  /** whether the groups have colours in their own order, not by their bytes */
  readonly isOrdered: boolean
}

function groupsOf(picture: Picture, grouping: Grouping): Groups {
  const { blocks, names, events, steps } = picture
  switch (grouping) {
    case 'stack':
      return byStack(picture)
    case 'size':
      return numbered(blocks.bytes, bytes => `blocks of ${formatBytes(bytes)}`)
    case 'stream':
    case 'pool':
    case 'tag': {
      const unnamed = grouping === 'pool' ? 'the default pool' : `without a ${grouping}`
      const labels = names[grouping].map(name => name || unnamed)
      return { group: blocks[grouping], count: labels.length, labelOf: i => labels[i], isOrdered: false }
    }
    case 'step': {
      const step = blocks.allocatedAt.map(event => (event < 0 ? 0 : 1 + firstAtOrAfter(steps, event)))
      const label = (number: number) => (number === 0 ? 'before the recording' : `allocated in step ${number}`)
      return { group: step, count: steps.length + 2, labelOf: label, isOrdered: false }
    }
    case 'lifetime': {
      const labels = lifetimeNames(picture)
      const group = new Int32Array(blocks.count)
      for (let block = 0; block < blocks.count; block++) group[block] = lifetimeOf(picture, block)
      return { group, count: labels.length, labelOf: i => labels[i], isOrdered: true }
    }
    case 'age': {
      const slice = blocks.allocatedAt.map(event => Math.floor((Math.max(0, event) * COLOURS) / Math.max(1, events)))
      const label = (i: number) => `allocated in part ${i + 1} of ${COLOURS}`
      return { group: slice, count: COLOURS, labelOf: label, isOrdered: true }
    }
  }
}

function byStack(picture: Picture): Groups {
  const { blocks, stacks } = picture
  const named = siteFrames(stacks, stacks.frames)
  // Several frames have one name, such as those of a backward operator.
  const labels = ['allocated before the recording began', 'without a call stack']
  const numbers = new Map<string, number>()
  const groupOf = stacks.frames.map(frame => {
    const label = siteText(frame)
    const number = numbers.get(label) ?? labels.push(label) - 1
    numbers.set(label, number)
    return number
  })
  const group = blocks.stack.map((node, block) => {
    const frame = named[node]
    return frame >= 0 ? groupOf[frame] : block < blocks.initial ? 0 : 1
  })
  return { group, count: labels.length, labelOf: i => labels[i], isOrdered: false }
}

/** One group for each different value. */
function numbered(values: Float64Array, labelOf: (value: number) => string): Groups {
  const numbers = new Map<number, number>()
  const group = new Int32Array(values.length)
  for (let i = 0; i < values.length; i++) {
    let number = numbers.get(values[i])
    if (number === undefined) {
      number = numbers.size
      numbers.set(values[i], number)
    }
    group[i] = number
  }
  const distinct = [...numbers.keys()]
  return { group, count: distinct.length, labelOf: i => labelOf(distinct[i]), isOrdered: false }
}

/** The groups that a reader wants to see. */
export interface Filter {
  /** cells of the legend; none for all */
  readonly only: readonly number[]
  /** cells of the legend to leave out */
  readonly without: readonly number[]
  /** one group; null for all */
  readonly group: number | null
}

/** By block, 1 for those that a filter and a search find; null for all. */
export function chosenBlocks(
  { cellOf, group }: Colouring,
  filter: Filter,
  isFound: Uint8Array | null,
): Uint8Array | null {
  const { only, without } = filter
  if (only.length === 0 && without.length === 0 && filter.group === null) return isFound
  return cellOf.map((cell, block) => {
    const isShown = (only.length === 0 || only.includes(cell)) && !without.includes(cell)
    return isShown && (filter.group ?? group[block]) === group[block] && isFound?.[block] !== 0 ? 1 : 0
  })
}

/** The cells of `colouring`; blocks that were not chosen are faded. */
export function cellsOf({ cellOf }: Colouring, chosen: Uint8Array | null): Uint8Array {
  return chosen === null ? cellOf : cellOf.map((cell, block) => (chosen[block] === 1 ? cell : Cell.faded))
}
