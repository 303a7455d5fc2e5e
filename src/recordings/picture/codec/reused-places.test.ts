import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FormatError } from '../../../core/base/errors.js'
import { Action } from '../../trace/trace.js'
import { asReused, fromReused } from './reused-places.js'

/** Blocks that are allocated (+) and freed (−) by number. */
function eventsOf(bytes: readonly number[], initial: number, ...steps: readonly number[]) {
  return {
    action: Uint8Array.from(steps, step => (step < 0 ? Action.freeRequested : Action.alloc)),
    block: Int32Array.from(steps, step => Math.abs(step)),
    blocks: { count: bytes.length, initial, bytes: Float64Array.from(bytes) },
  }
}

test('a place of a freed block of the same size is written as its position', () => {
  const events = eventsOf([512, 512, 512, 1024, 512, 512], 2, -1, 2, 3, -2, 4, 5)
  const place = [7, 9, 9, 9, 9, 2 ** 40]
  const { position, other } = asReused(events, place)
  assert.deepEqual([...position], [1, 0, 1, 0])
  assert.deepEqual(other, [7, 9, 9, 2 ** 40])
  assert.deepEqual([...fromReused(events, { position, other })], place)
  for (const damaged of [
    { position, other: [...other, 1] },
    { position, other: other.slice(1) },
    { position: Uint8Array.of(2, 0, 1, 0), other },
  ]) {
    assert.throws(() => fromReused(events, damaged), FormatError)
  }
})

test('of very many freed places of a size, old ones are written whole', () => {
  const count = 2000
  const up = Array.from({ length: count }, (_, i) => i)
  const [down, again] = [up.map(i => -i), up.map(i => count + i)]
  const events = eventsOf(new Array(2 * count).fill(512), 0, ...up, ...down.slice(1), ...again)
  const place = [...up, ...up]
  const reused = asReused(events, place)
  assert.ok(reused.other.length > count && reused.other.length < 2 * count, `${reused.other.length}`)
  assert.deepEqual([...fromReused(events, reused)], place)
})
