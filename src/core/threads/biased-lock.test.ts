import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { At, LOCK_BYTES, newBiasedLock } from './biased-lock.worker.js'
import { openProcessBarrier } from './process-barrier.js'

const TURNS = 500

for (const isFenced of openProcessBarrier() === null ? [true] : [true, false]) {
  describe(`a biased lock whose threads make ${isFenced ? 'barriers' : 'none'}`, () => {
    it('lets no thread in while it is shut', () => {
      const { biasedLock } = newBiasedLock(new SharedArrayBuffer(LOCK_BYTES), isFenced)
      assert.ok(biasedLock.enter())
      biasedLock.leave()
      biasedLock.shut()
      assert.deepEqual([biasedLock.isShut, biasedLock.enter()], [true, false])
      biasedLock.open()
      assert.deepEqual([biasedLock.isShut, biasedLock.enter()], [false, true])
    })

    it('shuts again from the start when the barrier fails', { skip: isFenced && 'there is no barrier' }, () => {
      const { biasedLock } = newBiasedLock(new SharedArrayBuffer(LOCK_BYTES), isFenced)
      biasedLock['barrier'] = () => {
        throw new Error('no barrier')
      }
      for (let attempt = 0; attempt < 2; attempt++) assert.throws(() => biasedLock.shut(), /no barrier/)
      biasedLock.open()
      assert.ok(biasedLock.enter())
    })

    it('waits for a thread inside, but not forever', () => {
      const buffer = new SharedArrayBuffer(LOCK_BYTES)
      const { biasedLock } = newBiasedLock(buffer, isFenced)
      const { biasedLock: other, registry, thread } = newBiasedLock(buffer, isFenced)
      assert.ok(other.enter())
      biasedLock.shut()
      assert.equal(biasedLock.isOut(thread), false)
      other.leave()
      assert.deepEqual([biasedLock.isOut(thread), other.enter()], [true, false])
      biasedLock.open()
      assert.ok(other.enter())
      registry.bury(thread) // `shut` does not wait for dead threads
      biasedLock.shut()
      assert.equal(biasedLock.isOut(thread), true)
    })

    it('is never shut and in use at the same time', async () => {
      const buffer = new SharedArrayBuffer(LOCK_BYTES)
      const { biasedLock, words } = newBiasedLock(buffer, isFenced)
      const thread = new Worker(new URL('./biased-lock.worker.js', import.meta.url), {
        workerData: { buffer, isFenced },
      })
      const [number] = await once(thread, 'message')
      let seen = 0
      for (let turn = 0; turn < TURNS; turn++) {
        biasedLock.shut()
        if (!biasedLock.isOut(number)) {
          biasedLock.open() // the thread was stopped inside for long, since other processes need the cores
          continue
        }
        const before = words[At.inside]
        if (before !== 0) words[At.broken]++
        words[At.server] = 1
        for (let look = 0; look < 50; look++) if (Atomics.load(words, At.inside) !== before) words[At.broken]++
        words[At.server] = 0
        biasedLock.open()
        seen = words[At.entered]
        while (Atomics.load(words, At.entered) === seen); // until the thread enters again
      }
      await thread.terminate()
      biasedLock.shut() // `shut` does not wait for a thread that died inside
      assert.equal(words[At.broken], 0)
    })
  })
}
