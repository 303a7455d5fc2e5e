// Calls cut short at a chosen point. The engine stops a script, and notices a full stack, where a function begins; so a cut
// anywhere is a cut at the beginning of the nth method that a program calls. A script is stopped as by Ctrl-C in a REPL, and
// runs no `finally` block then.

import { Script } from 'node:vm'
import { Random } from '../src/base/random.js'
import { replacePrivate } from './replace-method.js'

export const CUTS = ['a stopped script', 'a full stack'] as const

/** Some of the points from 1 to `count`, at most so many. */
export function choosePoints(count: number, most: number, seed: number): number[] {
  const points = Array.from({ length: count }, (_, index) => index + 1)
  const random = new Random(seed)
  while (points.length > most) points.splice(random.below(points.length), 1)
  return points
}

const NOTHING = new Int32Array(new SharedArrayBuffer(4))

/** Methods and getters of classes, at the beginning of which programs can be cut short. */
export class CutPoints {
  private readonly mends: (() => void)[] = []
  /** how many more begin until the cut; none comes below 1 */
  private left = 0

  constructor(
    classes: readonly { readonly prototype: object }[],
    private readonly cut: (typeof CUTS)[number],
  ) {
    for (const { prototype } of classes) {
      for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
        if (typeof property.value === 'function' && name !== 'constructor') this.watch(prototype, name)
        if (property.get !== undefined) this.watchGetter(prototype, name, property, property.get)
      }
    }
  }

  /** How many methods begin in `program`, which runs to its end. */
  count(program: () => void): number {
    this.left = Number.MAX_SAFE_INTEGER
    program()
    return Number.MAX_SAFE_INTEGER - this.left
  }

  /** Runs `program` up to where the nth method begins. */
  run(nth: number, program: () => void): void {
    Object.assign(globalThis, { programToCut: program })
    this.left = nth
    try {
      if (this.cut === 'a full stack') program()
      else new Script('programToCut()').runInThisContext({ breakOnSigint: true })
    } catch (error) {
      if (this.left > 0) throw error
    } finally {
      this.left = 0
    }
  }

  /** Makes the classes what they were. */
  restore(): void {
    for (const mend of this.mends.splice(0)) mend()
  }

  private watch(prototype: object, name: string): void {
    const begin = () => this.begin()
    const mend = replacePrivate(
      prototype,
      name,
      original =>
        function (this: never, ...args: never[]) {
          begin()
          return original.apply(this, args)
        },
    )
    this.mends.push(mend)
  }

  private watchGetter(prototype: object, name: string, property: PropertyDescriptor, original: () => unknown): void {
    const begin = () => this.begin()
    const get = function (this: unknown): unknown {
      begin()
      return original.call(this)
    }
    Object.defineProperty(prototype, name, { ...property, get })
    this.mends.push(() => Object.defineProperty(prototype, name, property))
  }

  private begin(): void {
    if (this.left === 0 || --this.left > 0) return
    if (this.cut === 'a full stack') throw new RangeError('Maximum call stack size exceeded')
    process.kill(process.pid, 'SIGINT')
    for (;;) Atomics.wait(NOTHING, 0, 0) // until the script is stopped
  }
}
