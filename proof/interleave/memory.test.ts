// The behaviour that the two memory models allow, in the named programs of the literature.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Exhaustive } from './choices.js'
import { type Memory, StoreBuffers } from './memory.js'
import { WeakMemory } from './weak-memory.js'

const [X, Y] = [0, 1]
const KINDS = {
  x64: (chooser: Exhaustive) => new StoreBuffers(3, chooser),
  arm64: (chooser: Exhaustive) => new WeakMemory(3, chooser),
}

/** All that a program can end with. */
function results(kind: keyof typeof KINDS, program: (memory: Memory, words: Int32Array) => unknown): unknown[] {
  const chooser = new Exhaustive(2)
  const all = new Set<string>()
  do {
    all.add(JSON.stringify(program(KINDS[kind](chooser), new Int32Array(new SharedArrayBuffer(8)))))
  } while (chooser.advance())
  return [...all].sort().map(each => JSON.parse(each) as unknown)
}

/** One thread stores twice, plainly or not; a second thread loads both in the reverse order. */
const message = (publishes: boolean, acquires: boolean) => (memory: Memory, words: Int32Array) => {
  memory.store(1, words, X, 1)
  if (publishes) memory.exchange(1, words, Y, () => 1)
  else memory.store(1, words, Y, 1)
  return [acquires ? memory.atomicLoad(2, words, Y) : memory.load(2, words, Y), memory.load(2, words, X)]
}

describe('memory as processors order it', () => {
  it('x64: each of two threads may miss what the other one has just stored, unless it stored atomically', () => {
    const both = (memory: Memory, words: Int32Array) => {
      memory.store(1, words, X, 1)
      memory.store(2, words, Y, 1)
      return [memory.load(1, words, Y), memory.load(2, words, X)]
    }
    assert.equal(results('x64', both).length, 4)
    const atomic = (memory: Memory, words: Int32Array) => {
      memory.exchange(1, words, X, () => 1)
      memory.exchange(2, words, Y, () => 1)
      return [memory.load(1, words, Y), memory.load(2, words, X)]
    }
    assert.deepEqual(results('x64', atomic), [[1, 1]])
  })

  it('x64: stores are seen in their order', () => {
    assert.ok(results('x64', message(false, false)).every(each => `${each}` !== '1,0'))
  })

  it('arm64: they are when published and acquired, and only then', () => {
    for (const [publishes, acquires] of [
      [false, false],
      [true, false],
      [false, true],
      [true, true],
    ]) {
      const isBroken = results('arm64', message(publishes, acquires)).some(each => `${each}` === '1,0')
      assert.equal(isBroken, !(publishes && acquires), `${publishes}, ${acquires}`)
    }
  })

  it('arm64: a thread that has seen a store does not see an older one', () => {
    const twice = (memory: Memory, words: Int32Array) => {
      memory.store(1, words, X, 1)
      return [memory.load(2, words, X), memory.load(2, words, X)]
    }
    assert.deepEqual(results('arm64', twice), [
      [0, 0],
      [0, 1],
      [1, 1],
    ])
  })

  for (const kind of ['x64', 'arm64'] as const) {
    it(`${kind}: a thread sees its own stores, and after a barrier those of all`, () => {
      const own = (memory: Memory, words: Int32Array) => {
        memory.store(1, words, X, 1)
        const seen = memory.load(1, words, X)
        memory.barrier()
        return [seen, memory.load(2, words, X)]
      }
      assert.deepEqual(results(kind, own), [[1, 1]])
    })
  }
})
