import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { leastCapacity } from './least-capacity.js'

/** Searches where everything from `least` on serves; returns the result and the capacities tried. */
async function search(needed: number, peak: number, least: number) {
  const tried: number[] = []
  const found = await leastCapacity(needed, peak, async capacity => {
    tried.push(capacity)
    return capacity >= least
  })
  return { found, tried }
}

test('the result serves everything, and is at most a step of 1/512 or 2 MiB above the least that does', async () => {
  for (const least of [1001, 1100, 1234.5, 1499, 1500].map(each => each * MiB)) {
    const { found, tried } = await search(1000 * MiB, 1500 * MiB, least)
    assert.ok(found !== null && found >= least && found < least + 2 * MiB, `${found} ${least}`)
    assert.ok(tried.includes(found), 'a replay showed it')
    assert.ok(tried.length <= 11)
  }
  const large = await search(80 * GiB, 120 * GiB, 100 * GiB)
  assert.ok(large.found !== null && large.found >= 100 * GiB && large.found < 100.16 * GiB)
})

test('nothing below what any allocator needs is tried', async () => {
  const { found, tried } = await search(999 * MiB, 1000 * MiB, 0)
  assert.equal(found, 1000 * MiB)
  assert.ok(tried.every(capacity => capacity >= 999 * MiB))
})

test('no device of 0 bytes is tried for a run without bytes', async () => {
  const { found, tried } = await search(0, 2 * MiB, 0)
  assert.equal(found, 2 * MiB)
  assert.ok(
    tried.every(capacity => capacity > 0),
    `${tried}`,
  )
})

test('a policy that needs more with a limit than without one is followed up', async () => {
  const { found } = await search(900 * MiB, 1000 * MiB, 1100 * MiB)
  assert.ok(found !== null && found >= 1100 * MiB && found < 1102 * MiB)
})

test('the search gives up where no capacity near the peak serves', async () => {
  const { found, tried } = await search(900 * MiB, 1000 * MiB, Infinity)
  assert.equal(found, null)
  assert.ok(tried.length <= 11)
})
