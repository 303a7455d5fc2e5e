// The loops that bench/allocate.ts and bench/pipeline.ts time, in a module of their own so that each subject can have its own copy. The clock is
// read outside of them: Node's own code for it would use up a third of what the compiler puts into one function.

import type { DeviceBuffer } from '../src/index.js'
import type { Stream } from '../src/order/stream.js'
import type { Pool } from '../src/pool/pool.js'

/**
 * Buffers stay referenced, so that none is optimised away: by a new list for every so many, as a program's are that collects
 * what it allocates. Into an old list the engine writes a new object for 5 ns more, whatever it is (its write barrier).
 */
const KEPT = 256
export let kept: unknown[] = []

/** Nanoseconds of an allocation and its free. */
export function pairNs(pool: Pool, stream: Stream, bytes: number, pairs: number): number {
  const start = performance.now()
  runPairs(pool, stream, bytes, pairs)
  return ((performance.now() - start) * 1e6) / pairs
}

function runPairs(pool: Pool, stream: Stream, bytes: number, pairs: number): void {
  for (let pair = 0; pair < pairs; ) {
    const list = new Array<DeviceBuffer>(KEPT)
    kept = list
    for (let place = 0; place < KEPT && pair < pairs; place++, pair++) {
      const buffer = pool.allocate(bytes, stream)
      list[place] = buffer
      buffer.free()
    }
  }
}

/** As many fields as a buffer has. */
class Handle {
  constructor(
    readonly pool: Pool,
    readonly stream: Stream,
    readonly home: object,
    readonly record: number,
    readonly tag: number,
  ) {}
}

/** Nanoseconds of making an object as large as a buffer, and keeping it: what no allocator that returns one can be below. */
export function objectNs(pool: Pool, stream: Stream, bytes: number, pairs: number): number {
  const start = performance.now()
  runObjects(pool, stream, bytes, pairs)
  return ((performance.now() - start) * 1e6) / pairs
}

function runObjects(pool: Pool, stream: Stream, bytes: number, pairs: number): void {
  for (let pair = 0; pair < pairs; ) {
    const list = new Array<Handle>(KEPT)
    kept = list
    for (let place = 0; place < KEPT && pair < pairs; place++, pair++) {
      list[place] = new Handle(pool, stream, pool, bytes, pair)
    }
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
