// The places of blocks as positions in lists of freed places. An allocator gives the place of a freed block to a later
// block of the same size, and often it takes the latest. So nearly all places become small numbers, which pack into a
// fifth of the bytes and less.

import { Action } from '../../trace/trace.js'
import type { Picture } from '../picture.js'
import { damaged } from './byte-planes.js'

/** Positions fit in a byte. */
const MOST_POSITION = 255

/** The places that blocks of each size left, the latest last. */
class FreedPlaces {
  private readonly bySize = new Map<number, number[]>()

  give(bytes: number, place: number): void {
    const list = this.bySize.get(bytes)
    if (list === undefined) this.bySize.set(bytes, [place])
    else if (list.push(place) > 2 * MOST_POSITION) list.splice(0, MOST_POSITION)
  }

  /** Takes a place out. Its position counts from 1, the latest place; 0 for an unknown one. */
  take(bytes: number, place: number): number {
    const list = this.bySize.get(bytes)
    if (list === undefined) return 0
    const last = Math.max(0, list.length - MOST_POSITION)
    for (let index = list.length - 1; index >= last; index--) {
      if (list[index] !== place) continue
      const position = list.length - index
      list.splice(index, 1)
      return position
    }
    return 0
  }

  /** The place at a position that `take` told. */
  takeAt(bytes: number, position: number): number | undefined {
    const list = this.bySize.get(bytes)
    return list === undefined || position > list.length ? undefined : list.splice(list.length - position, 1)[0]
  }
}

/** The events of blocks, and their sizes. */
export type BlockEvents = Pick<Picture, 'action' | 'block'> & {
  readonly blocks: Pick<Picture['blocks'], 'count' | 'initial' | 'bytes'>
}

/** Places of blocks in two columns. */
export interface ReusedPlaces {
  /** of each block that an event allocates: its position, or 0 */
  readonly position: ArrayLike<number>
  /** the places of the initial blocks, and of those without a position */
  readonly other: ArrayLike<number>
}

/** The places of blocks as positions. */
export function asReused({ action, block, blocks }: BlockEvents, place: ArrayLike<number>) {
  const freed = new FreedPlaces()
  const position = new Uint8Array(blocks.count - blocks.initial)
  const other: number[] = []
  for (let i = 0; i < blocks.initial; i++) other.push(place[i])
  for (let event = 0; event < action.length; event++) {
    const number = block[event]
    if (number < 0) continue
    const bytes = blocks.bytes[number]
    if (action[event] === Action.freeRequested) freed.give(bytes, place[number])
    else {
      const found = freed.take(bytes, place[number])
      position[number - blocks.initial] = found
      if (found === 0) other.push(place[number])
    }
  }
  return { position, other } satisfies ReusedPlaces
}

/** The inverse of `asReused`. Throws FormatError for positions that no place was left at. */
export function fromReused({ action, block, blocks }: BlockEvents, { position, other }: ReusedPlaces): Float64Array {
  const freed = new FreedPlaces()
  const place = new Float64Array(blocks.count)
  const next = () => {
    if (used === other.length) throw damaged('places')
    return other[used++]
  }
  let used = 0
  for (let i = 0; i < blocks.initial; i++) place[i] = next()
  for (let event = 0; event < action.length; event++) {
    const number = block[event]
    if (number < 0) continue
    const bytes = blocks.bytes[number]
    if (action[event] === Action.freeRequested) {
      freed.give(bytes, place[number])
      continue
    }
    const at = position[number - blocks.initial]
    const found = at === 0 ? next() : freed.takeAt(bytes, at)
    if (found === undefined) throw damaged('positions')
    place[number] = found
  }
  if (used !== other.length) throw damaged('places')
  return place
}
