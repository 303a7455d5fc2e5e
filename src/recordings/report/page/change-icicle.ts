// The icicle of the changes between two recordings. A box is as wide as the bytes that grew and shrank below it, so
// that changes that cancel each other are seen. Its colour tells the sign of their sum.

import { Icicle, type IcicleBoxes, LEAST_SHARE, type Step } from '../../picture/drawing/icicle.js'
import type { PictureFrame } from '../../picture/picture.js'
import { callsOf, callText } from '../../picture/stack-text.js'

/** The change of one call stack. */
export interface StackChange {
  /** the innermost first; none if no stack was recorded */
  readonly frames: readonly PictureFrame[]
  /** bytes more than before */
  readonly bytes: number
}

/** A page cannot find more boxes when one is zoomed. So there are boxes for a zoom by as much. */
const ZOOM = 10

interface ChangeSum {
  grownBytes: number
  shrunkBytes: number
}

/** An icicle of calls, each with everything that changed in it and in the calls below it. */
export type ChangeIcicle = IcicleBoxes<Readonly<ChangeSum>>

/** The icicle, outermost calls first. */
export function changeIcicle(changes: readonly StackChange[]): ChangeIcicle {
  const icicle = new Icicle<ChangeSum>(
    () => ({ grownBytes: 0, shrunkBytes: 0 }),
    ({ grownBytes, shrunkBytes }) => grownBytes + shrunkBytes,
  )
  for (const { frames, bytes } of changes) {
    icicle.add(pathOf(frames), sum => {
      if (bytes > 0) sum.grownBytes += bytes
      else sum.shrunkBytes -= bytes
    })
  }
  return icicle.boxes([], LEAST_SHARE / ZOOM)
}

/** The calls of the program, the outermost first. */
function pathOf(frames: readonly PictureFrame[]): Step[] {
  if (frames.length === 0) return [{ id: '', label: 'no call stack', place: '' }]
  const calls = callsOf(frames, false).reverse()
  // Lines move when a program changes, so they do not tell calls apart.
  return calls.map(call => ({
    id: `${call.name}\n${call.file}`,
    label: call.name,
    place: callText(call).replace(/:\d+ /, ' '),
  }))
}
