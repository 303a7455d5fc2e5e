// Free blocks by size, then address, for models of other allocators. Blocks lie in short sorted arrays, eight for each
// power of two, so that thousands of blocks cost little more than a few.

import { TiB } from './bytes.js'

interface SizedBlock {
  readonly bytes: number
  readonly address: number
}

/** Smaller differences do not matter: the allocators round sizes to it. */
const UNIT_BYTES = 512

export class BestFitList<Block extends SizedBlock> {
  /** by class of sizes */
  private readonly classes: Block[][] = []

  insert(block: Block): void {
    const index = classOf(block.bytes)
    while (this.classes.length <= index) this.classes.push([])
    const blocks = this.classes[index]
    blocks.splice(lowerBound(blocks, block.bytes, block.address), 0, block)
  }

  /** Removes a block, and returns whether the list had it. */
  remove(block: Block): boolean {
    const blocks = this.classes[classOf(block.bytes)]
    if (blocks === undefined) return false
    const index = lowerBound(blocks, block.bytes, block.address)
    if (blocks[index] !== block) return false
    blocks.splice(index, 1)
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

  /** All blocks, in the order of size, then address. */
  all(): Block[] {
    return this.classes.flat()
  }

  private from(bytes: number, address: number): Block | null {
    const { classes } = this
    const index = classOf(bytes)
    if (index >= classes.length) return null
    const found = lowerBound(classes[index], bytes, address)
    if (found < classes[index].length) return classes[index][found]
    for (let above = index + 1; above < classes.length; above++) {
      if (classes[above].length > 0) return classes[above][0]
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
