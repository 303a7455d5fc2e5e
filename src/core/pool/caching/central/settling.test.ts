import assert from 'node:assert/strict'
import { it } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'

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

/** A pool of one stream after random requests of up to `most` bytes, each of which took the place of another one. */
function churned(steps: number, most: number, maxPoolBytes: number) {
  const device = new TestDevice({ capacityBytes: GiB })
  const pool = device.createPool({ maxPoolBytes })
  const stream = device.createStream()
  const random = new Random(1)
  const buffers: (DeviceBuffer | null)[] = new Array(8).fill(null)
  for (let step = 0; step < steps; step++) {
    const index = random.below(buffers.length)
    buffers[index]?.free()
    buffers[index] = pool.tryAllocate(random.logUniform(MiB, most), stream)
  }
  return { device, pool }
}

it('asks nothing about a stream whose requests meet only memory of its own', () => {
  const { device, pool } = churned(500, 8 * MiB, 64 * MiB)
  assert.ok(pool.stats().growths > 10)
  assert.equal(device.driver.calls.get('cuEventQuery'), undefined)
})

it('asks about the stream itself once old views have to go', () => {
  const { device, pool } = churned(300_000, 32 * MiB, 256 * MiB)
  assert.ok(device.driver.calls.get('cuMemUnmap')! > 50)
  assertConsistent(pool)
})
