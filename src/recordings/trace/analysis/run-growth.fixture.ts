// Recordings that allocate blocks and keep them, for tests of growth.

import type { Trace } from '../trace.js'
import { Action } from '../trace.js'
import { TraceBuilder, type TraceOrigin } from '../trace-builder.js'

/** A block: its bytes, and the frames of its call stack as `file:line function`, innermost first. */
export type HeldBlock = readonly [bytes: number, ...frames: string[]]

interface Held extends Partial<TraceOrigin> {
  /** memory taken from the device before the blocks */
  readonly reservedBytes?: number
  /** requests that fail after the blocks */
  readonly failed?: readonly HeldBlock[]
}

/** A recording with an event each microsecond. */
export function holding(blocks: readonly HeldBlock[], { reservedBytes, failed = [], ...origin }: Held = {}): Trace {
  const builder = new TraceBuilder()
  const add = (action: number, address: number, [bytes, ...frames]: HeldBlock) => {
    const entries = frames.map(frame => {
      const [, file, line, name] = /^(.*):(\d+) (.*)$/s.exec(frame)!
      return builder.stacks.entry(file, Number(line), name)
    })
    builder.add(action, address, bytes, 0, builder.events, builder.stacks.number(entries))
  }
  if (reservedBytes !== undefined) add(Action.segmentAlloc, 2 ** 40, [reservedBytes])
  for (const [i, block] of blocks.entries()) add(Action.alloc, 2 ** 40 + i * 2 ** 30, block)
  for (const request of failed) add(Action.outOfMemory, NaN, request)
  return builder.build({ file: 'run.pickle', ...origin })
}
