// The rows of an icicle for drawing: one of its boxes is as wide as the whole, and a chain of single calls is one box.

import { type Box, keyOf } from './icicle.js'

/** Names in one box: no window has room for more. */
const MOST_NAMES = 40

/** A call, or a chain of calls that each make just the next one, as one box. */
export interface ShownBox<Call extends Box> {
  readonly row: number
  /** left edge and width as shares of the root's width */
  readonly left: number
  readonly width: number
  /** the outermost first */
  readonly calls: readonly Call[]
  /** the number of the first call among all boxes */
  readonly first: number
  /** the shown box of the caller; -1 for the first row */
  readonly caller: number
}

/**
 * The part of an icicle that lies in the box `root`, without the callers of that. Chains of calls are one box. A chain
 * that begins at the root has a box for each call, since a zoom asks for them.
 */
export function shownBoxes<Call extends Box>(boxes: readonly Call[], root: number): ShownBox<Call>[] {
  const whole = boxes[root]
  if (whole === undefined) return []
  const shown: (ShownBox<Call> & { readonly calls: Call[] })[] = []
  /** by depth below the root: the shown box of the last call there */
  const last: number[] = []
  let isChain = false
  let isRootChain = root > 0
  for (let i = root; i < boxes.length && (i === root || boxes[i].depth > whole.depth); i++) {
    const call = boxes[i]
    const depth = call.depth - whole.depth
    if (isChain && !isRootChain) shown[last[depth - 1]].calls.push(call)
    else {
      const caller = depth === 0 ? -1 : last[depth - 1]
      const left = (call.left - whole.left) / whole.width
      shown.push({
        row: caller < 0 ? 0 : shown[caller].row + 1,
        left,
        width: call.width / whole.width,
        calls: [call],
        first: i,
        caller,
      })
    }
    last[depth] = isChain && !isRootChain ? last[depth - 1] : shown.length - 1
    // A call inside that is as wide stands alone there. A chain begins below the box of all calls.
    const next = boxes[i + 1]
    isChain = i > 0 && next?.depth === call.depth + 1 && next.width === call.width
    isRootChain &&= isChain
  }
  return shown
}

/** The keys of the calls down to a box, without that of all calls. */
export function pathTo(boxes: readonly Box[], index: number): string[] {
  const path: string[] = []
  for (let i = index, depth = boxes[index].depth; depth > 0; i--) {
    if (boxes[i].depth !== depth) continue
    path.push(keyOf(boxes[i]))
    depth--
  }
  return path.reverse()
}

/** The boxes on a path, from that of all calls to the last one that exists. */
export function boxesOn(boxes: readonly Box[], path: readonly string[]): number[] {
  if (boxes.length === 0) return []
  const found = [0]
  for (let i = 1; i < boxes.length && found.length <= path.length; i++) {
    const { depth } = boxes[i]
    if (depth < found.length) break
    if (depth === found.length && keyOf(boxes[i]) === path[depth - 1]) found.push(i)
  }
  return found
}

/**
 * The text of a box that takes at most `room`, or nothing. The name of a call is never cut: of a chain, names
 * in the middle are left out first.
 */
export function labelOf(calls: readonly Pick<Box, 'label'>[], room: number, widthOf: (text: string) => number): string {
  const [first, last] = [calls[0].label, calls[calls.length - 1].label]
  const count = `${calls.length.toLocaleString('en-US')} calls`
  const chain = [
    ...(calls.length <= MOST_NAMES ? [`${count}: ${calls.map(({ label }) => label).join(' › ')}`] : []),
    ...(calls.length > 2 ? [`${count}: ${first} › … › ${last}`] : []),
    `${count}: … › ${last}`,
    `… › ${last}`,
    count,
  ]
  const texts = calls.length === 1 ? [first] : chain
  return texts.find(text => widthOf(text) <= room) ?? ''
}
