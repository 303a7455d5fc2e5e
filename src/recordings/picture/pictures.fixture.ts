// Small pictures for tests: from a list of lines, and random ones.

import type { Random } from '../../core/base/random.js'
import { Action, NEVER } from '../trace/trace.js'
import { TraceBuilder } from '../trace/trace-builder.js'
import { makePicture } from './make-picture.js'
import { type Picture, UNIT_BYTES } from './picture.js'

/** An allocation of `units` at unit `at`, or the free of the block there. */
export type Line = readonly ['allocate', at: number, units: number] | readonly ['free', at: number]

/** Memory in units. It is new memory each time. */
interface Memory {
  readonly address: number
  readonly bytes: number
  readonly from: number
  readonly to: number
}

/** The picture of these lines, with one policy. */
export function pictureOf(lines: readonly Line[], memory: readonly Memory[]): Picture {
  const builder = new TraceBuilder()
  const sizes = new Map<number, number>()
  lines.forEach((line, time) => {
    const [kind, at] = line
    if (kind === 'allocate') sizes.set(at, line[2])
    const bytes = sizes.get(at)! * UNIT_BYTES
    builder.add(kind === 'allocate' ? Action.alloc : Action.freeRequested, at * UNIT_BYTES, bytes, 0, time)
  })
  const trace = builder.build({ file: 'picture' })
  const bytes = Float64Array.from(memory, each => each.bytes * UNIT_BYTES)
  const ranges = {
    count: memory.length,
    address: Float64Array.from(memory, each => each.address * UNIT_BYTES),
    bytes,
    memory: Float64Array.from(memory, (_, i) => i * 2 ** 40),
    from: Int32Array.from(memory, each => each.from),
    to: Int32Array.from(memory, each => each.to),
  }
  const reservedBytes = new Float64Array(trace.events)
  memory.forEach(({ from, to }, i) => {
    for (let event = Math.max(0, from); event < Math.min(to, trace.events); event++) reservedBytes[event] += bytes[i]
  })
  return makePicture(trace, [{ policy: 'any', label: 'any', address: trace.blocks.address, ranges, reservedBytes }])
}

/** A random program in `units` of memory. The upper half is given back once, while it is empty. */
export function randomPicture(random: Random, events: number, units: number): Picture {
  const below = (limit: number) => random.below(Math.max(1, Math.floor(limit)))
  const used = new Uint8Array(units)
  const live: [at: number, units: number][] = []
  const lines: Line[] = []
  const half = Math.floor(units / 2)
  /** the events after which nothing lies in the upper half */
  const empty: number[] = []
  while (lines.length < events) {
    const size = 1 + below(random.fraction() < 0.2 ? units / 4 : 4)
    const at = below(units - size + 1)
    if (random.fraction() < 0.55 && used.subarray(at, at + size).every(unit => unit === 0)) {
      used.fill(1, at, at + size)
      live.push([at, size])
      lines.push(['allocate', at, size])
    } else if (live.length > 0) {
      const [[start, length]] = live.splice(below(live.length), 1)
      used.fill(0, start, start + length)
      lines.push(['free', start])
    }
    if (used.subarray(half).every(unit => unit === 0)) empty.push(lines.length - 1)
  }
  const late = empty[below(empty.length)] ?? NEVER
  return pictureOf(lines, [
    { address: 0, bytes: half, from: -1, to: NEVER },
    { address: half, bytes: units - half, from: -1, to: late },
    { address: half, bytes: units - half, from: late + 1, to: NEVER },
  ])
}
