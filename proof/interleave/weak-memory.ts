// Shared memory as threads of an arm64 processor may see it. A plain load may return an older store of an element. It
// may not if the thread knows of a newer store. A thread learns of stores by an atomic load: it then knows all that
// came before the atomic store that it read. Each element keeps its latest stores, and each store a vector clock.
//
// Addresses keep order: words of a record are not older than the load that gave the record's number. Load buffering, a
// load that finds a later store of its own thread, is not modelled.

import type { Chooser } from './choices.js'
import { addressOf, type Memory, type Words } from './memory.js'

const MOST_STORES = 6

interface Store {
  readonly value: number
  /** by thread: its time when it first knew of the store, 0 for not yet */
  readonly known: number[]
  /** for a publishing store: the stores before it */
  readonly before: number[] | null
  readonly isAtomic: boolean
}

export class WeakMemory implements Memory {
  /** by thread, what it knows of the time of each */
  private readonly clocks: number[][]
  private readonly cells = new Map<ArrayBufferLike, Map<number, Store[]>>()
  /** by thread and loaded value: the stores before that value */
  private readonly dependencies: Map<number, number[]>[]

  constructor(
    private readonly threads: number,
    private readonly chooser: Chooser,
  ) {
    this.clocks = Array.from({ length: threads }, () => new Array<number>(threads).fill(0))
    this.dependencies = this.clocks.map(() => new Map())
  }

  load(thread: number, words: Words, index: number): number {
    const record = words.BYTES_PER_ELEMENT === 8 ? index >> 3 : index >> 4
    const before = this.dependencies[thread].get(record)
    if (before !== undefined) this.learn(thread, before)
    const store = this.choose(thread, words, index, false)
    if (store.before !== null && store.value !== 0) this.dependencies[thread].set(store.value, store.before)
    return store.value
  }

  store(thread: number, words: Words, index: number, value: number): void {
    this.put(thread, words, index, value, null, false)
  }

  atomicLoad(thread: number, words: Words, index: number): number {
    const store = this.choose(thread, words, index, true)
    if (store.before !== null) this.learn(thread, store.before)
    return store.value
  }

  exchange(thread: number, words: Words, index: number, next: (old: number) => number | null): number {
    const old = this.storesOf(words, index).at(-1)!
    if (old.before !== null) this.learn(thread, old.before)
    this.know(thread, old)
    const value = next(old.value)
    if (value !== null) this.put(thread, words, index, value, [...this.clocks[thread]], true)
    return old.value
  }

  settle(thread: number): void {
    for (const clock of this.clocks) this.learn(thread, clock)
    for (let other = 0; thread === 0 && other < this.threads; other++) this.learn(other, this.clocks[0])
  }

  barrier(): void {
    for (let thread = 0; thread < this.threads; thread++) this.settle(thread)
    for (let thread = 0; thread < this.threads; thread++) this.settle(thread)
  }

  late(): readonly number[] {
    return []
  }

  advance(): void {}

  private put(thread: number, words: Words, index: number, value: number, before: number[] | null, isAtomic: boolean) {
    const stores = this.storesOf(words, index)
    words[index] = value
    const store = { value: words[index], known: new Array<number>(this.threads).fill(0), before, isAtomic }
    this.know(thread, store)
    if (before !== null) before[thread] = this.clocks[thread][thread]
    stores.push(store)
    if (stores.length > MOST_STORES) stores.shift()
  }

  /** One of the stores that a thread may find. */
  private choose(thread: number, words: Words, index: number, isAtomic: boolean): Store {
    const stores = this.storesOf(words, index)
    let oldest = stores.length - 1
    while (oldest > 0 && !this.isKnown(thread, stores[oldest]) && !(isAtomic && stores[oldest].isAtomic)) oldest--
    const count = stores.length - oldest
    const store = stores[stores.length - 1 - (count === 1 ? 0 : this.chooser.choose(count, false))]
    this.know(thread, store)
    return store
  }

  /** Whether a thread knows, itself or from others, that there is this store. */
  private isKnown(thread: number, { known }: Store): boolean {
    const clock = this.clocks[thread]
    return known.some((time, other) => time !== 0 && time <= clock[other])
  }

  private know(thread: number, { known }: Store): void {
    if (known[thread] === 0) known[thread] = ++this.clocks[thread][thread]
  }

  private learn(thread: number, before: readonly number[]): void {
    const clock = this.clocks[thread]
    for (let other = 0; other < clock.length; other++) if (before[other] > clock[other]) clock[other] = before[other]
  }

  private storesOf(words: Words, index: number): Store[] {
    const cells = this.cells.get(words.buffer) ?? new Map<number, Store[]>()
    if (cells.size === 0) this.cells.set(words.buffer, cells)
    const address = addressOf(words, index)
    const stores = cells.get(address)
    // All threads know of native code's stores.
    if (stores !== undefined && Object.is(stores.at(-1)!.value, words[index])) return stores
    const known = new Array<number>(this.threads).fill(0)
    known[0] = 1
    const first: Store[] = [{ value: words[index], known, before: null, isAtomic: false }]
    for (const clock of this.clocks) clock[0] = Math.max(clock[0], 1)
    cells.set(address, first)
    return first
  }
}
