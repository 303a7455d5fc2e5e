// The doors of shared pools under every interleaving of two small programs, and the same with one rule broken, which must be
// noticed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { type DoorRule, runDoor } from './door-model.js'

const RULES: readonly DoorRule[] = [
  'the keeper makes a barrier in the thread, or the thread makes its own',
  'the thread says that it is inside, then looks',
  'the keeper shuts, then looks',
  'the thread leaves when it has emptied the place',
  'the keeper opens when it has emptied the place',
  'what a thread that stays inside has is left to it',
]

for (const isFenced of [true, false]) {
  describe(`the model of a door whose threads make ${isFenced ? 'barriers' : 'none'}`, () => {
    it('lets one of both have a block', () => {
      const { states, failure } = runDoor(isFenced)
      assert.equal(failure, null)
      assert.ok(states > 500, `${states} states`)
    })

    for (const rule of RULES) {
      it(`does not without the rule: ${rule}`, () => {
        const { failure } = runDoor(isFenced, rule)
        assert.match(failure?.message ?? 'nothing', /handed out twice/)
      })
    }
  })
}
