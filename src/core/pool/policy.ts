// The policy of the caching pools: how much memory they take, when they gather what they have, and what they cache.
// Every tuned number stands here, and `bench/steps.ts` shows what each of them earns.
// docs/internals/decisions.md#0019-pieces-and-views has the reasons.
//
// Memory has a price, and the price depends on the room, the memory that the pool's limits and the device have left.
// With room the pool is loose. It grows in large steps, and lets some memory lie idle. The less room is left, the
// smaller are steps and pieces. More than two steps idle make the pool tight: it then caches small blocks only, and
// streams wait for each other before it grows.

import { KiB, MiB } from '../base/bytes.js'

export const policy = {
  /** Bytes that a growth takes at least, and the idle bytes that new memory comes before; pays in runs below 2 GiB. */
  stepBytes: 56 * MiB,
  /** A step is at least this share of a pool; pays in random mixes up to 1 GiB. */
  stepOfPool: 1 / 128,
  /** A step, or a piece, is at most this share of the room; pays for the least capacity in which a run fits. */
  stepOfRoom: 1 / 128,
  /** A pool has about this many pieces at most, if the room allows it; pays in training runs of several GiB. */
  pieces: 48,
  /** Steps that may lie idle before a pool is tight; pays in random mixes up to 1 MiB. */
  looseSteps: 2,
  /** Smaller blocks come from slabs, and are cached in a tight pool, too; pays where sizes grow a little at a time. */
  smallBytes: 128 * KiB,
  /** Bytes of a slab; pays for the least capacity. */
  slabBytes: 2 * MiB,
  /** From this size on, a cached block serves its exact size only; pays in training runs. */
  exactBytes: 1 * MiB,
  /** Blocks of a class that a stream caches; pays in programs that hold many equal buffers. */
  places: 64,
  /** A stream caches at most this share of the pool's limit. */
  streamShare: 1 / 48,
  /** A small request drains blocks of at least this share of its size first; pays in random mixes. */
  drainedShare: 1 / 2,
  /** Blocks given back to the large heap between two marks; pays in programs of several streams. */
  freesPerMark: 512,
}

/** Pinned memory, which has a price in time: 0.55 s a GiB. `bench/host-first-use.ts` shows what they earn. */
export const pinnedPolicy = {
  /** Bytes of a host pool's first segment; pays in the first request, which waits for no more than these. */
  firstBytes: 256 * KiB,
  /** Segments are as large as the pool is, up to this; pays for a short list of segments. */
  segmentBytes: 16 * MiB,
}

/** Bytes of a growth, and the idle bytes that are not worth gathering, in a pool with that room. */
export function growthStep(roomBytes: number, reservedBytes = 0): number {
  const loose = Math.max(policy.stepBytes, reservedBytes * policy.stepOfPool)
  return Math.min(loose, Math.max(0, roomBytes) * policy.stepOfRoom)
}

/** The least bytes of new pieces, in a pool with that room, which will then have `reservedBytes`. */
export function leastPiece(roomBytes: number, reservedBytes: number): number {
  const loose = Math.max(policy.stepBytes, reservedBytes / policy.pieces)
  return Math.min(loose, Math.max(0, roomBytes) * policy.stepOfRoom)
}
