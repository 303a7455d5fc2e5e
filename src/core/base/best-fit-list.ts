// Free blocks by size, then address, for models of other allocators. Blocks lie in classes, eight for each power of
// two, and a class in chunks, so that a hundred thousand blocks cost little more each than a few. The comparisons of
// SortedList are written out here, because replays spend most of their time on them.

import { TiB } from './bytes.js'

interface SizedBlock {
  readonly bytes: number
  readonly address: number
}

/** Smaller differences do not matter: the allocators round sizes to it. */
const UNIT_BYTES = 512
const MOST_BLOCKS_A_CHUNK = 512

/** The chunks of all classes that never had a block. */
const NEVER_USED: never[][] = [[]]

export class BestFitList<Block extends SizedBlock> {
  /** by class of sizes, from `lowest` on: its chunks; only the first may be empty, and only alone */
  private classes: Block[][][] = []
  /** The first class. An allocator may have thousands of lists, most of them with blocks of one class. */
  private lowest = 0

  insert(block: Block): void {
    const { classes } = this
    const number = classOf(block.bytes)
    if (classes.length === 0) {
      this.lowest = number
      this.classes = [[[block]]]
      return
    }
    while (number < this.lowest) {
      classes.unshift(NEVER_USED)
      this.lowest--
    }
    const index = number - this.lowest
    while (classes.length <= index) classes.push(NEVER_USED)
    const chunks = classes[index]
    if (chunks === NEVER_USED) {
      classes[index] = [[block]]
      return
    }
    const chunk = chunkOf(chunks, block.bytes, block.address)
    const blocks = chunks[chunk]
    const at = lowerBound(blocks, block.bytes, block.address)
    if (at === blocks.length) blocks.push(block)
    else blocks.splice(at, 0, block)
    if (blocks.length > MOST_BLOCKS_A_CHUNK) chunks.splice(chunk + 1, 0, blocks.splice(MOST_BLOCKS_A_CHUNK / 2))
  }

  /** Removes a block, and returns whether the list had it. */
  remove(block: Block): boolean {
    const index = classOf(block.bytes) - this.lowest
    if (index < 0 || index >= this.classes.length) return false
    const chunks = this.classes[index]
    const number = chunkOf(chunks, block.bytes, block.address)
    const blocks = chunks[number]
    const found = lowerBound(blocks, block.bytes, block.address)
    if (blocks[found] !== block) return false
    if (found === blocks.length - 1) blocks.pop()
    else blocks.splice(found, 1)
    if (blocks.length === 0 && chunks.length > 1) chunks.splice(number, 1)
    return true
  }

  /** The smallest block of at least `bytes`, at the lowest address. */
  smallest(bytes: number): Block | null {
    return this.from(bytes, 0)
  }

  /** The block that follows a block of the list. */
  after({ bytes, address }: Block): Block | null {
    return this.from(bytes, address + 1)
  }

  /** The block before a block that is or was in the list; without one the largest. */
  before({ bytes, address }: SizedBlock = { bytes: Infinity, address: 0 }): Block | null {
    const { classes } = this
    const index = classOf(bytes) - this.lowest
    if (index >= 0 && index < classes.length) {
      const chunks = classes[index]
      const number = chunkOf(chunks, bytes, address)
      const found = lowerBound(chunks[number], bytes, address)
      if (found > 0) return chunks[number][found - 1]
      if (number > 0) return chunks[number - 1].at(-1)!
    }
    for (let below = Math.min(index, classes.length) - 1; below >= 0; below--) {
      const last = classes[below].at(-1)!.at(-1)
      if (last !== undefined) return last
    }
    return null
  }

  /** All blocks, in the order of size, then address. */
  all(): Block[] {
    return this.classes.flat(2) as Block[]
  }

  private from(bytes: number, address: number): Block | null {
    const { classes } = this
    const index = classOf(bytes) - this.lowest
    if (index >= classes.length) return null
    if (index >= 0) {
      const chunks = classes[index]
      const blocks = chunks[chunkOf(chunks, bytes, address)]
      const found = lowerBound(blocks, bytes, address)
      if (found < blocks.length) return blocks[found]
    }
    for (let above = Math.max(0, index + 1); above < classes.length; above++) {
      if (classes[above][0].length > 0) return classes[above][0][0]
    }
    return null
  }
}

/** Rises with the size: eight classes for each power of two. From 1 TiB on all sizes have one class. */
function classOf(bytes: number): number {
  const units = bytes < TiB ? (bytes / UNIT_BYTES) | 0 : TiB / UNIT_BYTES - 1
  if (units < 8) return units
  const shift = 28 - Math.clz32(units)
  return (shift << 3) + (units >>> shift)
}

/** The index of the first chunk whose last block is not before (`bytes`, `address`), or of the last chunk. */
function chunkOf(chunks: readonly (readonly SizedBlock[])[], bytes: number, address: number): number {
  let low = 0
  let high = chunks.length - 1
  while (low < high) {
    const middle = (low + high) >>> 1
    const block = chunks[middle][chunks[middle].length - 1]
    if (block.bytes < bytes || (block.bytes === bytes && block.address < address)) low = middle + 1
    else high = middle
  }
  return low
}

/** The index of the first block that is not before (`bytes`, `address`). */
function lowerBound(blocks: readonly SizedBlock[], bytes: number, address: number): number {
  let low = 0
  let high = blocks.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const block = blocks[middle]
    if (block.bytes < bytes || (block.bytes === bytes && block.address < address)) low = middle + 1
    else high = middle
  }
  return low
}
