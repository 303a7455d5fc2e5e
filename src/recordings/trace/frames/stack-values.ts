// What the frames of call stacks tell: each frame is looked at once, and each stack takes one step from its caller's.

import type { CallStacks, Frame } from '../trace.js'

/** By number of a stack: the value of its innermost frame that has one; 0 for none. */
export function stackValues(
  { count, node, parent, frame, frames }: CallStacks,
  tells: (frame: Frame) => number,
): Uint8Array {
  const ofFrame = frames.map(tells)
  const ofNode = new Uint8Array(parent.length)
  // Callers have lower nodes.
  for (let at = 1; at < parent.length; at++) ofNode[at] = ofFrame[frame[at]] || ofNode[parent[at]]
  return Uint8Array.from({ length: count }, (_, stack) => ofNode[node[stack]])
}
