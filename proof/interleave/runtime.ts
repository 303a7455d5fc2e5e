// What rewritten code calls its `$` (rewrite.ts). An access is in two halves: the first says what will be done, and
// answers whether the thread must stop; the second does it.

import { arrayMethods } from './array-callbacks.js'
import { addressOf, type Words } from './memory.js'
import type { Routine, Scheduler } from './scheduler.js'

interface Access {
  readonly where: string
  readonly words: Words
  readonly index: number
  value: number
  old: number
  operation: string
  readonly operands: readonly number[]
}

/** Generators of the language. */
function Generators() {}
Generators.prototype = Object.getPrototypeOf(function* () {}).prototype

/** What a generator of the project's own yields, unlike a thread that stops. */
class Box {
  constructor(readonly value: unknown) {}
}

type Constructed = { $init(...args: unknown[]): Routine }

export class Runtime {
  /** what a call has just returned */
  value: unknown
  readonly arrays = arrayMethods(value => this.run(value))
  private readonly buffers = new WeakMap<ArrayBufferLike, number>()
  private buffersSeen = 0
  /** by thread: accesses that have begun, the innermost one last */
  private open: Access[][] = []

  constructor(
    /** the kind of processor */
    readonly arch: string,
    public scheduler: Scheduler,
  ) {}

  /** Another run begins. */
  reset(scheduler: Scheduler): void {
    this.scheduler = scheduler
    this.open = scheduler.threads.map(() => [])
  }

  /** `isPoint` false: others go on later. */
  at(where: string, words: Words, index: number, isPoint = true): boolean {
    this.mine.push({ where, words, index, value: 0, old: 0, operation: '', operands: [] })
    return isPoint && isShared(words) && this.scheduler.point(where)
  }

  read(): number {
    const access = this.mine.pop()!
    const value = this.load(access.words, access.index)
    if (this.scheduler.trace !== null) this.tell(access, `finds ${value}`)
    return value
  }

  to(where: string, words: Words, index: number, value: number): boolean {
    this.mine.push({ where, words, index, value, old: 0, operation: '', operands: [] })
    return isShared(words) && this.scheduler.point(where)
  }

  write(): number {
    const access = this.mine.pop()!
    if (this.scheduler.trace !== null) this.tell(access, `stores ${access.value}`)
    return this.store(access.words, access.index, access.value)
  }

  /** The first part of `words[index] += …`, after `at`; `change` says what will be stored, and `end` stores that. */
  old(): number {
    const access = this.mine.at(-1)!
    access.old = this.load(access.words, access.index)
    return access.old
  }

  change(value: number, isOld: boolean, isPoint: boolean): boolean {
    const access = this.mine.at(-1)!
    access.value = value
    access.operation = isOld ? 'old' : ''
    return isPoint && isShared(access.words) && this.scheduler.point(access.where)
  }

  end(): number {
    const access = this.mine.pop()!
    const { words, index, value, old, operation } = access
    if (this.scheduler.trace !== null) this.tell(access, `finds ${old}, stores ${value}`)
    this.store(words, index, value)
    return operation === 'old' ? old : value
  }

  load(words: Words, index: number): number {
    return isShared(words) ? this.scheduler.memory.load(this.scheduler.current.index, words, index) : words[index]
  }

  store(words: Words, index: number, value: number): number {
    if (isShared(words) && index < words.length) {
      this.scheduler.memory.store(this.scheduler.current.index, words, index, value)
    } else words[index] = value
    return value
  }

  /** Native code is about to touch all of an array. */
  bulk<W>(words: W): W {
    if (words !== undefined && isShared(words as Words)) this.scheduler.memory.settle(this.scheduler.current.index)
    return words
  }

  atomic(where: string, operation: string, words: Words, index: number, ...operands: number[]): boolean {
    this.mine.push({ where, words, index, value: 0, old: 0, operation, operands })
    return isShared(words) && this.scheduler.point(where)
  }

  done(): number {
    const access = this.mine.pop()!
    const result = this.perform(access)
    if (this.scheduler.trace !== null) this.tell(access, `gives ${result}`)
    return result
  }

