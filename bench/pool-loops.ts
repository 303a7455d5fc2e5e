// The loops that bench/allocate.ts and bench/pipeline.ts time, in a module of their own so that each subject can have its own copy. The clock is
// read outside of them: Node's own code for it would use up a third of what the compiler puts into one function.

import type { DeviceBuffer } from '../src/index.js'
import type { Stream } from '../src/order/stream.js'
import type { Pool } from '../src/pool/pool.js'

const KEPT = 1024 // buffers that stay referenced, so that none is optimised away
const kept = new Array<DeviceBuffer>(KEPT)

/** Nanoseconds of an allocation and its free. */
export function pairNs(pool: Pool, stream: Stream, bytes: number, pairs: number): number {
  const start = performance.now()
  runPairs(pool, stream, bytes, pairs)
  return ((performance.now() - start) * 1e6) / pairs
}

function runPairs(pool: Pool, stream: Stream, bytes: number, pairs: number): void {
  for (let pair = 0; pair < pairs; pair++) {
    const buffer = pool.allocate(bytes, stream)
    kept[pair % KEPT] = buffer
    buffer.free()
  }
}

/** Nanoseconds of a free and an allocation with `live` buffers held, and the buffers held at the end. */
export function mixNs(pool: Pool, stream: Stream, sizes: Float64Array, victims: Int32Array, live: number) {
  const buffers: DeviceBuffer[] = []
  for (let index = 0; index < live; index++) buffers.push(pool.allocate(sizes[index], stream))
  const start = performance.now()
  runMix(pool, stream, sizes, victims, buffers)
  const ns = ((performance.now() - start) * 1e6) / (sizes.length - live)
  return { ns, live: buffers }
}

function runMix(pool: Pool, stream: Stream, sizes: Float64Array, victims: Int32Array, buffers: DeviceBuffer[]): void {
  for (let step = buffers.length; step < sizes.length; step++) {
    const victim = victims[step]
    buffers[victim].free()
    buffers[victim] = pool.allocate(sizes[step], stream)
  }
}

/** Takes a buffer of each size in turn, as many as `buffers` has room for. */
export function takeAll(pool: Pool, stream: Stream, sizes: readonly number[], buffers: DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++)
    buffers[index] = pool.allocate(sizes[index % sizes.length], stream)
}

export function freeAll(stream: Stream, buffers: readonly DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++) buffers[index].free(stream)
}
