// The moments that a picture shows: for each column the event with most bytes in use, so that no peak is lost.

import { firstIndex } from '../../core/base/binary-search.js'
import type { Picture } from './picture.js'
import type { Pyramid } from './pyramid.js'

/** The unit of the horizontal axis: events, or microseconds since the first event. */
export type Axis = 'event' | 'time'

/** A part of the axis, and the pixels it is shown on. */
export interface View {
  readonly axis: Axis
  readonly from: number
  readonly to: number
  /** in pixels */
  readonly width: number
}

/** Columns of one or two pixels, from left to right. */
export interface Moments {
  readonly count: number
  /** the event that a column shows; -1 for nothing */
  readonly event: Int32Array
  /** first pixel of a column; the last entry is the end of the last column */
  readonly left: Int32Array
}

/** The least bin in microseconds. */
const LEAST_TIME_BIN = 2 ** -4

/**
 * The moments of a view. Columns are bins whose width is a power of two, counted from the start of the axis: they do
 * not change when the view moves.
 */
export function momentsOf(picture: Picture, pyramid: Pyramid, { axis, from, to, width }: View): Moments {
  const least = axis === 'event' ? 1 : LEAST_TIME_BIN
  const size = Math.max(least, 2 ** Math.ceil(Math.log2((to - from) / width)))
  const [first, end] = [Math.floor(from / size), Math.ceil(to / size)]
  const pixel = (value: number) => Math.min(width, Math.max(0, Math.round(((value - from) * width) / (to - from))))
  const event = new Int32Array(end - first)
  const left = new Int32Array(end - first + 1)
  let count = 0
  for (let bin = first; bin < end; bin++) {
    const start = pixel(bin * size)
    const stop = pixel((bin + 1) * size)
    if (stop <= start) continue
    event[count] = axis === 'event' ? eventIn(bin * size, size, pyramid) : timeIn(bin * size, size, picture, pyramid)
    left[count++] = start
    left[count] = stop
  }
  return { count, event: event.subarray(0, count), left: left.subarray(0, count + 1) }
}

function eventIn(start: number, size: number, pyramid: Pyramid): number {
  return pyramid.most(start, start + size)
}

function timeIn(start: number, size: number, { timeUs, events }: Picture, pyramid: Pyramid): number {
  const from = firstAtOrAfter(timeUs, start)
  const to = firstAtOrAfter(timeUs, start + size)
  if (to > from) return pyramid.most(from, to)
  return from === events ? -1 : from - 1 // nothing changed since the event before
}

/** The first index with a value of at least `least`, in rising values. */
export function firstAtOrAfter(rising: Float64Array | Int32Array, least: number): number {
  return firstIndex(rising.length, i => rising[i] >= least)
}
