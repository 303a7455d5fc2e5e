import assert from 'node:assert/strict'
import { it } from 'node:test'
import { Stride } from '../heap/records.js'
import { CLASSES } from '../heap/size-classes.js'
import { TestDevice } from './pool-fixture.suite.js'

it('an inbox that the keeper empties while its thread takes from it gives each block to one of both', () => {
  const { pool, keeper, attach } = new TestDevice().createSharedPool()
  const other = attach()
  const send = () => other.adopt(pool.allocate(1000).transfer()).free()
  send()
  const { inboxes } = keeper['state'].slots
  const place = inboxes['entries'].findIndex(entry => entry !== 0)
  const before = inboxes['entries'][place]
  // Between two looks of the keeper the thread takes the block, and the ring has come round to its place for another one.
  const seen = inboxes as unknown as { words: Int32Array }
  const { words } = seen
  let kept = 0
  seen.words = new Proxy(words, {
    get(target, name) {
      if (Number(name) >= Stride.words && kept === 0) {
        seen.words = words
        kept = pool.allocate(1000).record
        inboxes['sent'].fill(0)
        send()
      }
      return Reflect.get(target, name) as unknown
    },
  })
  const taken = inboxes.takeOf(0, 0, CLASSES)
  assert.ok(kept !== 0 && inboxes['entries'][place] !== before)
  assert.ok(!taken.includes(kept), 'a block that its thread has')
})
