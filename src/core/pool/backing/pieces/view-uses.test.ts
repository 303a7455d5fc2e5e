import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ViewUses } from './view-uses.js'

test('uses of views grow with their number, up to the most, and lose nothing', () => {
  const most = 1000
  const seen = new Float64Array(2)
  const uses = new ViewUses(most, seen, null)
  assert.ok(uses.blocks.length < most)
  for (let view = 0; view < most; view++) {
    uses.fit(view)
    uses.blocks[view] += 2
    uses.noteFree(view, 1 + (view % 2), view + 1)
  }
  assert.deepEqual(uses.blocks, new Int32Array(most).fill(1))
  seen[1] = most
  const settled = () => uses.blocks.filter((_, view) => uses.isSettled(view)).length
  assert.equal(settled(), most / 2, 'views of the second stream')
  seen[0] = 300
  assert.equal(settled(), most / 2 + 150)
  seen[0] = most
  assert.equal(settled(), most)
})
