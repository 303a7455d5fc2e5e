// Draws operations one by one, by their weights. Subclasses fill in the details of each operation.

import type { Random } from '../src/core/base/random.js'
import type { FaultRule } from '../src/entries/simulated.js'
import type { Spacer } from './settings.js'

/** Of so many times that a spacer is drawn to be freed, one does it. */
const SPACER_LIFE = 200
const PARTS_OF_GAP = 2

/** Calls that can be refused without confusing the program itself, and the operations that make them. */
export type Refusals<Verb> = readonly (readonly [call: FaultRule['call'], verbs: readonly Verb[]])[]

export abstract class Drawing<Operation, Verb extends string> {
  /** numbers used so far */
  protected named = 0
  /** operations that come next, before any are drawn */
  protected readonly planned: Operation[] = []
  /** buffers that keep the free memory between them apart */
  private readonly spacers = new Set<number>()
  private readonly verbs: readonly Verb[]

  /** A verb is drawn as often as its share of all weights says. */
  constructor(
    protected readonly random: Random,
    weights: Readonly<Record<Verb, number>>,
    isWanted: (verb: Verb) => boolean,
  ) {
    const verbs = (Object.keys(weights) as Verb[]).filter(isWanted)
    this.verbs = verbs.flatMap(verb => Array<Verb>(weights[verb] * 10).fill(verb))
  }

  next(): Operation {
    return this.planned.shift() ?? this.draw(this.one(this.verbs))
  }

  protected abstract draw(verb: Verb): Operation

  /** A refusal of a call, and next an operation that makes the call. */
  protected refuse(refusals: Refusals<Verb>): { do: 'refuse'; call: FaultRule['call']; nth: number } {
    const [call, verbs] = this.one(refusals)
    this.planned.push(this.draw(this.one(verbs)))
    // A call of any name may be far into a sleep or a wake.
    const nth = call === '*' ? 1 + this.random.below(this.one([4, 30])) : this.random.below(3) === 0 ? 2 : 1
    return { do: 'refuse', call, nth }
  }

  /** A free on the buffer's own stream, or sometimes on a different stream. */
  protected freeOf(buffer: number, stream: () => number) {
    const { random } = this
    const operation = {
      do: 'free',
      buffer,
      announce: random.below(2) === 0,
      byAddress: random.below(6) === 0,
    } as const
    return random.below(4) > 0 ? operation : { ...operation, stream: stream() }
  }

  /** Plans blocks that stay, and blocks between them that go at once. */
  protected planSpacers(
    spacers: readonly Spacer[],
    allocate: (buffer: number, bytes: number) => Operation,
    free: (buffer: number) => Operation,
  ): void {
    const gaps: number[] = []
    for (const { bytes, gapBytes } of spacers) {
      this.spacers.add(++this.named)
      this.planned.push(allocate(this.named, bytes))
      for (let part = 0; part < PARTS_OF_GAP; part++) {
        gaps.push(++this.named)
        this.planned.push(allocate(this.named, Math.floor(gapBytes / PARTS_OF_GAP)))
      }
    }
    this.planned.push(...gaps.map(free))
  }

  /** Whether so few of them are left that free memory is hardly kept apart. */
  protected lacksSpacers(spacers: readonly Spacer[], held: ReadonlyMap<number, unknown>): boolean {
    let left = 0
    for (const name of this.spacers) if (held.has(name)) left++
    return left < spacers.length * 0.75
  }

  /** A buffer to let go of, seldom one that keeps free memory apart. */
  protected unwanted(held: ReadonlyMap<number, { readonly bytes: number }>): number {
    const buffer = this.key(held)
    if (!this.spacers.has(buffer) || this.random.below(SPACER_LIFE) === 0) return buffer
    return this.key(new Map([...held].filter(([name]) => !this.spacers.has(name)))) || buffer
  }

  protected key(map: ReadonlyMap<number, unknown>): number {
    let rest = this.random.below(map.size)
    for (const key of map.keys()) if (rest-- === 0) return key
    return 0
  }

  protected one<T>(choices: readonly T[]): T {
    return choices[this.random.below(choices.length)]
  }
}
