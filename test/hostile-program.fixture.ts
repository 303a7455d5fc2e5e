// A random program of public calls with any arguments, checked after each call and at the end.

import assert from 'node:assert/strict'
import { channel } from 'node:diagnostics_channel'
import { setTimeout } from 'node:timers/promises'
import { Random } from '../src/core/base/random.js'
import { Wrapper } from '../src/core/pool/wrappers/wrapper.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { type Device, type Event, KiB, MiB, openDevices, PoolError, type PoolStats, type Stream } from '../src/index.js'
import { CALLS, kindOf } from './hostile-calls.fixture.js'
import { type Callback, Drawing } from './hostile-drawing.fixture.js'
import { makersOf } from './hostile-makers.fixture.js'
import { assertTyped, shown, throwOwn } from './hostile-values.fixture.js'

const CHANNELS = ['grow', 'release', 'wait', 'out-of-memory'].map(name => channel(`cuda-mempool:${name}`))
const MOST_POOLS = 9
const USUAL = ['allocate', 'allocate', 'tryAllocate', 'free']
const OFTEN = [...Array(4).fill(['pools', 'buffers']).flat(), 'streams', 'graphs', 'sets'] as readonly string[]
const MADE_OFTEN = ['createPool', 'createPool', 'createPool', 'createHostPool', 'spillable', 'spillable']

/** A pool with counters of its own. */
interface Source {
  readonly context: unknown
  readonly closed: boolean
  stats(): PoolStats
  check?(): void
  close(): unknown
}

export class HostileProgram {
  readonly log: string[] = []
  done = 0
  refused = 0
  private readonly random: Random
  private readonly drawing: Drawing
  private readonly driver: SimulatedDriver
  private readonly devices: Device[]
  private readonly things: Record<string, object[]> = {}
  /** pools that have counters of their own */
  private readonly sources: Source[] = []
  /** how many promises have not settled */
  private underWay = 0
  /** the reasons of aborted signals */
  private readonly reasons = new Set<unknown>()
  /** the first thing that did not hold */
  private wrong: unknown = null
  /** The calls of this program: with fewer of them, the same ones meet more often. */
  private readonly chosen: Readonly<Record<string, readonly string[]>>
  private readonly holds: (() => void)[] = []
  private readonly subscriber = this.callback('subscriber')
  private depth = 0
  /** how often the program's callbacks were called */
  private calledBack = 0
  private isOver = false

  constructor(readonly seed: number) {
    this.random = new Random(seed)
    const share = [0.3, 0.6, 1][this.random.below(3)]
    this.chosen = Object.fromEntries(
      Object.entries(CALLS).map(([kind, calls]) => [
        kind,
        Object.keys(calls).filter(() => this.random.fraction() < share),
      ]),
    )
    const progress = (['eager', 'seeded'] as const)[this.random.below(2)]
    const granularityBytes = [64 * KiB, 2 * MiB][this.random.below(2)]
    this.driver = new SimulatedDriver({ devices: 2, capacityBytes: 32 * MiB, granularityBytes, progress, seed })
    this.devices = openDevices(this.driver)
    this.drawing = new Drawing(this.random, this.devices, this.things, name => this.callback(name))
    for (const kind of [...Object.keys(CALLS), 'marks']) this.things[kind] = []
    this.things['devices'] = [this.devices[0], this.devices[0], this.devices[0], this.devices[1]]
    this.things['streams'] = this.devices.flatMap(device => [device.defaultStream, device.createStream()])
    this.things['streams'].push(this.devices[0].createStream())
    this.things['events'] = this.devices.map(device => device.createEvent())
    for (const [index, event] of (this.things['events'] as Event[]).entries())
      event.record(this.devices[index].defaultStream)
    this.things['signals'] = [new AbortController(), new AbortController()]
    for (let count = 2 + this.drawing.below(4); count > 0; count--) this.makePool()
  }

  async run(): Promise<void> {
    const subscribed = this.drawing.below(4) === 0 ? this.drawing.pick(CHANNELS) : null
    subscribed?.subscribe(this.subscriber)
    try {
      for (let steps = 20 + this.drawing.below(40); steps > 0; steps--) {
        this.step()
        if (this.drawing.below(6) === 0) await (this.drawing.below(2) === 0 ? null : new Promise(setImmediate))
        if (this.wrong !== null) throw this.wrong
      }
    } finally {
      subscribed?.unsubscribe(this.subscriber)
    }
    await this.end()
  }

  noteUncaught(error: unknown): void {
    this.note(() => assertTyped(error, this.reasons))
  }

