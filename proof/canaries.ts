// The rules of stream order, each of which can be broken: a proof that would not notice proves nothing. A rule is broken by
// replacing a method for as long as a program runs; the product knows nothing of this.

import { SimulatedDriver } from '../src/driver/simulated/index.js'
import { Double, State, Word } from '../src/heap/records.js'
import { SegregatedFit } from '../src/heap/segregated-fit.js'
import { Clocks, MOST_STREAMS, type Reach } from '../src/order/clocks.js'
import { Event } from '../src/order/event.js'
import { Stream } from '../src/order/stream.js'
import { CachingPool } from '../src/pool/caching-pool.js'
import { Deferred, type Use } from '../src/pool/deferred.js'
import { OtherStreams } from '../src/pool/other-streams.js'
import { VirtualBacking } from '../src/pool/virtual-backing.js'

interface Canary {
  /** what the broken library does */
  readonly broken: string
  /** breaks the rule; returns what mends it */
  readonly break: () => () => void
}

export const CANARIES = {
  'stamp before record': {
    broken: 'the clock ticks after the mark is placed: what is freed in between is covered by it',
    break: () => {
      const late = new WeakMap<Clocks, Set<number>>()
      return replace(
        Clocks.prototype,
        'tick',
        () =>
          function (this: Clocks, slot: number): Reach {
            const slots = late.get(this) ?? new Set()
            late.set(this, slots)
            if (slots.has(slot)) this.marked[slot]++
            slots.add(slot)
            const reach = this['reachOf'](slot)
            reach[slot]++
            return reach
          },
      )
    },
  },
  'wait before publish': {
    broken: 'what a stream waits for is written down first, and stays though the driver refuses the wait',
    break: () =>
      replace(
        Event.prototype,
        'delay',
        original =>
          function (this: Event, stream: Stream): void {
            if (this['clocks'] === stream.clocks) stream.clocks.follow(stream.slot, this['reach'])
            original.call(this, stream)
          },
      ),
  },
  'mark before synchronise': {
    broken: 'a stream is synchronised without a mark: what is freed next counts as complete',
    break: () =>
      replace(
        Stream.prototype,
        'synchronize',
        () =>
          function (this: Stream): void {
            this.context.activate().cuStreamSynchronize(this.handle)
            const reach = this.clocks['reachOf'](this.slot)
            reach[this.slot]++
            this.clocks.learn(reach, true)
          },
      ),
  },
  'mark before device synchronise': {
    broken: 'the device is synchronised without marks: what is freed next counts as complete',
    break: () =>
      replace(
        Clocks.prototype,
        'synchronize',
        () =>
          function (this: Clocks): void {
            this.context.activate().cuCtxSynchronize()
            const isOpen = (slot: number) => Number(this.streams[slot] !== null)
            this.learn(
              this.marked.slice(0, this.slotLimit).map((stamp, slot) => stamp + isOpen(slot)),
              true,
            )
          },
      ),
  },
  'reach copied at the mark': {
    broken: 'an event passes on what its stream has come to know since the record',
    break: () =>
      replace(
        Event.prototype,
        'delay',
        original =>
          function (this: Event, stream: Stream): void {
            const recorded = this['reach']
            const slot = recordedOn.get(this)
            const row = slot === undefined ? recorded : this['clocks']!['reachOf'](slot)
            this['reach'] = recorded.map((stamp, other) => (other === slot ? stamp : Math.max(stamp, row[other])))
            original.call(this, stream)
            this['reach'] = recorded
          },
        replace(
          Event.prototype,
          'record',
          original =>
            function (this: Event, stream: Stream): void {
              original.call(this, stream)
              recordedOn.set(this, stream.slot)
            },
        ),
      ),
  },
  'order runs one way': {
    broken: 'the stream that an event was recorded on comes to know what the one knows that waits for it',
    break: () =>
      replace(
        Clocks.prototype,
        'follow',
        original =>
          function (this: Clocks, later: number, reach: Reach): void {
            original.call(this, later, reach)
            const own = reach.reduce(
              (best, stamp, slot) => (stamp > 0 && this.marked[slot] === stamp ? slot : best),
              -1,
            )
            if (own !== -1 && own !== later) original.call(this, own, this['reachOf'](later))
          },
      ),
  },
  'an answer of no is no knowledge': {
    broken: 'a stream that was asked counts as complete, whatever the driver answered',
    break: () =>
      replace(
        Stream.prototype,
        'query',
        () =>
          function (this: Stream): boolean {
            const reach = this.clocks.tick(this.slot)
            const answer = this.context.activate().cuStreamQuery(this.handle)
            this.clocks.learn(reach, false)
            return answer
          },
      ),
  },
  'inserted waits are made': {
    broken: 'the pool notes that a stream waits for another one, and does not make it wait',
    break: () =>
      replace(
        Clocks.prototype,
        'order',
        () =>
          function (this: Clocks, later: number, earlier: number): boolean {
            this.follow(later, this['reachOf'](earlier))
            return true
          },
      ),
  },
  'inserted waits cover the stamp': {
    broken: 'a stream is made to wait for the oldest mark, whether it covers the free or not',
    break: () =>
      replace(
        OtherStreams.prototype,
        'waitFor',
        original =>
          function (this: OtherStreams, slot: number, other: number, stamp: number): void {
            original.call(this, slot, other, Math.min(stamp, this['clocks'].completed[other] + 1))
          },
      ),
  },
  'a free is stamped': {
    broken: 'a freed block may be used by any stream at once',
    break: () =>
      replace(
        CachingPool.prototype,
        'release',
        original =>
          function (this: CachingPool, buffer, stream): void {
            const marked = this['marked']
            const unstamped = new Float64Array(MOST_STREAMS).fill(-1)
            Object.assign(this, { marked: unstamped })
            original.call(this, buffer, stream)
            Object.assign(this, { marked })
          },
      ),
  },
  'a free is stamped with the mark to come': {
    broken: 'a free is stamped with the last mark of its stream, which was placed before',
    break: () =>
      replace(
        CachingPool.prototype,
        'release',
        original =>
          function (this: CachingPool, buffer, stream): void {
            const marked = this['marked']
            Object.assign(this, { marked: marked.map(stamp => stamp - 1) })
            original.call(this, buffer, stream)
            Object.assign(this, { marked })
          },
      ),
  },
  'a closed stream has a last mark': {
    broken: 'a buffer freed after its stream was closed depends on nothing',
    break: () =>
      replace(
        Stream.prototype,
        'close',
        original =>
          function (this: Stream): void {
            original.call(this)
            this.lastStamp = 0
          },
      ),
  },
  'announced uses are waited for': {
    broken: 'recordUse does nothing',
    break: () => replace(Deferred.prototype, 'announce', () => () => {}),
  },
  'announced uses last until the free': {
    broken: 'an announced use is covered by the last mark before the free',
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'usesOf',
        original =>
          function (this: Deferred, record: number): Use[] {
            const uses = Reflect.apply(original, this, [record]) as Use[]
            return uses.map(use => ({ ...use, stamp: Math.min(use.stamp, use.clocks.marked[use.slot]) }))
          },
      ),
  },
  'a settled deferred block has a new stamp': {
    broken: 'a block that others used keeps the stamp of its free, though its stream waited for them later',
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'stampNow',
        () =>
          function (this: Deferred, block: { stamp: number }): number {
            return block.stamp
          },
      ),
  },
  'transitivity through merges': {
    broken: 'a block that depends on nothing frees its neighbour from its dependency',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'free',
        original =>
          function (this: SegregatedFit, record: number, key: number, stamp: number): number {
            const block = original.call(this, record, key, stamp)
            if (key === 0 && this.records.words[(block << 4) | Word.key] !== 0) {
              this['remove'](block)
              this['insert'](block, 0, 0)
            }
            return block
          },
      ),
  },
  'a merge keeps the later stamp': {
    broken: 'of two neighbours freed on one stream the earlier stamp counts',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'free',
        original =>
          function (this: SegregatedFit, record: number, key: number, stamp: number): number {
            const { words, doubles } = this.records
            let earliest = stamp
            for (const next of [words[(record << 4) | Word.previous], words[(record << 4) | Word.next]]) {
              if (next === 0 || this.records.state(next) !== State.free || words[(next << 4) | Word.key] !== key)
                continue
              earliest = Math.min(earliest, doubles[(next << 3) | Double.stamp])
            }
            const block = original.call(this, record, key, stamp)
            if (key !== 0) doubles[(block << 3) | Double.stamp] = earliest
            return block
          },
      ),
  },
  'a part keeps the dependency': {
    broken: 'what is cut off a block depends on nothing',
    break: () =>
      replacePrivate(
        SegregatedFit.prototype,
        'putBack',
        original =>
          function (this: SegregatedFit, record: number, absent: boolean): void {
            if (absent) Reflect.apply(original, this, [record, absent])
            else this['insert'](record, 0, 0)
          },
      ),
  },
  'a block settles when its stamp is complete': {
    broken: 'a block settles when a mark that covers it was placed',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'settle',
        original =>
          function (this: SegregatedFit, key: number): number {
            return original.call(this, key, Infinity)
          },
      ),
  },
  'cached blocks of others are asked for their stamp': {
    broken: 'what another stream caches is taken whatever it waits for',
    break: () =>
      replace(
        OtherStreams.prototype,
        'takeCached',
        original =>
          function (this: OtherStreams, units: number, slot: number): number {
            this.admission.fill(Infinity)
            const record = original.call(this, units, slot)
            this.look(slot)
            return record
          },
      ),
  },
  'stream id recycling': {
    broken: 'an adopted stream is known by its handle, which serves another one after it',
    break: () =>
      replace(
        SimulatedDriver.prototype,
        'cuStreamGetId',
        () =>
          (stream: number): number =>
            stream,
      ),
  },
  'a slot is used again when its work is done': {
    broken: 'the slot of a closed stream serves the next one at once',
    break: () =>
      replacePrivate(
        Clocks.prototype,
        'reclaim',
        () =>
          function (this: Clocks): void {
            this['freeSlots'].push(...this['retired'].splice(0))
          },
      ),
  },
  'stamps of a slot go on': {
    broken: 'the clock of a slot that is used again starts at zero',
    break: () =>
      replace(
        Clocks.prototype,
        'open',
        original =>
          function (this: Clocks, stream: Stream): number {
            const slot = original.call(this, stream)
            this.marked[slot] = 0
            return slot
          },
      ),
  },
  'a granule remembers its last use': {
    broken: 'memory is unmapped though its last use is not known complete',
    break: () => replacePrivate(VirtualBacking.prototype, 'isSettled', () => () => true),
  },
  'a granule of several streams is nobody’s': {
    broken: 'of a granule that several streams used the last free counts',
    break: () =>
      replace(
        VirtualBacking.prototype,
        'noteFree',
        original =>
          function (this: VirtualBacking, record: number, key: number, stamp: number): void {
            for (const reservation of this['reservations']) reservation.useKeys.fill(0)
            original.call(this, record, key, stamp)
          },
      ),
  },
  // 'capture isolation' joins with graph capture.
} satisfies Readonly<Record<string, Canary>>

export type Rule = keyof typeof CANARIES

export const RULES = Object.keys(CANARIES) as Rule[]

/** Breaks a rule until the returned function is called. */
export function breakRule(rule: Rule): () => void {
  return CANARIES[rule].break()
}

const recordedOn = new WeakMap<Event, number>()

/** Replaces a method, and mends it when the returned function is called, after which `then` is. */
function replace<T extends object, K extends keyof T>(
  prototype: T,
  name: K,
  make: (original: T[K]) => T[K],
  then = () => {},
): () => void {
  const original = prototype[name]
  prototype[name] = make(original)
  return () => {
    prototype[name] = original
    then()
  }
}

type Method = (this: never, ...args: never[]) => unknown

function replacePrivate(prototype: object, name: string, make: (original: Method) => Method): () => void {
  return replace(prototype as Record<string, Method>, name, make)
}
