// A set of whole numbers below a size, which finds its next greater and its next smaller member in a few steps however
// many numbers lie between: a tree of words in which each bit tells whether a word below it has members.

const WORD_BITS = 32

export class IndexSet {
  /** the lowest level first: its bits are the members */
  private readonly levels: Uint32Array[] = []

  /** An empty set of numbers from 0 to `size - 1`. */
  constructor(size: number) {
    for (let words = size; words > 1 || this.levels.length === 0; ) {
      words = Math.max(1, Math.ceil(words / WORD_BITS))
      this.levels.push(new Uint32Array(words))
    }
  }

  has(index: number): boolean {
    return ((this.levels[0][index >>> 5] >>> (index & 31)) & 1) === 1
  }

  add(index: number): void {
    let at = index
    for (const words of this.levels) {
      const before = words[at >>> 5]
      words[at >>> 5] = before | (1 << (at & 31))
      if (before !== 0) return
      at >>>= 5
    }
  }

  delete(index: number): void {
    let at = index
    for (const words of this.levels) {
      words[at >>> 5] &= ~(1 << (at & 31))
      if (words[at >>> 5] !== 0) return
      at >>>= 5
    }
  }

  /** The least member from `index` on, or -1. */
  from(index: number): number {
    const { levels } = this
    let at = index
    for (let level = 0; level < levels.length; level++) {
      const words = levels[level]
      if (at >>> 5 >= words.length) return -1
      const above = words[at >>> 5] >>> (at & 31)
      if (above !== 0) {
        at += lowestBit(above)
        while (level > 0) at = at * WORD_BITS + lowestBit(levels[--level][at])
        return at
      }
      at = (at >>> 5) + 1
    }
    return -1
  }

  /** The greatest member below `index`, or -1. */
  before(index: number): number {
    const { levels } = this
    let at = index - 1
    for (let level = 0; level < levels.length && at >= 0; level++) {
      const below = levels[level][at >>> 5] << (31 - (at & 31))
      if (below !== 0) {
        at -= Math.clz32(below)
        while (level > 0) at = at * WORD_BITS + 31 - Math.clz32(levels[--level][at])
        return at
      }
      at = (at >>> 5) - 1
    }
    return -1
  }
}

function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word)
}
