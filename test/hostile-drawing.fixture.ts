// Draws the arguments of hostile programs: right ones, and now and then any other value.

import { MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import { DeviceArray } from '../src/core/pool/array.js'
import { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { Device, Stream } from '../src/index.js'
import { contextOf, isOver, type Kind } from './hostile-calls.fixture.js'
import { ALL_TRAPS, HOSTILE, OWN_ERROR } from './hostile-values.fixture.js'

const TYPES = [Uint8Array, Int16Array, Float32Array, Float64Array, BigInt64Array]

/** A callback of the program. */
export type Callback = (...args: readonly unknown[]) => unknown

/** Draws the arguments of calls. */
export class Drawing {
  /** how often an argument is any value */
  private readonly hostile: number

  constructor(
    private readonly random: Random,
    private readonly devices: readonly Device[],
    /** the things of the program, by kind */
    private readonly things: Readonly<Record<string, object[]>>,
    /** makes a callback that does anything */
    readonly callback: (name: string) => Callback,
  ) {
    this.hostile = this.pick([0.02, 0.1, 0.3])
  }

  /** A whole number from 0, below `limit`. */
  below(limit: number): number {
    return this.random.below(limit)
  }

  /** One of the values. */
  pick<T>(values: readonly T[]): T {
    return values[this.below(values.length)]
  }

  /** A right value, or now and then any other one. */
  any(right: () => unknown): unknown {
    if (this.random.fraction() >= this.hostile) return right()
    if (this.below(3) > 0) return this.pick(HOSTILE)
    const thing = this.pick(
      Object.values(this.things)
        .flat()
        .filter(each => !(each instanceof AbortController)),
    )
    return this.below(3) === 0 ? new Proxy(thing, this.below(2) === 0 ? {} : ALL_TRAPS) : thing
  }

  /** Options, or now and then any value, an unknown name, or a getter that throws. */
  options(options: Record<string, unknown>): never {
    for (const [name, value] of Object.entries(options)) if (value === undefined) delete options[name]
    if (this.random.fraction() < this.hostile) {
      if (this.below(2) === 0) return this.any(() => options) as never
      const name = this.pick([...Object.keys(options), 'other'])
      Object.defineProperty(options, name, { get: this.callback('getter'), enumerable: true })
    }
    return options as never
  }

  private signal(): object {
    const controller = this.pick(this.things['signals']) as AbortController
    return this.options(this.below(2) === 0 ? {} : { signal: controller.signal })
  }

  /** An argument for a call of `thing`. */
  draw(kind: Kind, thing: object = {}): unknown {
    const { random } = this
    switch (kind) {
      case 'bytes':
        return random.logUniform(1, 4 * MiB)
      case 'list':
        return Array.from({ length: this.below(6) }, () => this.any(() => this.draw('bytes')))
      case 'size':
        return this.below(3) === 0 ? 0 : random.logUniform(1, 8 * MiB)
      case 'small':
        return this.pick([undefined, 0, 1, 8, 256, random.below(2000)])
      case 'value':
        return this.pick([0, 255, 1n])
      case 'count':
        return random.logUniform(1, 10_000)
      case 'alignment':
        return this.below(3) === 0 ? 2 ** this.below(22) : undefined
      case 'stream':
        return this.below(3) === 0 ? undefined : this.near('streams', thing)
      case 'capturable':
        return this.pick((this.things['streams'] as Stream[]).filter(({ owned, isOpen }) => owned && isOpen))
      case 'copied':
        return this.near('buffers', thing, each => each instanceof DeviceBuffer || each instanceof DeviceArray)
      case 'memory':
        return this.near('buffers', thing)
      case 'event':
        return this.pick(this.things['events'])
      case 'type':
        return this.pick(TYPES)
      case 'typed':
        return new (this.pick(TYPES))(this.below(300))
      case 'wait':
        return this.signal()
      case 'sleep':
        return this.options({
          onProgress: this.below(3) === 0 ? this.callback('onProgress') : undefined,
          unchanged: this.below(2) === 0,
        })
      case 'wake':
        return this.options({
          onProgress: this.below(3) === 0 ? this.callback('onProgress') : undefined,
          wait: this.pick(['host', 'streams']),
        })
      case 'mode':
        return this.pick([undefined, 'global', 'threadLocal', 'relaxed'])
      case 'callback':
        return this.callback('work')
      case 'observer':
        return { ready: this.callback('ready'), leaving: this.callback('leaving') }
      case 'mark':
        return this.pick(this.things['marks'].filter(mark => (mark as { arena?: unknown }).arena === thing))
      case 'device':
        return this.pick(this.devices)
      case 'access':
        return this.pick(['readWrite', 'none'])
      case 'ptr':
        return this.pick([0, 1, 2, random.below(2 ** 32), this.ptrOf(this.near('buffers', thing))])
      case 'text':
        return this.pick(['one', 'two', 'weights'])
      case 'use':
        return this.options({ writes: this.below(2) === 0 })
      case 'shape':
        return this.options({ grid: this.any(() => 1), block: this.any(() => 32), stream: this.draw('stream', thing) })
      case 'timing':
        return this.below(2) === 0 ? undefined : this.options({ timing: true })
      case 'answer':
        return this.pick([undefined, OWN_ERROR])
    }
  }

  /** A thing of a kind: most often one of the same pool, or else of the same device. */
  private near(kind: string, thing: object, fits: (each: object) => boolean = () => true): unknown {
    const all = this.things[kind].filter(fits)
    if (all.length === 0) return undefined
    const own = all.filter(each => (each as { pool?: unknown }).pool === thing && !isOver(each))
    if (own.length > 0 && this.below(4) > 0) return this.pick(own)
    const context = contextOf(thing)
    const same = all.filter(each => contextOf(each) === context && !isOver(each))
    return same.length > 0 && this.below(8) > 0 ? this.pick(same) : this.pick(all)
  }

  private ptrOf(memory: unknown): unknown {
    try {
      return (memory as { ptr: number }).ptr
    } catch {
      return 0
    }
  }
}
