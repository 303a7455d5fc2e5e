// Limits of launches and occupancy, as on an H200. A simulated kernel has no registers and no static memory.

import { KiB } from '../../../base/bytes.js'
import type { LaunchShape } from '../../driver.js'

export const MOST_GRID = [2 ** 31 - 1, 65_535, 65_535] as const
export const MOST_BLOCK = [1024, 1024, 64] as const
export const MOST_THREADS_PER_BLOCK = 1024
/** dynamic shared memory that every kernel may use */
export const SHARED_BYTES_PER_BLOCK = 48 * KiB
/** dynamic shared memory after cuFuncSetAttribute has raised the limit */
export const OPTIN_SHARED_BYTES_PER_BLOCK = 227 * KiB
export const MULTIPROCESSORS = 132
const THREADS_PER_MULTIPROCESSOR = 2048
const BLOCKS_PER_MULTIPROCESSOR = 32
const SHARED_BYTES_PER_MULTIPROCESSOR = 228 * KiB
/** shared memory that the system reserves in each block */
const RESERVED_SHARED_BYTES = 1 * KiB
const WARP = 32

/** The limit that a launch exceeds, as text; null if it exceeds none. */
export function launchExcess(shape: LaunchShape, mostSharedBytes: number): string | null {
  const limits = [
    ['grid', shape.grid, MOST_GRID],
    ['block', shape.block, MOST_BLOCK],
  ] as const
  for (const [name, sizes, most] of limits) {
    for (const [axis, size] of sizes.entries()) {
      if (!Number.isInteger(size) || size < 1 || size > most[axis]) {
        return `${name}.${'xyz'[axis]} is ${size}, not a whole number from 1 to ${most[axis]}`
      }
    }
  }
  const threads = threadsOf(shape.block)
  if (threads > MOST_THREADS_PER_BLOCK) return `a block of ${threads} threads, above ${MOST_THREADS_PER_BLOCK}`
  if (shape.sharedBytes > mostSharedBytes) return `${shape.sharedBytes} shared bytes, above ${mostSharedBytes}`
  return null
}

/** Blocks of `blockThreads` threads that a multiprocessor can run at the same time. */
export function blocksPerMultiprocessor(blockThreads: number, sharedBytes: number): number {
  const threads = Math.ceil(blockThreads / WARP) * WARP
  const byThreads = Math.floor(THREADS_PER_MULTIPROCESSOR / threads)
  const byShared = Math.floor(SHARED_BYTES_PER_MULTIPROCESSOR / (sharedBytes + RESERVED_SHARED_BYTES))
  return Math.min(byThreads, byShared, BLOCKS_PER_MULTIPROCESSOR)
}

/** Whether all blocks of a launch can run at the same time. */
export function fitsAtOnce({ grid, block, sharedBytes }: LaunchShape): boolean {
  const room = blocksPerMultiprocessor(threadsOf(block), sharedBytes) * MULTIPROCESSORS
  return grid[0] * grid[1] * grid[2] <= room
}

function threadsOf([x, y, z]: LaunchShape['block']): number {
  return x * y * z
}
