// Rules of the known order of work: clocks, events, streams.

import { Clocks, type VectorTime } from '../src/core/order/clocks.js'
import { Event } from '../src/core/order/event.js'
import type { OrderedStream } from '../src/core/order/ordered-stream.js'
import { Life } from '../src/core/order/shared-order.js'
import { Stream } from '../src/core/order/stream.js'
import { StreamRegistry } from '../src/core/order/stream-registry.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { replace, replacePrivate } from './replace-method.js'

export const ORDER_MUTANTS = {
  'stamp before record': {
    broken: 'the clock ticks after the mark is placed, which then seems to cover frees in between',
    break: () => {
      const late = new WeakMap<Clocks, Set<number>>()
      return replace(
        Clocks.prototype,
        'tick',
        () =>
          function (this: Clocks, slot: number): VectorTime {
            const slots = late.get(this) ?? new Set()
            late.set(this, slots)
            if (slots.has(slot)) this.marked[slot]++
            slots.add(slot)
            const vectorTime = this.vectorTimeOf(slot)
            vectorTime[1]++
            return vectorTime
          },
      )
    },
  },
  'wait before publish': {
    broken: "a stream's wait is written down first, and stays although the driver refuses the wait",
    break: () =>
      replace(
        Event.prototype,
        'delay',
        original =>
          function (this: Event, stream: Stream): void {
            if (this['clocks'] === stream.clocks) stream.clocks.follow(stream.slot, this['vectorTime'])
            original.call(this, stream)
          },
      ),
  },
  'mark before synchronise': {
    broken: 'a stream is synchronised without a mark: the next free on it counts as complete',
    break: () =>
      replace(
        Stream.prototype,
        'synchronize',
        () =>
          function (this: Stream): void {
            this.context.activate().cuStreamSynchronize(this.handle)
            const vectorTime = this.clocks.vectorTimeOf(this.slot)
            vectorTime[1]++
            this.clocks.watcher.learn(vectorTime, true)
          },
      ),
  },
  'mark before device synchronise': {
    broken: 'the device is synchronised without marks: the next frees count as complete',
    break: () =>
      replace(
        Clocks.prototype,
        'synchronize',
        () =>
          function (this: Clocks): void {
            this.context.activate().cuCtxSynchronize()
            const isOpen = (slot: number) => Number(this.streams[slot] !== null)
            const stamps = this.marked.slice(0, this.slotLimit)
            this.watcher.learn(
              [...stamps].flatMap((stamp, slot) => [slot, stamp + isOpen(slot)]),
              true,
            )
          },
      ),
  },
  'vector time copied at the mark': {
    broken: 'an event passes on knowledge that its stream got after the record',
    break: () =>
      replace(
        Event.prototype,
        'delay',
        original =>
          function (this: Event, stream: Stream): void {
            const recorded = this['vectorTime']
            const slot = recordedOn.get(this)
            const later = slot === undefined ? [] : this['clocks']!.vectorTimeOf(slot).slice(2)
            this['vectorTime'] = [...recorded, ...later]
            original.call(this, stream)
            this['vectorTime'] = recorded
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
    broken: 'the stream of an event learns what the waiting stream knows',
    break: () =>
      replace(
        Clocks.prototype,
        'follow',
        original =>
          function (this: Clocks, later: number, vectorTime: VectorTime): void {
            original.call(this, later, vectorTime)
            const [own, stamp] = vectorTime
            if (own !== undefined && stamp === this.marked[own] && own !== later)
              original.call(this, own, this.vectorTimeOf(later))
          },
      ),
  },
  'an answer of no proves nothing': {
    broken: 'a stream that was asked counts as complete, whatever the driver answered',
    break: () =>
      replace(
        Stream.prototype,
        'query',
        () =>
          function (this: Stream): boolean {
            const vectorTime = this.clocks.tick(this.slot)
            const answer = this.context.activate().cuStreamQuery(this.handle)
            this.clocks.watcher.learn(vectorTime, false)
            return answer
          },
      ),
  },
  'inserted waits are made': {
    broken: 'the pool notes that a stream waits for another stream, and does not make it wait',
    break: () =>
      replace(
        Clocks.prototype,
        'order',
        () =>
          function (this: Clocks, later: number, earlier: number): boolean {
            this.follow(later, this.vectorTimeOf(earlier))
            return true
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
  'stream id recycling': {
    broken: 'an adopted stream is known by its handle, which later serves another stream',
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
    broken: 'the slot of a closed stream serves the next stream at once',
    break: () =>
      replacePrivate(
        StreamRegistry.prototype,
        'reclaim',
        () =>
          function (this: StreamRegistry): void {
            const { lives } = this['clocks'].state
            for (const [slot, life] of lives.entries()) if (life === Life.retired) lives[slot] = Life.free
          },
      ),
  },
  'stamps of a slot go on': {
    broken: 'the clock of a slot that is used again starts at zero',
    break: () =>
      replace(
        StreamRegistry.prototype,
        'open',
        original =>
          function (this: StreamRegistry, stream: OrderedStream): number {
            const slot = original.call(this, stream)
            this['clocks'].marked[slot] = 0
            return slot
          },
      ),
  },
}

const recordedOn = new WeakMap<Event, number>()
