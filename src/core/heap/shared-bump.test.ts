import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { REGISTRY_WORDS, ThreadRegistry } from '../threads/thread-registry.js'
import { BUMP_WORDS, Refusal, SharedBump } from './shared-bump.js'

const [FIRST, LAST] = [3, 103]
const never = () => assert.fail('nobody waits')

/** A stack that two threads share; this thread plays both. */
function setUp() {
  const words = new Int32Array(new SharedArrayBuffer(BUMP_WORDS * 4))
  const registry = new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
  const begun: number[] = []
  const enter = (memory = words, onEpoch: (epoch: number) => void = epoch => begun.push(epoch)) => {
    const thread = registry.enter()
    return { thread, stack: new SharedBump(memory, registry, thread, FIRST, LAST, onEpoch) }
  }
  return { words, registry, begun, enter }
}

describe('a stack that threads share', () => {
  it('hands out units one after another, aligned on request, to its end', () => {
    const { enter } = setUp()
    const [one, two] = [enter().stack, enter().stack]
    assert.equal(one.take(1, 5), FIRST)
    assert.equal(two.take(1, 1), FIRST + 5)
    assert.equal(one.takeAligned(1, 2, 16), 16)
    assert.equal(two.top, 18)
    assert.equal(two.take(1, LAST - 17), Refusal.full)
    assert.equal(two.takeAligned(1, LAST - 18, 32), Refusal.full)
    assert.equal(one.take(1, LAST - 18), 18)
    assert.equal(one.take(1, 1), Refusal.full)
  })

  it('is empty after a reset, and hands out nothing of an ended epoch, nor during a reset', () => {
    const { enter, begun } = setUp()
    const [one, two] = [enter().stack, enter().stack]
    one.take(1, 5)
    two.reset(epoch => {
      assert.equal(epoch, 1)
      assert.deepEqual([one.take(1, 1), one.takeAligned(1, 1, 8), one.top], [Refusal.closed, Refusal.closed, FIRST + 5])
    }, never)
    assert.deepEqual([one.epoch, two.epoch, begun], [2, 2, [2]])
    assert.equal(one.take(1, 1), Refusal.ended)
    assert.equal(one.takeAligned(1, 1, 2), Refusal.ended)
    assert.equal(one.take(2, 1), 5, 'what such a request took is lost')
  })

  it('is as it was after a reset fails', () => {
    const { enter, begun } = setUp()
    const { stack } = enter()
    stack.take(1, 5)
    const failure = new Error('no')
    const fail = () => {
      throw failure
    }
    assert.throws(() => stack.reset(fail, never), failure)
    assert.deepEqual([stack.epoch, stack.take(1, 1), begun], [1, FIRST + 5, []])
  })

  it('a reset whose thread dies is undone before the new epoch, and finished after it began', () => {
    for (const moment of ['order', 'epoch'] as const) {
      for (const heir of ['waits', 'resets', 'has its number'] as const) {
        const { words, registry, enter, begun } = setUp()
        const left = new Int32Array(new SharedArrayBuffer(BUMP_WORDS * 4))
        const dies = (at: string) => {
          if (at === moment) left.set(words)
        }
        const { stack, thread } = enter(words, () => dies('epoch'))
        stack.take(1, 5)
        stack.reset(() => dies('order'), never)
        registry.bury(thread)
        if (heir === 'has its number') registry.forget(thread)
        const other = enter(left).stack
        if (heir === 'waits') other.awaitOpen(() => {})
        if (heir === 'resets') other.reset(() => {}, never)
        const resets = heir === 'resets' ? 1 : 0
        const expected = moment === 'epoch' ? { epoch: 2, top: FIRST } : { epoch: 1, top: FIRST + 5 }
        assert.equal(other.epoch, expected.epoch + resets, `${moment}, ${heir}`)
        assert.equal(other.top, resets === 1 ? FIRST : expected.top)
        assert.equal(begun.includes(2), moment === 'epoch' || resets === 1, 'the streams of the new epoch are known')
        assert.equal(other.take(other.epoch, 1), other.top - 1)
        other.reset(() => {}, never)
      }
    }
  })

  it('two resets come one after another', () => {
    const { words, enter } = setUp()
    const [one, two] = [enter().stack, enter().stack]
    let waited = 0
    one.reset(() => {
      const stop = new Error('waited')
      assert.throws(
        () =>
          two.reset(never, () => {
            waited++
            throw stop
          }),
        stop,
      )
    }, never)
    assert.deepEqual([waited, one.epoch, words[2]], [1, 2, 0])
  })
})
