// The options of block pools, and why a block pool has no block for a request.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { assert } from '../../base/assert.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { describe, formatBytes, GiB } from '../../base/bytes.js'
import type { OutOfMemoryError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Context } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import type { SlabPlan } from '../backing/slab-source.js'
import type { LiveBlock } from '../caching/reserving-pool.js'
import { shortageOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'

const MOST_BLOCKS = 2 ** 26
const MOST_BLOCK_BYTES = 256 * GiB

/** Options of `createBlockPool`. */
export interface BlockOptions {
  /** size of a block, rounded up to a multiple of 256 */
  readonly blockBytes: ByteSize
  /** blocks made at once, when the pool is made and whenever it grows */
  readonly count: number
  /** number of blocks that the pool may grow to (`count`) */
  readonly maxCount?: number
}

/** The slabs of a pool with these options. Throws TypeError or RangeError naming the option. */
export function parseBlockOptions(call: string, context: Context, options: BlockOptions): SlabPlan {
  checkOptionNames(call, options, ['blockBytes', 'count', 'maxCount'])
  const { count, maxCount = count } = options
  const blockBytes = bytesOf(options.blockBytes, 'blockBytes', context)
  if (blockBytes > MOST_BLOCK_BYTES) {
    throw new OutOfRangeError(
      `blockBytes must be at most ${formatBytes(MOST_BLOCK_BYTES)}, not ${formatBytes(blockBytes)}`,
    )
  }
  for (const [name, value] of [
    ['count', count],
    ['maxCount', maxCount],
  ] as const) {
    if (Number.isInteger(value) && value >= 1 && value <= MOST_BLOCKS) continue
    throw new OutOfRangeError(
      `${name} must be a whole number of blocks from 1 to ${MOST_BLOCKS}, not ${describe(value)}`,
    )
  }
  if (maxCount < count) throw new OutOfRangeError(`maxCount (${maxCount}) is below count (${count}); raise it`)
  return slabsOf(Math.ceil(blockBytes / UNIT_BYTES), count, maxCount)
}

/** Slabs of blocks of so many units, aligned by the largest power of two that divides their size. */
export function slabsOf(units: number, count: number, maxCount: number): SlabPlan {
  const blockBytes = units * UNIT_BYTES
  let alignment = UNIT_BYTES
  while (alignment < MOST_ALIGNMENT_BYTES && blockBytes % (2 * alignment) === 0) alignment *= 2
  return { segments: 'slabs', blockBytes, alignment, count, maxCount }
}

/** A block pool, of one thread or shared. */
interface Blocks {
  readonly context: Context
  readonly blockBytes: number
  readonly alignment: number
  readonly count: number
  readonly maxCount: number
  live(): readonly LiveBlock[]
}

/** Asserts that the pool has no blocks but those that it promises. */
export function checkBlocks(pool: Blocks): void {
  const { blockBytes, alignment, count, maxCount } = pool
  const held = pool.live()
  assert(held.length <= count && count <= maxCount, 'there are no more blocks than there may be')
  assert(
    held.every(block => block.blockBytes === blockBytes && block.ptr % alignment === 0),
    'blocks have one size and are aligned',
  )
}

/** Why there is no block for `bytes`; `kept` are kept for graphs. */
export function noBlock(bytes: number, pool: Blocks, stats: PoolStats, kept = 0): OutOfMemoryError {
  const { context, blockBytes, count, maxCount } = pool
  const { freeBytes } = context.activate().cuMemGetInfo()
  const all =
    kept > 0
      ? `all ${maxCount} blocks are handed out, or kept for graphs (${kept}): free some, close graphs and their groups`
      : maxCount === 1
        ? 'the only block is handed out: free it'
        : `all ${maxCount} blocks are handed out: free some`
  const isFull = bytes <= blockBytes && count < maxCount
  const obstacle =
    bytes > blockBytes
      ? `a block has ${blockBytes} bytes, and ${bytes} are asked for: ask for less, make blocks larger`
      : isFull
        ? 'the device itself is full: free memory, here or in other programs'
        : `${all}, raise maxCount`
  const remedy = `${obstacle}, or fall back: fallback(pool, device.createPlainPool())`
  return shortageOf(bytes, stats, blockBytes, freeBytes, remedy, isFull ? context : null)
}
