// Items by two numbers, in chunks: an insertion moves the items of one chunk only, so that a hundred thousand items
// cost little more each than a few. The numbers lie in arrays of their own, which makes searching fast. Lists are often
// filled in rising order, so an item after all others moves none.

const MOST_ITEMS = 512

interface Chunk<Item> {
  readonly first: number[]
  readonly second: number[]
  readonly items: Item[]
}

export class SortedList<Item> {
  /** none is empty */
  private readonly chunks: Chunk<Item>[] = []

  /** Adds an item by its numbers, before its equals. */
  insert(item: Item, first: number, second = 0): void {
    const { chunks } = this
    const number = this.chunkFrom(first, second)
    if (number === chunks.length) {
      this.append(item, first, second)
      return
    }
    const chunk = chunks[number]
    const at = indexFrom(chunk, first, second)
    chunk.first.splice(at, 0, first)
    chunk.second.splice(at, 0, second)
    chunk.items.splice(at, 0, item)
    if (chunk.items.length > MOST_ITEMS) {
      const half = MOST_ITEMS / 2
      chunks.splice(number + 1, 0, {
        first: chunk.first.splice(half),
        second: chunk.second.splice(half),
        items: chunk.items.splice(half),
      })
    }
  }

  /** Removes an item by the numbers with which it was added, and returns whether the list had it. */
  remove(item: Item, first: number, second = 0): boolean {
    const { chunks } = this
    for (let number = this.chunkFrom(first, second); number < chunks.length; number++) {
      const chunk = chunks[number]
      let at = indexFrom(chunk, first, second)
      // Equals may fill several chunks.
      while (chunk.items[at] !== item && chunk.first[at] === first && chunk.second[at] === second) at++
      if (at === chunk.items.length) continue
      if (chunk.items[at] !== item) return false
      chunk.first.splice(at, 1)
      chunk.second.splice(at, 1)
      chunk.items.splice(at, 1)
      if (chunk.items.length === 0) chunks.splice(number, 1)
      return true
    }
    return false
  }

  /** The first item that is not before these numbers. */
  from(first: number, second = 0): Item | undefined {
    const chunk = this.chunks[this.chunkFrom(first, second)]
    return chunk?.items[indexFrom(chunk, first, second)]
  }

  /** The last item before these numbers. */
  before(first: number, second = 0): Item | undefined {
    const { chunks } = this
    const number = this.chunkFrom(first, second)
    const at = number < chunks.length ? indexFrom(chunks[number], first, second) : 0
    return at > 0 ? chunks[number].items[at - 1] : chunks[number - 1]?.items.at(-1)
  }

  *[Symbol.iterator](): Generator<Item> {
    for (const { items } of this.chunks) yield* items
  }

  private append(item: Item, first: number, second: number): void {
    const last = this.chunks.at(-1)
    if (last === undefined || last.items.length === MOST_ITEMS) {
      this.chunks.push({ first: [first], second: [second], items: [item] })
      return
    }
    last.first.push(first)
    last.second.push(second)
    last.items.push(item)
  }

  /** The first chunk whose last item is not before these numbers. */
  private chunkFrom(first: number, second: number): number {
    const { chunks } = this
    const last = chunks.at(-1)
    if (last === undefined || isBefore(last, last.items.length - 1, first, second)) return chunks.length
    let low = 0
    let high = chunks.length - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      const chunk = chunks[middle]
      if (isBefore(chunk, chunk.items.length - 1, first, second)) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** The index of the first item of a chunk that is not before these numbers. */
function indexFrom(chunk: Chunk<unknown>, first: number, second: number): number {
  let low = 0
  let high = chunk.items.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(chunk, middle, first, second)) low = middle + 1
    else high = middle
  }
  return low
}

function isBefore(chunk: Chunk<unknown>, at: number, first: number, second: number): boolean {
  return chunk.first[at] < first || (chunk.first[at] === first && chunk.second[at] < second)
}
