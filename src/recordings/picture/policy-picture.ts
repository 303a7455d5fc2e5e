// A policy's part of a picture: its memory on one axis without gaps. The axis has addresses, or positions of memory if
// some memory is at several addresses: then a block in a view may lie in several places.

import { firstIndex } from '../../core/base/binary-search.js'
import { DisjointRanges } from '../trace/placements/disjoint-ranges.js'
import type { Placements } from '../trace/placements/placements.js'
import {
  type AddressRange,
  type BlockParts,
  blockUnits,
  FIRST_IN_PARTS,
  type MemoryRectangle,
  NOWHERE,
  type PictureBlocks,
  type PolicyPicture,
  type ReservedCurve,
  UNIT_BYTES,
} from './picture.js'

/** Where a policy put the blocks of a trace, and what memory it had. */
export interface PlacedPolicy extends Placements {
  readonly policy: string
  readonly label: string
}

/** Memory that was at `address` from event `from` until event `to`. */
interface PlacedMemory {
  readonly address: number
  readonly bytes: number
  /** the position of its first byte among all memory of the policy */
  readonly memory: number
  readonly from: number
  readonly to: number
}

export const NO_PARTS: BlockParts = {
  start: new Int32Array(0),
  at: new Float64Array(0),
  units: new Float64Array(0),
}

/** The picture of a policy. */
export function policyPicture(placed: PlacedPolicy, blocks: PictureBlocks, events: number): PolicyPicture {
  const { policy, label, address, ranges: existing, reservedBytes } = placed
  const reserved = curveOf(reservedBytes ?? new Float64Array(0))
  if (address === null || existing === null || existing.count === 0) {
    return { policy, label, place: null, parts: NO_PARTS, ranges: [], memory: [], reserved }
  }
  const memory = Array.from(existing.address, (_, i): PlacedMemory => {
    const [bytes, position] = [existing.bytes[i], existing.memory[i]]
    return { address: existing.address[i], bytes, memory: position, from: existing.from[i], to: existing.to[i] }
  })
  const firsts = firstMappings(memory)
  const byMemory = firsts.length < memory.length
  const ranges = byMemory ? inOrder(firsts) : squeezed(memory)
  const sorted = [...ranges].sort((a, b) => a.address - b.address)
  const rectangles = (byMemory ? firsts : memory)
    .filter(({ from, to }) => to > from && from < events)
    .map(({ address, bytes, from, to }): MemoryRectangle => {
      const at = unitAt(sorted, address)
      return { at, units: blockUnits(bytes), from, to }
    })
    .sort((a, b) => a.from - b.from || a.at - b.at)
  const places = byMemory ? placesInMemory(address, blocks, memory) : placesByAddress(address, sorted)
  return { policy, label, ...places, ranges, memory: rectangles, reserved }
}

function placesByAddress(address: Float64Array, sorted: readonly AddressRange[]) {
  const place = Int32Array.from(address, each => (Number.isNaN(each) ? NOWHERE : unitAt(sorted, each)))
  return { place, parts: NO_PARTS }
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

/** The first address of all memory: mappings whose memory an earlier one has are left out. */
function firstMappings(memory: readonly PlacedMemory[]): PlacedMemory[] {
  const inTime = [...memory].sort((a, b) => a.from - b.from || b.to - a.to || a.address - b.address)
  const taken = new DisjointRanges<{ address: number; bytes: number }>((_, from, to) => ({
    address: from,
    bytes: to - from,
  }))
  return inTime.filter(({ memory: position, bytes }) => {
    if (taken.overlaps(position, position + bytes)) return false
    taken.add({ address: position, bytes })
    return true
  })
}

/** The axis of positions of memory. */
function inOrder(firsts: readonly PlacedMemory[]): AddressRange[] {
  let at = 0
  return [...firsts]
    .sort((a, b) => a.memory - b.memory)
    .map(({ address, bytes }) => {
      const range = { address, at, units: blockUnits(bytes) }
      at += range.units
      return range
    })
}

/** Places of blocks by the memory behind their addresses when they were allocated. */
function placesInMemory(address: Float64Array, blocks: PictureBlocks, memory: readonly PlacedMemory[]) {
  const sorted = [...memory].sort((a, b) => a.address - b.address)
  const ends: number[] = []
  for (const { address: start, bytes } of sorted) ends.push(Math.max(ends.at(-1) ?? 0, start + bytes))
  const axis = positions(memory)
  const place = new Int32Array(address.length).fill(NOWHERE)
  const parts = { start: [0], at: [] as number[], units: [] as number[] }
  for (let block = 0; block < address.length; block++) {
    if (Number.isNaN(address[block])) continue
    const [first, event] = [address[block], blocks.allocatedAt[block]]
    const end = first + blockUnits(blocks.bytes[block]) * UNIT_BYTES
    const found: { at: number; units: number }[] = []
    for (let i = lastAtOrBelow(sorted, end - 1); i >= 0 && ends[i] > first; i--) {
      const range = sorted[i]
      const [from, to] = [Math.max(first, range.address), Math.min(end, range.address + range.bytes)]
      if (from >= to || range.from > event || range.to <= event) continue
      const at = axis(range.memory + from - range.address)
      found.push({ at, units: Math.ceil((to - from) / UNIT_BYTES) })
    }
    if (found.length === 1) place[block] = found[0].at
    else if (found.length > 1) {
      place[block] = FIRST_IN_PARTS - (parts.start.length - 1)
      for (const { at, units } of found.sort((a, b) => a.at - b.at)) {
        parts.at.push(at)
        parts.units.push(units)
      }
      parts.start.push(parts.at.length)
    }
  }
  const columns = {
    start: Int32Array.from(parts.start),
    at: Float64Array.from(parts.at),
    units: Float64Array.from(parts.units),
  }
  return { place, parts: columns }
}

/** The unit of a position of memory on the axis of `inOrder`. */
function positions(memory: readonly PlacedMemory[]): (position: number) => number {
  const firsts = firstMappings(memory).sort((a, b) => a.memory - b.memory)
  const ranges = inOrder(firsts)
  return position => {
    const index = Math.max(0, firstIndex(firsts.length, i => firsts[i].memory > position) - 1)
    return ranges[index].at + Math.floor((position - firsts[index].memory) / UNIT_BYTES)
  }
}

function lastAtOrBelow(sorted: readonly { readonly address: number }[], address: number): number {
  return firstIndex(sorted.length, i => sorted[i].address > address) - 1
}

/**
 * The unit of an address, in ranges by rising address; NOWHERE outside of them, as for a block whose segment the
 * recording lost.
 */
function unitAt(sorted: readonly AddressRange[], address: number): number {
  const range = sorted[lastAtOrBelow(sorted, address)]
  if (range === undefined || address >= range.address + range.units * UNIT_BYTES) return NOWHERE
  return range.at + Math.floor((address - range.address) / UNIT_BYTES)
}

/** The events at which a column changes, and its values. */
function curveOf(values: Float64Array): ReservedCurve {
  const event: number[] = []
  for (let i = 0; i < values.length; i++) if (i === 0 || values[i] !== values[i - 1]) event.push(i)
  return { event: Int32Array.from(event), bytes: Float64Array.from(event, each => values[each]) }
}
