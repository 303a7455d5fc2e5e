import { assert } from '../../../src/core/base/assert.js'
import { BUMP_WORDS, Refusal, SharedBump } from '../../../src/core/heap/shared-bump.js'
import { REGISTRY_WORDS, ThreadRegistry } from '../../../src/core/threads/thread-registry.js'
import { type Cast, mayBeCut, mayDie, pause, type Scenario } from '../stage.js'

const [FIRST, LAST] = [3, 20]

/** Some threads take units from a stack; others reset it a number of times each, and the first of them may die. */
function stack(takers: number, resetters: number, resets: number, dies = false): Cast {
  const words = new Int32Array(new SharedArrayBuffer(BUMP_WORDS * 4))
  const registry = new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
  /** by epoch: units that are handed out */
  const taken = new Map<number, Set<number>>()
  const begun = new Set<number>()
  let done = 0
  let isOrdering = false
  const begin = (epoch: number) => {
    pause()
    begun.add(epoch)
  }
  const enter = () => new SharedBump(words, registry, registry.enter(), FIRST, LAST, begin)
  enter() // whoever makes a stack is alone
  const note = (epoch: number, start: number) => {
    const units = taken.get(epoch) ?? new Set<number>()
    taken.set(epoch, units)
    assert(epoch === 1 || begun.has(epoch), 'an epoch has begun when its memory is had')
    for (const unit of [start, start + 1]) {
      assert(!units.has(unit), 'no unit is handed out twice in an epoch')
      units.add(unit)
    }
  }
  const take = () => {
    const own = enter()
    for (let turn = 0; turn < 3; turn++) {
      const { epoch } = own
      const start = turn === 1 ? own.takeAligned(epoch, 2, 4) : own.take(epoch, 2)
      if (start >= 0) note(epoch, start)
      else if (start === Refusal.closed) own.awaitOpen(() => {})
    }
  }
  const reset = () => {
    const own = enter()
    for (let turn = 0; turn < resets; turn++) {
      own.reset(
        epoch => {
          assert(!isOrdering || dies, 'one thread resets at a time')
          isOrdering = true
          const { top } = own
          assert(own.epoch === epoch, 'the epoch lasts until its streams are ordered')
          assert(own.top === top, 'nobody gets memory meanwhile')
          isOrdering = false
        },
        () => {},
      )
      done++
    }
  }
  const end = () => {
    const own = enter()
    if (dies)
      own.reset(
        () => {},
        () => {},
      )
    else assert(own.epoch === 1 + done, 'every reset is an epoch')
    note(own.epoch, own.take(own.epoch, 2))
  }
  const resetAll = Array.from({ length: resetters }, (_, index) => (dies && index === 0 ? () => mayDie(reset) : reset))
  return { threads: [...Array.from({ length: takers }, () => take), ...resetAll], end }
}

/** Threads whose first resets may be cut short in the middle: each then takes units, and resets again. */
function cutShort(): Cast {
  const words = new Int32Array(new SharedArrayBuffer(BUMP_WORDS * 4))
  const registry = new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
  let done = 0
  const enter = () => new SharedBump(words, registry, registry.enter(), FIRST, LAST, () => {})
  enter() // whoever makes a stack is alone
  const work = () => {
    const own = enter()
    const reset = () => {
      own.reset(
        () => pause(),
        () => {},
      )
      done++
    }
    mayBeCut(reset)
    while (own.take(own.epoch, 2) === Refusal.closed) own.awaitOpen(() => {})
    reset()
  }
  const end = () => {
    const own = enter()
    assert(own.epoch >= 1 + done, 'every reset that is done is an epoch')
    assert(own.take(own.epoch, 2) >= FIRST, 'memory can be had')
  }
  return { threads: [work, work], end }
}

export const scenarios: Record<string, Scenario> = {
  'a stack hands out each unit once in an epoch': { begin: () => stack(2, 0, 0) },
  'a stack is reset while threads take from it': { begin: () => stack(1, 1, 2) },
  'two threads reset a stack': { begin: () => stack(0, 2, 2) },
  'a stack survives the death of whoever resets it': { begin: () => stack(1, 2, 1, true) },
  'a stack survives a reset that is cut short': { begin: cutShort },
}
