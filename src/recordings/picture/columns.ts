// The figures of a picture's columns: what was in use and reserved at their moments.

import type { LiveBlocks } from './live-blocks.js'
import { firstAtOrAfter, type Moments } from './moments.js'
import type { PolicyPicture } from './picture.js'

/** Bytes in use at the moment of each column. */
export function inUseIn({ inUse }: LiveBlocks, { event }: Moments): Float64Array {
  return Float64Array.from(event, each => (each < 0 ? 0 : inUse[each]))
}

/** The most bytes that a policy reserved from the last column's moment to that of each, so that no peak is lost. */
export function reservedIn({ reserved: { event, bytes } }: PolicyPicture, moments: Moments): Float64Array {
  return Float64Array.from(moments.event, (at, column) => {
    if (at < 0) return Number.NaN
    const before = column === 0 ? -1 : moments.event[column - 1]
    let i = firstAtOrAfter(event, at + 1) - 1
    let most = i < 0 ? 0 : bytes[i]
    for (; i >= 0 && event[i] > before; i--) most = Math.max(most, bytes[i])
    return most
  })
}

const LADDER = [1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8]

/** A round number of bytes above all columns, so that panning changes the scale seldom. */
export function roundTop(columns: Float64Array): number {
  const most = columns.reduce((top, bytes) => Math.max(top, bytes), 0)
  if (most <= 0) return 1
  const wanted = most * 1.02
  const unit = 2 ** (10 * Math.floor(Math.log2(wanted) / 10))
  const power = 10 ** Math.floor(Math.log10(wanted / unit))
  const step = LADDER.find(each => each * power * unit >= wanted) ?? 10
  return step * power * unit
}
