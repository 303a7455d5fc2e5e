// The blocks that keep idle memory from being given back: a segment goes back as a whole, so one small block in it
// keeps the rest.
//
// Segments count if over half of their memory is idle; below that, more is used than wasted. An idle piece counts for
// the smaller one of the blocks beside it, since a small block in a large segment splits it.

import { placeKey } from '../failures/holders.js'
import type { IdlePiece, MemoryAt } from '../failures/memory-at.js'
import { CallSites } from '../frames/call-sites.js'
import type { Segment, Trace } from '../trace.js'

/** Blocks of one call site that keep idle memory. */
export interface Pin {
  /** the line of the program, as `file:line function`; null without a call stack */
  readonly site: string | null
  /** whether the blocks are from before the recording, without a call stack */
  readonly before: boolean
  /** how many blocks */
  readonly blocks: number
  /** their bytes, as requested */
  readonly bytes: number
  /** the idle bytes that they keep */
  readonly idleBytes: number
  /** in how many segments */
  readonly segments: number
  /** whether some of these are expandable: PyTorch can give back whole pages of them */
  readonly expandable: boolean
}

/** Idle memory at one moment. */
export interface IdleMemory {
  readonly idleBytes: number
  readonly pieces: number
  readonly largestBytes: number
  /** segments of the default pool that no block uses, and their bytes: the program can give them back */
  readonly wholeSegments: number
  readonly wholeBytes: number
  /** the idle bytes of private pools, such as those of CUDA graphs: they serve only these */
  readonly privateBytes: number
  /** the blocks that keep segments with over half of their memory idle, most idle bytes first */
  readonly pins: readonly Pin[]
}

export function idleMemoryOf(trace: Trace, { idle }: MemoryAt): IdleMemory {
  const whole = idle.filter(({ before, behind, segment }) => before < 0 && behind < 0 && segment.pool === 0)
  const sum = (pieces: readonly IdlePiece[]) => pieces.reduce((total, { bytes }) => total + bytes, 0)
  return {
    idleBytes: sum(idle),
    pieces: idle.length,
    largestBytes: idle.reduce((most, { bytes }) => Math.max(most, bytes), 0),
    wholeSegments: whole.length,
    wholeBytes: sum(whole),
    privateBytes: sum(idle.filter(({ segment }) => segment.pool > 0)),
    pins: pinsOf(trace, idle),
  }
}

interface Pinning {
  readonly site: string | null
  readonly before: boolean
  readonly blocks: Set<number>
  readonly segments: Set<Segment>
  idleBytes: number
}

function pinsOf(trace: Trace, idle: readonly IdlePiece[]): Pin[] {
  const { blocks } = trace
  const idleIn = new Map<Segment, number>()
  for (const { segment, bytes } of idle) idleIn.set(segment, (idleIn.get(segment) ?? 0) + bytes)
  const sites = CallSites.of(trace.stacks)
  const found = new Map<string, Pinning>()
  for (const { segment, bytes, before, behind } of idle) {
    if (idleIn.get(segment)! <= segment.bytes / 2 || (before < 0 && behind < 0)) continue
    const isBefore = behind < 0 || (before >= 0 && blocks.bytes[before] <= blocks.bytes[behind])
    const number = isBefore ? before : behind
    const site = sites.siteOf(blocks.stack[number]).site
    const isInitial = site === null && number < blocks.initial
    const key = placeKey(site, isInitial)
    const pinning = found.get(key) ?? { site, before: isInitial, blocks: new Set(), segments: new Set(), idleBytes: 0 }
    pinning.blocks.add(number)
    pinning.segments.add(segment)
    pinning.idleBytes += bytes
    found.set(key, pinning)
  }
  return Array.from(found.values(), ({ site, before, blocks: numbers, segments, idleBytes }) => {
    let bytes = 0
    for (const number of numbers) bytes += blocks.bytes[number]
    const expandable = [...segments].some(segment => segment.expandable)
    return { site, before, blocks: numbers.size, bytes, idleBytes, segments: segments.size, expandable }
  }).sort((a, b) => b.idleBytes - a.idleBytes)
}
