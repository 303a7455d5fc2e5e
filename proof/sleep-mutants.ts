// Rules of memory that sleeps, wakes and spills.

import { Barriers } from '../src/core/order/barriers.js'
import type { Stream } from '../src/core/order/stream.js'
import { StreamRegistry } from '../src/core/order/stream-registry.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import { Deferred } from '../src/core/pool/caching/central/deferred.js'
import { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import { Sleeper } from '../src/core/pool/sleep/sleeper.js'
import { SpillableBuffer } from '../src/core/pool/wrappers/spillable-buffer.js'
import { replace, replacePrivate, replaceWithin } from './replace-method.js'

const SLEEPING = ['sleeping'] as const

export const SLEEP_MUTANTS = {
  'a sleep waits for closed streams': {
    broken: 'a sleep does not wait for the work of streams that were closed before',
    kinds: SLEEPING,
    break: () =>
      replacePrivate(
        Sleeper.prototype,
        'untilIdle',
        original =>
          function (this: Sleeper): unknown {
            const { clocks } = this['memory']
            const restore = replace(
              clocks,
              'coveringSoon',
              covering => slot => (clocks.isOpen(slot) ? covering.call(clocks, slot) : 0),
            )
            const idle = Reflect.apply(original, this, [])
            restore()
            return idle
          },
      ),
  },
  'a use announced before a sleep outlives it': {
    broken: 'a free after a wake forgets the uses that were announced before the sleep',
    kinds: SLEEPING,
    break: () => replaceWithin(Sleeper.prototype, 'enter', Deferred.prototype, 'isAnnounced', () => () => false),
  },
  'a sleep waits for the copies of the wake before': {
    broken: 'a sleep begins while copies of the last wake are under way',
    kinds: SLEEPING,
    break: () =>
      replacePrivate(
        Sleeper.prototype,
        'untilArrived',
        original =>
          function (this: Sleeper, call: string): unknown {
            return call === 'sleep' ? Promise.resolve() : Reflect.apply(original, this, [call])
          },
      ),
  },
  'a captured stream waits for the copies of a wake': {
    broken: 'a stream that was captured during a wake does not wait for its copies',
    kinds: SLEEPING,
    break: () => replaceWithin(StreamRegistry.prototype, 'resume', Barriers.prototype, 'hold', () => () => {}),
  },
  'a new stream waits for the copies of a wake': {
    broken: 'a stream that was made after a wake gets memory that a copy is still to come to',
    kinds: SLEEPING,
    break: () => replaceWithin(StreamRegistry.prototype, 'open', Barriers.prototype, 'hold', () => () => {}),
  },
  'host memory waits for the copy of a return': {
    broken: 'the host pool does not know of the copy that brings a spilled buffer back',
    kinds: SLEEPING,
    break: () =>
      replaceWithin(SpillableBuffer.prototype, 'bringBack', HostBuffer.prototype, 'recordUse', () => () => {}),
  },
  'a return waits for the copy to the host': {
    broken: 'a spilled buffer comes back before the copy to the host has its contents',
    kinds: SLEEPING,
    break: () =>
      replaceReturn((buffer, bringBack) => {
        buffer['spilled'] = null
        bringBack()
      }),
  },
  'a use waits for the copy of a return': {
    broken: 'a stream uses a spilled buffer before the copy that brings it back',
    kinds: SLEEPING,
    break: () =>
      replaceReturn((buffer, bringBack) => {
        const before = buffer['ready']
        bringBack()
        buffer['ready'] = before
      }),
  },
  'captured work cannot use a spillable buffer': {
    broken: 'a spillable buffer is captured within a use, and spills',
    kinds: SLEEPING,
    break: () =>
      replace(
        SpillableBuffer.prototype,
        'use',
        original =>
          function (this: SpillableBuffer, stream?: Stream, options?): DeviceBuffer {
            const use = original.call(this, stream, options)
            use.allocation.noteUse = () => {}
            return use
          },
      ),
  },
} as const

/** A spilled buffer comes back by `change`, which gets the buffer and what it does otherwise. */
function replaceReturn(change: (buffer: SpillableBuffer, bringBack: () => void) => void): () => void {
  return replacePrivate(
    SpillableBuffer.prototype,
    'bringBack',
    original =>
      function (this: SpillableBuffer, stream: Stream): void {
        change(this, () => Reflect.apply(original, this, [stream]))
      },
  )
}
