// The loops that the benches of pools time, in a module of their own so that each subject can have its own copy. The clock is
// read outside of them: Node's own code for it would use up a third of what the compiler puts into one function.

import { assert } from '../src/base/assert.js'
import type { ArenaPool, DeviceBuffer } from '../src/index.js'
import type { Stream } from '../src/order/stream.js'
import type { Pool } from '../src/pool/pool.js'

/**
 * Buffers stay referenced for a while, so that none is optimised away: by lists of so many. Each is filled several times, so that it
 * takes hardly any new memory, and then there is another one: into an old list the engine writes a new object for 5 ns more,
 * whatever it is (its write barrier).
 */
const KEPT = 64
/** The number of calls or pairs that are asked for is a multiple of this. */
export const PER_LIST = 16 * KEPT
/** Copied, so that the engine knows from the start that a list holds objects. */
const EMPTY_LIST = new Array<unknown>(KEPT).fill(null)
export let kept: unknown[] = []

/** A pool of device or of host memory. */
interface Source {
  allocate(bytes: number, stream: Stream | undefined): { free(): void }
}

/** The loops, compiled for one subject alone: a call in a program mostly sees one kind of pool, as in the loops of other allocators. */
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

/** Nanoseconds of an allocation with `live` buffers held, no block being the one that was freed last, and its free. */
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

/** Nanoseconds of an allocation from an arena that is reset after every so many of them, which counts as part of them. */
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

/** Nanoseconds of making an object as large as a buffer, and keeping it: what no allocator that returns one can be below. */
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

/** Takes a buffer of each size in turn, as many as `buffers` has room for. */
export function takeAll(pool: Pool, stream: Stream, sizes: readonly number[], buffers: DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++)
    buffers[index] = pool.allocate(sizes[index % sizes.length], stream)
}

export function freeAll(stream: Stream, buffers: readonly DeviceBuffer[]): void {
  for (let index = 0; index < buffers.length; index++) buffers[index].free(stream)
}
