// Calls cut short at a chosen point. V8 stops a script, or notices a full stack, only where a function begins;
// built-in functions like Atomics.store count. So a cut is at the beginning of the nth method that a program calls. A
// stopped script, as by Ctrl-C in a REPL, runs no `finally` block. The simulated device is not cut: its calls stand
// for the driver's.

import { Script } from 'node:vm'
import { Random } from '../src/core/base/random.js'
import { ServedDriver } from '../src/core/driver/simulated/remote/served-driver.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { replacePrivate } from './replace-method.js'

export const CUTS = ['a stopped script', 'a full stack'] as const

/** Up to `most` of the points from 1 to `count`. */
export function choosePoints(count: number, most: number, seed: number): number[] {
  const points = Array.from({ length: count }, (_, index) => index + 1)
  const random = new Random(seed)
  while (points.length > most) points.splice(random.below(points.length), 1)
  return points
}

/** Objects with built-in functions that the library calls. */
const BUILT_IN: readonly object[] = [
  Atomics,
  Math,
  Map.prototype,
  Set.prototype,
  Array.prototype,
  Object.getPrototypeOf(Int32Array.prototype),
]
const { wait } = Atomics
const NOTHING = new Int32Array(new SharedArrayBuffer(4))

/** Cuts programs short at the beginning of methods and getters of classes, and of built-in functions. */
export class CutPoints {
  private readonly mends: (() => void)[] = []
  /** functions that still begin before the cut; below 1, no cut comes */
  private left = 0
  /** calls of the device that are under way */
  private inDevice = 0

  constructor(
    classes: readonly { readonly prototype: object }[],
    private readonly cut: (typeof CUTS)[number],
  ) {
    for (const { prototype } of [SimulatedDriver, ServedDriver]) {
      // The calls of a simulated driver are spread over its base classes.
      for (let part: object = prototype; part !== Object.prototype; part = Object.getPrototypeOf(part)) {
        for (const name of methodsOf(part)) this.leaveOut(part, name)
      }
    }
    for (const prototype of [...classes.map(one => one.prototype), ...BUILT_IN]) {
      for (const name of methodsOf(prototype)) this.watch(prototype, name)
    }
    for (const { prototype } of classes) {
      for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
        if (property.get !== undefined) this.watchGetter(prototype, name, property, property.get)
      }
    }
  }

  /** Counts the methods that begin in `program`, which runs to its end. */
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

  /** Restores the classes. */
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

  private leaveOut(prototype: object, name: string): void {
    const enter = () => this.inDevice++
    const leave = () => this.inDevice--
    const mend = replacePrivate(
      prototype,
      name,
      original =>
        function (this: never, ...args: never[]) {
          enter()
          try {
            return original.apply(this, args)
          } finally {
            leave()
          }
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
    if (this.left === 0 || this.inDevice > 0 || --this.left > 0) return
    if (this.cut === 'a full stack') throw new RangeError('Maximum call stack size exceeded')
    process.kill(process.pid, 'SIGINT')
    // Until the script is stopped. A wait without an end does not notice a stop that came just before it.
    for (;;) wait(NOTHING, 0, 0, 1)
  }
}

function methodsOf(prototype: object): string[] {
  return Object.entries(Object.getOwnPropertyDescriptors(prototype))
    .filter(([name, { value, writable }]) => typeof value === 'function' && writable === true && name !== 'constructor')
    .map(([name]) => name)
}
