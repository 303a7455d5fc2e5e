// Draws operations one by one, by their weights. Subclasses fill in the details of each operation.

import type { Random } from '../src/base/random.js'
import type { FaultRule } from '../src/driver/simulated/index.js'

/** Calls that can be refused without confusing the program itself, and the operations that make them. */
export type Refusals<Verb> = readonly (readonly [call: FaultRule['call'], verbs: readonly Verb[]])[]

export abstract class Drawing<Operation, Verb extends string> {
  /** numbers used so far */
  protected named = 0
  /** operations that come next, before any are drawn */
  protected readonly planned: Operation[] = []
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
    return { do: 'refuse', call, nth: this.random.below(3) === 0 ? 2 : 1 }
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

  protected key(map: ReadonlyMap<number, unknown>): number {
    let rest = this.random.below(map.size)
    for (const key of map.keys()) if (rest-- === 0) return key
    return 0
  }

  protected one<T>(choices: readonly T[]): T {
    return choices[this.random.below(choices.length)]
  }
}
