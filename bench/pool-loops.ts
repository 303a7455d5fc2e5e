// The loops that the benches of pools time, in their own module so that each subject can have its own copy. The clock
// is read outside the loops: Node's code for it would use up a third of V8's inlining budget for one function.

import { assert } from '../src/core/base/assert.js'
import type { Stream } from '../src/core/order/stream.js'
import type { Pool } from '../src/core/pool/pool.js'
import type { ArenaPool, DeviceBuffer } from '../src/index.js'

/**
 * The length of lists that keep buffers referenced, so that no buffer is optimised away. Each list is filled several
 * times, so that it takes hardly any new memory, and then replaced: a store of a new object into an old list costs 5
 * ns more, for V8's write barrier.
 */
const KEPT = 64
/** Counts of calls or pairs are multiples of this. */
export const PER_LIST = 16 * KEPT
/** The template of all lists, so that V8 knows from the start that they hold objects. */
const EMPTY_LIST = new Array<unknown>(KEPT).fill(null)
export let kept: unknown[] = []

/** A pool of device memory or host memory. */
interface Source {
  allocate(bytes: number, stream: Stream | undefined): { free(): void }
}

/** The loops, compiled for one subject alone, since a call in a program usually sees one kind of pool. */
export async function loopsFor(subject: string): Promise<typeof import('./pool-loops.js')> {
  return await import(`./pool-loops.js?for=${encodeURIComponent(subject)}`)
}

function checkCount(count: number): void {
  assert(count % PER_LIST === 0, `what is timed is a multiple of ${PER_LIST} calls`)
}

/** Nanoseconds of an allocation and its free. */
export function pairNs(pool: Source, stream: Stream | undefined, bytes: number, pairs: number): number {
  checkCount(pairs)
  const start = performance.now()
  runPairs(pool, stream, bytes, pairs)
  return ((performance.now() - start) * 1e6) / pairs
}

function runPairs(pool: Source, stream: Stream | undefined, bytes: number, pairs: number): void {
  for (let pair = 0; pair < pairs; pair += PER_LIST) {
    const list = EMPTY_LIST.slice()
    kept = list
    for (let first = 0; first < PER_LIST; first += KEPT) {
      for (let place = 0; place < KEPT; place++) {
        const buffer = pool.allocate(bytes, stream)
        list[place] = buffer
        buffer.free()
      }
    }
  }
}

/** Nanoseconds of an allocation and its free with `live` buffers held; the block is never the last one freed. */
export function roundsNs(pool: Pool, stream: Stream, bytes: number, pairs: number, live: number): number {
  const rounds = Math.ceil(pairs / live)
  const start = performance.now()
  runRounds(pool, stream, bytes, rounds, live)
  return ((performance.now() - start) * 1e6) / (rounds * live)
}

function runRounds(pool: Pool, stream: Stream, bytes: number, rounds: number, live: number): void {
  for (let round = 0; round < rounds; round++) {
    const list = new Array<DeviceBuffer>(live)
    kept = list
    for (let place = 0; place < live; place++) list[place] = pool.allocate(bytes, stream)
    for (let place = 0; place < live; place++) list[place].free()
  }
}

/** Nanoseconds of an allocation from an arena, with its share of a reset after every `between` allocations. */
export function arenaNs(arena: ArenaPool, stream: Stream, bytes: number, calls: number, between: number): number {
  checkCount(calls)
  checkCount(between)
  const start = performance.now()
  runArena(arena, stream, bytes, calls, between)
  return ((performance.now() - start) * 1e6) / calls
}

function runArena(arena: ArenaPool, stream: Stream, bytes: number, calls: number, between: number): void {
  for (let call = 0; call < calls; call += PER_LIST) {
    if (call % between === 0) arena.reset(stream)
    const list = EMPTY_LIST.slice()
    kept = list
    for (let first = 0; first < PER_LIST; first += KEPT) {
      for (let place = 0; place < KEPT; place++) list[place] = arena.allocate(bytes, stream)
    }
  }
}

/** As large as a buffer. */
class Handle {
  constructor(
    readonly allocation: object,
    readonly tag: number,
  ) {}
}

/**
 * Nanoseconds to create and keep an object as large as a buffer: the lower bound of any allocator that returns one.
 */
export function objectNs(allocation: object, objects: number): number {
  checkCount(objects)
  const start = performance.now()
  runObjects(allocation, objects)
  return ((performance.now() - start) * 1e6) / objects
}

function runObjects(allocation: object, objects: number): void {
  for (let object = 0; object < objects; object += PER_LIST) {
    const list = EMPTY_LIST.slice()
    kept = list
    for (let first = 0; first < PER_LIST; first += KEPT) {
      for (let place = 0; place < KEPT; place++) list[place] = new Handle(allocation, place)
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

/** Fills `buffers`, with each size in turn. */
export function takeAll(pool: Pool, stream: Stream, sizes: readonly number[], buffers: DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++)
    buffers[index] = pool.allocate(sizes[index % sizes.length], stream)
}

export function freeAll(stream: Stream, buffers: readonly DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++) buffers[index].free(stream)
}
