// The operations that the programs run: random mixes of sizes, and recordings.

import { GiB, MiB } from '../../src/core/base/bytes.js'
import { Random } from '../../src/core/base/random.js'
import { Action, BEFORE, type Trace } from '../../src/entries/trace.js'
import type { Operations } from './operations.js'

/** Random sizes from `least` to `most`, each order of magnitude equally likely, with `live` buffers held. */
interface Mix {
  readonly name: string
  readonly least: number
  readonly most: number
  readonly live: number
}

/** The last one has 43 GiB live at its peak. */
export const MIXES: readonly Mix[] = [
  { name: 'mix-1MiB', least: 256, most: MiB, live: 1000 },
  { name: 'mix-64MiB', least: 256, most: 64 * MiB, live: 1000 },
  { name: 'mix-1GiB', least: MiB, most: GiB, live: 280 },
]
const SEED = 1
/** Operations of a step of a mix: it frees a random buffer, and allocates a new one. */
const PER_STEP = 2
/** The first third includes filling the allocator. */
export const THIRDS = 3

/** A mix of `steps` steps, a multiple of 3, in three equal parts. */
export function mixOperations({ least, most, live }: Mix, steps: number): Operations {
  const random = new Random(SEED)
  const operations = new OperationList()
  const allocate = (buffer: number) => operations.allocate(buffer, random.logUniform(least, most), 0)
  for (let buffer = 0; buffer < live; buffer++) allocate(buffer)
  for (let step = 0; step < steps; step++) {
    const victim = random.below(live)
    operations.free(victim, 0)
    allocate(victim)
  }
  for (let buffer = 0; buffer < live; buffer++) operations.free(buffer, 0)
  const partEnds = Array.from({ length: THIRDS }, (_, third) => live + ((third + 1) * PER_STEP * steps) / THIRDS)
  return operations.build(1, live, partEnds)
}

/**
 * A recording's allocations and frees in recorded order. Blocks from before it are allocated first, and live blocks are
 * freed at the end. A pass is one part.
 */
export function traceOperations({ events, action, block, blocks, streams }: Trace): Operations {
  const operations = new OperationList()
  const live = new Uint8Array(blocks.count)
  const allocate = (index: number) => {
    // PyTorch gave a request of 0 bytes a block of the least size.
    operations.allocate(index, Math.max(1, blocks.bytes[index]), blocks.stream[index])
    live[index] = 1
  }
  const free = (index: number) => {
    if (live[index] === 1) operations.free(index, blocks.stream[index])
    live[index] = 0
  }
  for (let index = 0; index < blocks.initial; index++) if (blocks.freeRequestedAt[index] !== BEFORE) allocate(index)
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.alloc) allocate(block[event])
    else if (action[event] === Action.freeRequested) free(block[event])
  }
  for (let index = 0; index < blocks.count; index++) free(index)
  return operations.build(streams.length, blocks.count, [operations.length])
}

/** Collects operations. */
class OperationList {
  private readonly buffer: number[] = []
  private readonly bytes: number[] = []
  private readonly stream: number[] = []

  get length(): number {
    return this.buffer.length
  }

  allocate(buffer: number, bytes: number, stream: number): void {
    this.buffer.push(buffer)
    this.bytes.push(bytes)
    this.stream.push(stream)
  }

  free(buffer: number, stream: number): void {
    this.allocate(buffer, 0, stream)
  }

  build(streams: number, buffers: number, partEnds: readonly number[]): Operations {
    return {
      streams,
      buffers,
      partEnds,
      buffer: Int32Array.from(this.buffer),
      bytes: Float64Array.from(this.bytes),
      stream: Int32Array.from(this.stream),
    }
  }
}