  *wait(words: Words, index: number, expected: number, milliseconds = Infinity): Routine {
    const { scheduler } = this
    if (scheduler.point('wait')) yield
    scheduler.memory.settle(scheduler.current.index)
    if (words[index] !== expected) return 'not-equal'
    const { current } = scheduler
    scheduler.sleep(this.keyOf(words, index), milliseconds)
    yield
    return current.outcome
  }

  /** Runs what a call has returned, if it is a generator of ours, without a stop. */
  drive(value: unknown): unknown {
    if (!this.is(value)) return value
    this.scheduler.atOnce++
    try {
      const { done, value: result } = value.next()
      if (!done) throw new Error('stops in what happens at once')
      return result
    } finally {
      this.scheduler.atOnce--
    }
  }

  *run(value: unknown): Routine {
    return this.is(value) ? yield* value : value
  }

  is(value: unknown): value is Routine {
    return value instanceof Generators
  }

  *get(object: Record<string, unknown>, name: string, isOptional = false): Routine {
    if (isOptional && (object === undefined || object === null)) return undefined
    const getter = object[`${name}$get`] as (() => Routine) | undefined
    return getter === undefined ? object[name] : yield* getter.call(object)
  }

  *construct(type: new (...args: unknown[]) => Constructed, ...args: unknown[]): Routine {
    if (type.prototype.$init === undefined) return new type(...args)
    const object = Object.create(type.prototype) as Constructed
    yield* object.$init(...args)
    return object
  }

  bound(self: unknown, routine: (...args: unknown[]) => Routine): (...args: unknown[]) => Routine {
    return routine.bind(self)
  }

  box(value: unknown): Box {
    return new Box(value)
  }

  /** The next value of a generator of the project's own. */
  *next(from: Iterator<unknown>): Generator<unknown, { done: boolean; value: unknown }> {
    for (;;) {
      const { done = false, value } = from.next()
      if (done || !this.is(from)) return { done, value }
      if (value instanceof Box) return { done, value: value.value }
      yield
    }
  }

  *collect(from: Iterator<unknown>): Routine {
    const values: unknown[] = []
    for (let one = yield* this.next(from); !one.done; one = yield* this.next(from)) values.push(one.value)
    return values
  }

  now(): number {
    return this.scheduler.now
  }

  /** A call that may be cut short; whether it was done. */
  *mayBeCut(work: () => unknown): Routine {
    const { current } = this.scheduler
    const routine = this.run(work())
    const depth = this.mine.length
    for (current.cuttable++; !routine.next().done; ) {
      if (current.isCut) {
        current.isCut = false
        current.cuttable--
        this.mine.length = depth
        return false
      }
      yield
    }
    current.cuttable--
    return true
  }

  *mayDie(work: () => unknown): Routine {
    const { current } = this.scheduler
    current.isMortal = true
    yield* this.run(work())
    current.isMortal = false
    return undefined
  }

  *pause(): Routine {
    if (this.scheduler.pause()) yield
    return undefined
  }

  private get mine(): Access[] {
    return this.open[this.scheduler.current.index]
  }

  private perform({ operation, words, index, operands }: Access): number {
    const { memory, current } = this.scheduler
    const [value, second] = operands
    if (operation === 'notify') return this.scheduler.wake(this.keyOf(words, index), value ?? Infinity)
    if (operation === 'load') return memory.atomicLoad(current.index, words, index)
    const next = (old: number): number | null => {
      if (operation === 'compareExchange') return old === value ? second : null
      if (operation === 'add') return old + value
      if (operation === 'sub') return old - value
      if (operation === 'and') return old & value
      if (operation === 'or') return old | value
      if (operation === 'xor') return old ^ value
      return value
    }
    const old = memory.exchange(current.index, words, index, next)
    return operation === 'store' ? value : old
  }

  private keyOf(words: Words, index: number): string {
    return `${this.numberOf(words.buffer)} ${addressOf(words, index)}`
  }

  private numberOf(buffer: ArrayBufferLike): number {
    const known = this.buffers.get(buffer) ?? ++this.buffersSeen
    this.buffers.set(buffer, known)
    return known
  }

  private tell({ where, words, index }: Access, what: string): void {
    if (isShared(words)) this.scheduler.tell(`${where}: [${index}] ${what}`)
  }
}

function isShared(words: Words): boolean {
  return words.buffer instanceof SharedArrayBuffer
}
