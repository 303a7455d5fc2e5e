import assert from 'node:assert/strict'
import { it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

const FREES = 8000

it('places marks on large frees, each time after twice as many, until a request asks for completed work', () => {
  const device = new TestDevice()
  const pool = device.createPool({ maxPoolBytes: 48 * MiB })
  const stream = device.createStream()
  const marks = () => device.driver.calls.get('cuEventRecord') ?? 0
  pool.allocate(32 * MiB, stream).free()

  /** How many blocks were freed between one mark and the next. */
  function freesBetweenMarks(): number[] {
    const counts = [0]
    for (let free = 0; free < FREES; free++) {
      const before = marks()
      // No class keeps a block, as no size comes twice in succession.
      pool.allocate((16 + (free % 8)) * MiB, stream).free()
      counts[counts.length - 1]++
      if (marks() > before) counts.push(0)
    }
    return counts.slice(0, -1)
  }

  assert.deepEqual(freesBetweenMarks(), [511, 1024, 2048, 4096])
  const before = marks()
  pool.processDeferred()
  assert.equal(marks(), before + 1)
  assert.deepEqual(freesBetweenMarks(), [512, 1024, 2048, 4096])
})
