import type { Frame } from './trace.js'

/** One stack frame of a table, for a reader that collects the frames of a stack. */
export class FrameEntry {
  constructor(
    readonly frame: Frame,
    readonly number: number,
  ) {}
}

/** Call stacks by content: a training run repeats a few thousand stacks a million times. */
export class StackTable {
  /** number 0 is the empty stack */
  readonly stacks: (readonly Frame[])[] = [[]]
  private readonly entries = new Map<string, FrameEntry>()
  private readonly byHash = new Map<number, number[]>()

  /** The entry for a frame, the same each time. */
  entry(filename: string, line: number, name: string): FrameEntry {
    const key = `${line}\n${name}\n${filename}`
    let entry = this.entries.get(key)
    if (entry === undefined) {
      entry = new FrameEntry({ filename, line, name }, this.entries.size)
      this.entries.set(key, entry)
    }
    return entry
  }

  /**
   * The number of the stack `items[from]` to `items[to - 1]`, innermost frame first; -1 if an item is no FrameEntry.
   */
  number(items: readonly unknown[], from = 0, to = items.length): number {
    if (from === to) return 0
    let hash = 0
    for (let i = from; i < to; i++) {
      const entry = items[i]
      if (!(entry instanceof FrameEntry)) return -1
      hash = (Math.imul(hash, 31) + entry.number) | 0
    }
    const alike = this.byHash.get(hash) ?? []
    for (const number of alike) if (this.holds(number, items, from, to)) return number
    const number = this.stacks.push((items.slice(from, to) as FrameEntry[]).map(entry => entry.frame)) - 1
    this.byHash.set(hash, [...alike, number])
    return number
  }

  private holds(number: number, items: readonly unknown[], from: number, to: number): boolean {
    const frames = this.stacks[number]
    if (frames.length !== to - from) return false
    for (let i = from; i < to; i++) if (frames[i - from] !== (items[i] as FrameEntry).frame) return false
    return true
  }
}
