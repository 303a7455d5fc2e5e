// Small recordings for the texts about recordings.

import { MiB } from '../../core/base/bytes.js'
import { Action, type Trace } from '../trace/trace.js'
import { TraceBuilder, type TraceOrigin } from '../trace/trace-builder.js'

/** A block that a program holds until its end: a size in MiB, and the frames of its stack, innermost first. */
export type HeldBlock = readonly [mebibytes: number, ...frames: (readonly [file: string, line: number, name: string])[]]

/** A recording of a program that allocates these blocks, one each microsecond from `startUs` on. */
export function holding(blocks: readonly HeldBlock[], options: Partial<TraceOrigin> = {}, startUs = 10): Trace {
  const builder = new TraceBuilder()
  for (const [i, [mebibytes, ...frames]] of blocks.entries()) {
    const entries = frames.map(frame => builder.stacks.entry(...frame))
    const stack = entries.length === 0 ? 0 : builder.stacks.number(entries)
    builder.add(Action.alloc, (i + 1) * 1024 * MiB, mebibytes * MiB, 0, startUs + i, stack)
  }
  return builder.build({ file: 'run.pickle', ...options })
}

/** A text with its lines joined, for sentences that are wrapped. */
export function unwrapped(text: string): string {
  return text.replace(/\s+/g, ' ')
}

/** The counts of a recording that is consistent. */
export const NO_CONTRADICTIONS = {
  overlappingBlocks: 0,
  blocksOutside: 0,
  otherSizes: 0,
  otherSegments: 0,
  atEnd: 0,
  wrongSums: 0,
}