  private step(): void {
    if (this.drawing.below(12) === 0) {
      if (this.sources.length < MOST_POOLS) this.makePool()
      else this.closeOne()
      return
    }
    if (this.drawing.below(20) === 0) this.hold()
    const kinds = [...Object.keys(CALLS), ...OFTEN].filter(kind => this.things[kind].length > 0)
    this.call(this.drawing.pick(kinds))
  }

  /** Work of a stream from now on waits until a later step, or until the host waits for it. */
  private hold(): void {
    const { handle, closed, capture } = this.drawing.pick(this.things['streams'] as Stream[])
    if (closed || capture !== null) return
    this.attempt('hold', () => {
      const ticket = this.driver.holdOperation(handle)
      this.holds.push(() => this.driver.releaseThrough(handle, ticket))
    })
    if (this.holds.length > 2) this.quietly(this.holds.shift()!)
  }

  private closeOne(): void {
    const source = this.drawing.pick(this.sources)
    this.attempt('close of a pool', () => source?.close(), false)
  }

  private makePool(): void {
    const makers = makersOf(this.drawing, this.drawing.pick(this.devices), this.things['pools'], made =>
      this.keep(made),
    )
    const name = this.drawing.pick([...Object.keys(makers), ...MADE_OFTEN])
    this.attempt(name, makers[name])
  }

  /** A call of a random method of a random thing of a kind. */
  private call(kind: string): void {
    const of = this.things[kind]
    const thing = of[of.length - 1 - Math.min(this.drawing.below(of.length), this.drawing.below(of.length))] as Record<
      string,
      unknown
    >
    if (kind === 'stops') {
      this.attempt('stop', () => (thing as unknown as () => void)())
      return
    }
    const names = this.chosen[kind].filter(name => name.replace(/^[=.]/, '') in thing)
    if (names.length === 0) return
    const isAsleep = thing['asleep'] === true && this.drawing.below(3) === 0
    const isUsual = kind === 'pools' && this.drawing.below(3) === 0
    const name = isAsleep ? 'wake' : this.drawing.pick(isUsual ? USUAL : names)
    if (kind === 'devices' && name === 'close' && this.drawing.below(20) > 0) return
    const args = CALLS[kind][name].map(each => this.drawing.any(() => this.drawing.draw(each, thing)))
    while (args.length > 0 && this.drawing.below(4) === 0) args.pop()
    if (kind === 'signals') this.reasons.add(args[0])
    const text = `${thing.constructor.name}#${of.indexOf(thing)}.${name}(${args.map(shown).join(', ')})`
    this.attempt(text, () => {
      if (name.startsWith('.')) return thing[name.slice(1)]
      if (name.startsWith('=')) {
        thing[name.slice(1)] = args[0]
        return undefined
      }
      return Reflect.apply(thing[name] as () => unknown, thing, args)
    })
  }

  /** A callback that does anything. */
  private callback(name: string): Callback {
    return given => {
      this.calledBack++
      if (this.isOver || this.depth > 2) return undefined
      this.keep(given)
      this.log.push(`${'  '.repeat(this.depth)}callback ${name}`)
      for (let steps = this.drawing.below(3); steps > 0; steps--) this.step()
      if (this.drawing.below(12) === 0) this.closeOne()
      switch (this.drawing.below(6)) {
        case 0:
          return throwOwn()
        case 1:
          return this.drawing.pick([true, false, 0, null])
        case 2:
          return Promise.resolve(this.drawing.below(4))
        default:
          return name === 'onFailure' ? false : undefined
      }
    }
  }

  /** Makes a call, and checks its refusal. */
  private attempt(text: string, work: () => unknown, isChecked = true): void {
    this.log.push(`${'  '.repeat(this.depth)}${text}`)
    const pools = [...this.sources]
    const before = isChecked ? this.counters(pools) : null
    const { calledBack } = this
    this.depth++
    try {
      this.keep(work())
      this.done++
    } catch (error) {
      this.noteRefusal(error)
      const isOfArguments = error instanceof TypeError || error instanceof RangeError
      if (isOfArguments && before !== null && this.calledBack === calledBack)
        this.note(() => assert.equal(this.counters(pools), before, `counted by ${text}`))
    } finally {
      this.depth--
    }
  }

  private counters(pools: readonly Source[]): string {
    return JSON.stringify(pools.map(source => (source.closed ? null : this.statsOf(source))))
  }

