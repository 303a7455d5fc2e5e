import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { At, DOOR_BYTES, newDoor } from './door-thread.suite.js'
import { openProcessBarrier } from './process-barrier.js'

const TURNS = 500

for (const isFenced of openProcessBarrier() === null ? [true] : [true, false]) {
  describe(`a door whose threads make ${isFenced ? 'barriers' : 'none'}`, () => {
    it('lets nobody in while it is shut', () => {
      const { door } = newDoor(new SharedArrayBuffer(DOOR_BYTES), isFenced)
      assert.ok(door.enter())
      door.leave()
      door.shut()
      assert.deepEqual([door.isShut, door.enter()], [true, false])
      door.open()
      assert.deepEqual([door.isShut, door.enter()], [false, true])
    })

    it('is shut again from the start when the barrier fails', { skip: isFenced && 'there is no barrier' }, () => {
      const { door } = newDoor(new SharedArrayBuffer(DOOR_BYTES), isFenced)
      door['barrier'] = () => {
        throw new Error('no barrier')
      }
      for (let attempt = 0; attempt < 2; attempt++) assert.throws(() => door.shut(), /no barrier/)
      door.open()
      assert.ok(door.enter())
    })

    it('is waited for, but not for ever', () => {
      const buffer = new SharedArrayBuffer(DOOR_BYTES)
      const { door } = newDoor(buffer, isFenced)
      const { door: other, registry, thread } = newDoor(buffer, isFenced)
      assert.ok(other.enter())
      door.shut()
      assert.equal(door.isOut(thread), false)
      other.leave()
      assert.deepEqual([door.isOut(thread), other.enter()], [true, false])
      door.open()
      assert.ok(other.enter())
      registry.bury(thread) // and nobody waits for the dead
      door.shut()
      assert.equal(door.isOut(thread), true)
    })

    it('is shut by one or used by the other, never both', async () => {
      const buffer = new SharedArrayBuffer(DOOR_BYTES)
      const { door, words } = newDoor(buffer, isFenced)
      const thread = new Worker(new URL('./door-thread.suite.js', import.meta.url), {
        workerData: { buffer, isFenced },
      })
      const [number] = await once(thread, 'message')
      let seen = 0
      for (let turn = 0; turn < TURNS; turn++) {
        door.shut()
        if (!door.isOut(number)) {
          door.open() // it was stopped inside for long, where others need the cores
          continue
        }
        const before = words[At.inside]
        if (before !== 0) words[At.broken]++
        words[At.keeper] = 1
        for (let look = 0; look < 50; look++) if (Atomics.load(words, At.inside) !== before) words[At.broken]++
        words[At.keeper] = 0
        door.open()
        seen = words[At.entered]
        while (Atomics.load(words, At.entered) === seen); // it goes in again
      }
      await thread.terminate()
      door.shut() // nobody waits for a thread that has died inside
      assert.equal(words[At.broken], 0)
    })
  })
}
