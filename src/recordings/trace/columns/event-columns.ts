// Events in columns that grow, while a trace is built.

import { StackTable } from '../stack-table.js'

const FIRST_CAPACITY = 1024

/** The name of the pool that is not private. */
export const DEFAULT_POOL = '0,0'

/** Texts and their numbers, in the order of their first use; number 0 is the usual text. */
export class NameTable {
  readonly names: string[]
  private readonly numbers: Map<string, number>
  private last: string
  private lastNumber = 0

  constructor(usual: string) {
    this.names = [usual]
    this.numbers = new Map([[usual, 0]])
    this.last = usual
  }

  number(name: string): number {
    if (name === this.last) return this.lastNumber
    let number = this.numbers.get(name)
    if (number === undefined) {
      number = this.names.push(name) - 1
      this.numbers.set(name, number)
    }
    this.last = name
    this.lastNumber = number
    return number
  }
}

/**
 * Events that arrive one by one. Pools, metadata, tags, categories and granted sizes are in few recordings, so their
 * columns exist from the first value on.
 */
export class EventColumns {
  events = 0
  action: Uint8Array = new Uint8Array(FIRST_CAPACITY)
  address: Float64Array = new Float64Array(FIRST_CAPACITY)
  bytes: Float64Array = new Float64Array(FIRST_CAPACITY)
  /** stream handles */
  stream: Float64Array = new Float64Array(FIRST_CAPACITY)
  timeUs: Float64Array = new Float64Array(FIRST_CAPACITY)
  stack: Int32Array = new Int32Array(FIRST_CAPACITY)
  /** numbers of `pools`, by event */
  protected pool: Uint32Array | null = null
  /** numbers of `metadata`, by event */
  protected metadatum: Uint32Array | null = null
  /** numbers of `tags`, by event */
  protected tag: Uint32Array | null = null
  /** numbers of `categories`, by event */
  protected category: Uint32Array | null = null
  protected granted: Float64Array | null = null

  constructor(
    readonly stacks: StackTable = new StackTable(),
    /** private pools as `a,b`; number 0 is the default pool */
    readonly pools: NameTable = new NameTable(DEFAULT_POOL),
    readonly metadata: NameTable = new NameTable(''),
    readonly tags: NameTable = new NameTable(''),
    readonly categories: NameTable = new NameTable(''),
  ) {}

  /** Appends an event; `stream` is a handle, `stack` a number of `stacks`. Returns the event's number. */
  add(action: number, address: number, bytes: number, stream: number, timeUs: number, stack = 0): number {
    const event = this.events
    if (event === this.action.length) this.grow(2 * event)
    this.action[event] = action
    this.address[event] = address
    this.bytes[event] = bytes
    this.stream[event] = stream
    this.timeUs[event] = timeUs
    this.stack[event] = stack
    this.events = event + 1
    return event
  }

  /** Notes the number, in `pools`, of the pool that an event concerns. */
  notePool(event: number, pool: number): void {
    if (pool === 0 && this.pool === null) return
    this.pool ??= new Uint32Array(this.action.length)
    this.pool[event] = pool
  }

  /** The number, in `pools`, of the pool that an event concerns. */
  protected poolOf(event: number): number {
    return this.pool === null ? 0 : this.pool[event]
  }

  /** Notes the text that the program had set at an alloc event. */
  noteMetadata(event: number, text: string): void {
    if (text === '' && this.metadatum === null) return
    this.metadatum ??= new Uint32Array(this.action.length)
    this.metadatum[event] = this.metadata.number(text)
  }

  /** Notes the tag of an alloc event. */
  noteTag(event: number, tag: string): void {
    if (tag === '' && this.tag === null) return
    this.tag ??= new Uint32Array(this.action.length)
    this.tag[event] = this.tags.number(tag)
  }

  /** Notes what the block of an alloc event was for. */
  noteCategory(event: number, category: string): void {
    this.category ??= new Uint32Array(this.action.length)
    this.category[event] = this.categories.number(category)
  }

  /** Notes the bytes of the block that served an alloc event. */
  noteGranted(event: number, bytes: number): void {
    this.granted ??= new Float64Array(this.action.length).fill(Number.NaN)
    this.granted[event] = bytes
  }

  /** Copies event `from` over event `to`, for a reader that drops events. */
  move(from: number, to: number): void {
    if (from === to) return
    this.action[to] = this.action[from]
    this.address[to] = this.address[from]
    this.bytes[to] = this.bytes[from]
    this.stream[to] = this.stream[from]
    this.timeUs[to] = this.timeUs[from]
    this.stack[to] = this.stack[from]
    for (const column of [this.pool, this.metadatum, this.tag, this.category, this.granted]) {
      if (column !== null) column[to] = column[from]
    }
  }

  /** Makes `to` an excerpt of these events: the same memory, from event `from` to event `end`. */
  protected excerpt(to: EventColumns, from: number, end: number): void {
    to.events = end - from
    to.action = this.action.subarray(from, end)
    to.address = this.address.subarray(from, end)
    to.bytes = this.bytes.subarray(from, end)
    to.stream = this.stream.subarray(from, end)
    to.timeUs = this.timeUs.subarray(from, end)
    to.stack = this.stack.subarray(from, end)
    to.pool = this.pool?.subarray(from, end) ?? null
    to.metadatum = this.metadatum?.subarray(from, end) ?? null
    to.tag = this.tag?.subarray(from, end) ?? null
    to.category = this.category?.subarray(from, end) ?? null
    to.granted = this.granted?.subarray(from, end) ?? null
  }

  /**
   * Makes room for as many events. A system gives memory to a page when it is first written, so too large a number
   * costs little; growing holds each column twice.
   */
  reserve(events: number): void {
    if (events > this.action.length) this.grow(events)
  }

  private grow(capacity: number): void {
    this.action = enlarged(this.action, new Uint8Array(capacity))
    this.address = enlarged(this.address, new Float64Array(capacity))
    this.bytes = enlarged(this.bytes, new Float64Array(capacity))
    this.stream = enlarged(this.stream, new Float64Array(capacity))
    this.timeUs = enlarged(this.timeUs, new Float64Array(capacity))
    this.stack = enlarged(this.stack, new Int32Array(capacity))
    if (this.pool !== null) this.pool = enlarged(this.pool, new Uint32Array(capacity))
    if (this.metadatum !== null) this.metadatum = enlarged(this.metadatum, new Uint32Array(capacity))
    if (this.tag !== null) this.tag = enlarged(this.tag, new Uint32Array(capacity))
    if (this.category !== null) this.category = enlarged(this.category, new Uint32Array(capacity))
    if (this.granted !== null) this.granted = enlarged(this.granted, new Float64Array(capacity).fill(Number.NaN))
  }
}

function enlarged<T extends Uint8Array | Int32Array | Uint32Array | Float64Array>(from: T, to: T): T {
  to.set(from)
  return to
}