  private statsOf(source: Source): object | null {
    try {
      return source.stats()
    } catch (error) {
      this.note(() => assertTyped(error, this.reasons)) // a lost device, or in a kernel
      return null
    }
  }

  /** Takes the result of a call into the things of the program. */
  private keep(value: unknown): void {
    if (value instanceof Promise) {
      this.underWay++
      value
        .then(result => this.keep(result))
        .catch(error => this.noteRefusal(error))
        .finally(() => this.underWay--)
      return
    }
    if (typeof value === 'function') this.things['stops'].push(value)
    if (typeof value !== 'object' || value === null) return
    if (Array.isArray(value)) for (const each of value) this.keep(each)
    const kind = kindOf(value)
    if (kind === null || this.things[kind].includes(value)) return
    this.things[kind].push(value)
    if (kind === 'pools' && !(value instanceof Wrapper) && !this.sources.includes(value as Source)) {
      this.sources.push(value as Source)
    }
  }

  private noteRefusal(error: unknown): void {
    this.refused++
    this.log.push(`${'  '.repeat(this.depth)}threw ${shown(error)}`)
    this.note(() => assertTyped(error, this.reasons))
  }

  /** Keeps the error of an assertion: the caller of a callback may drop it. */
  private note(assertion: () => void): void {
    try {
      assertion()
    } catch (error) {
      this.wrong ??= error
    }
  }

  /** Frees and closes everything, and looks whether it is gone. */
  private async end(): Promise<void> {
    this.log.push('end')
    this.isOver = true
    const { things, sources, devices } = this
    for (const controller of things['signals'] as AbortController[]) controller.abort()
    for (const stream of things['streams'] as Stream[]) {
      if (stream.capture !== null) this.quietly(() => (stream.capture!.origin as Stream).abortCapture())
    }
    for (const stop of things['stops'] as unknown as (() => void)[]) this.quietly(stop)
    for (const release of this.holds) this.quietly(release)
    for (const device of devices) this.quietly(() => device.synchronize())
    this.check()
    for (let round = 0; round < 1000 && (round < 3 || this.underWay > 0); round++) {
      this.giveBack()
      await new Promise(setImmediate)
      if (round > 100) await setTimeout(1)
    }
    this.giveBack() // buffers of the last waits
    this.check()
    for (const source of sources) {
      if (source.closed || this.isGone(source)) continue
      const { liveBuffers, liveBytes, requestedBytes } = source.stats()
      const none = { liveBuffers: 0, liveBytes: 0, requestedBytes: 0 }
      assert.deepEqual({ liveBuffers, liveBytes, requestedBytes }, none, source.constructor.name)
    }
    for (const queue of things['queues'] as { close(): Promise<void> }[]) this.keep(queue.close())
    const wereLost = devices.some(device => this.isLost(device))
    for (const device of devices.toReversed()) device.close()
    for (let round = 0; round < 200 && this.underWay > 0; round++) await setTimeout(1)
    assert.equal(this.underWay, 0, 'calls that wait for ever')
    if (this.wrong !== null) throw this.wrong
    const used = [this.driver.usedBytes(0), this.driver.usedBytes(1), this.driver.usedHostBytes()]
    if (!wereLost) assert.deepEqual(used, [0, 0, 0])
  }

  private giveBack(): void {
    const { things } = this
    for (const graph of things['graphs'] as { close(): void }[]) this.quietly(() => graph.close())
    // Views before their arrays, and uses before their spillable buffers.
    for (const buffer of (things['buffers'] as { free(): void; freed: boolean }[]).toReversed()) {
      if (!buffer.freed) this.quietly(() => buffer.free())
    }
    for (const each of [...things['sets'], ...things['leases']] as { close(): void }[]) this.quietly(() => each.close())
  }

  private check(): void {
    for (const source of this.sources) {
      try {
        if (!source.closed && !this.isGone(source)) source.check?.()
      } catch (error) {
        // An observer has refused the close.
        if ((error as { code?: unknown }).code !== 'ERR_POOL_CLOSED') throw error
      }
    }
  }

  private deviceOf({ context }: { readonly context: unknown }): Device {
    return this.devices.find(device => device.context === context)!
  }

  private isLost(device: Device): boolean {
    try {
      if (!device.context.released) device.memoryInfo()
    } catch (error) {
      return !(error instanceof PoolError)
    }
    return false
  }

  private isGone(source: Source): boolean {
    const device = this.deviceOf(source)
    return device.context.released || this.isLost(device)
  }

  private quietly(work: () => unknown): void {
    try {
      work()
    } catch (error) {
      this.noteRefusal(error)
    }
  }
}
