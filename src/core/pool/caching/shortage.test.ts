// The text of an OutOfMemoryError: the numbers, and the remedy that they suggest.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB, parseBytes } from '../../base/bytes.js'
import { OutOfMemoryError, type Remedy } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import { outOfMemory, type Shortage } from './shortage.js'

/** The error of `allocate`. */
function errorOf(allocate: () => unknown): OutOfMemoryError {
  try {
    allocate()
  } catch (error) {
    assert.ok(error instanceof OutOfMemoryError, `${error}`)
    return error
  }
  assert.fail('there was room')
}

function assertAdvises(error: OutOfMemoryError, remedy: Remedy, advice: string): void {
  assert.equal(error.remedy, remedy, error.message)
  assert.equal(error.message.slice(error.message.indexOf('; ') + 2), advice)
}

/** The limit of the call that the message shows. */
const ADVISED_LIMIT = /\(pool\.maxPoolBytes = '([^']+)'\)/

for (const backing of ['virtual', 'segments'] as const) {
  it(`the advised limit is enough, whatever lies in the pool: ${backing}`, () => {
    const random = new Random(7)
    let raised = 0
    for (let round = 0; round < 300; round++) {
      const pool = new TestDevice({ capacityBytes: 1024 * MiB }).createPool({ backing, maxPoolBytes: 32 * MiB })
      const held: DeviceBuffer[] = []
      for (let i = random.below(12); i > 0; i--) {
        const buffer = pool.tryAllocate(random.logUniform(512, 8 * MiB))
        if (buffer !== null) held.push(buffer)
      }
      for (const buffer of held) if (random.below(3) === 0) buffer.free()
      const bytes = random.logUniform(4 * MiB, 80 * MiB)
      if (pool.tryAllocate(bytes) !== null) continue
      const { message } = errorOf(() => pool.allocate(bytes))
      const [, enough] = ADVISED_LIMIT.exec(message) ?? []
      if (enough === undefined) continue
      raised++
      pool.maxPoolBytes = parseBytes(enough)
      assert.doesNotThrow(() => pool.allocate(bytes), message)
    }
    assert.ok(raised > 50, `${raised} raised`)
  })

  describe(`out of memory on a device of 64 MiB: ${backing}`, () => {
    it('names by how much to raise the limit', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 16 * MiB })
      pool.allocate(10 * MiB)
      const error = errorOf(() => pool.allocate(7 * MiB))
      assertAdvises(
        error,
        'raiseLimit',
        "raise maxPoolBytes by at least 2 MiB or free that much (pool.maxPoolBytes = '18 MiB')",
      )
      assert.equal(
        error.message.slice(0, error.message.indexOf(';')),
        'no room for 7 MiB: 10 MiB live in 10 MiB reserved, limit 16 MiB, 54 MiB free on the device, largest free piece 0 B',
      )
    })

    it('says what the device has in all, for a request that it can never serve', () => {
      const device = new TestDevice()
      const advice = "the device has 64 MiB in all: ask for less, or use createPool({ backing: 'managed' })"
      for (const maxPoolBytes of [16 * MiB, Infinity]) {
        for (const bytes of [65 * MiB, 2 ** 52]) {
          assertAdvises(
            errorOf(() => device.createPool({ backing, maxPoolBytes }).allocate(bytes)),
            'askForLess',
            advice,
          )
        }
      }
      assert.match(
        errorOf(() => device.createPlainPool().allocate(65 * MiB)).message,
        /has 64 MiB in all: ask for less/,
      )
    })

    it('advises no higher limit than the device has', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 16 * MiB })
      pool.allocate(10 * MiB)
      const error = errorOf(() => pool.allocate(60 * MiB))
      assertAdvises(error, 'askForLess', 'the device has 64 MiB in all, 6 MiB too few: ask for less, or free that much')
    })

    it('counts the rounded size against the limit', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 16 * MiB, minBlockBytes: 2 * MiB })
      pool.allocate(10 * MiB)
      assertAdvises(
        errorOf(() => pool.allocate(6 * MiB + 1)),
        'raiseLimit',
        "raise maxPoolBytes by at least 2 MiB or free that much (pool.maxPoolBytes = '18 MiB')",
      )
    })

    it('counts whole granules or segments against the limit', () => {
      const device = new TestDevice()
      const error = errorOf(() => device.createPool({ backing, maxPoolBytes: 3 * MiB }).allocate(3 * MiB))
      assertAdvises(
        error,
        'askForLess',
        "ask for less, or raise maxPoolBytes by at least 1 MiB (pool.maxPoolBytes = '4 MiB')",
      )
      device.createPool({ backing, maxPoolBytes: 4 * MiB }).allocate(3 * MiB)
    })

    it('a driver that refuses what there is', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const call = backing === 'virtual' ? 'cuMemCreate' : 'cuMemAlloc'
      device.driver.failCall({ call, onwards: true })
      assertAdvises(
        errorOf(() => pool.allocate(3 * MiB)),
        'freeDeviceMemory',
        'the driver refused to give some of it; try again, or free memory, here or elsewhere',
      )
      device.driver.clearFaults()
      pool.allocate(3 * MiB)
    })

    it('the device: how much of it others hold', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: Infinity })
      device.driver.cuMemAlloc(40 * MiB)
      pool.allocate(4 * MiB)
      const error = errorOf(() => pool.allocate(32 * MiB))
      assertAdvises(
        error,
        'freeDeviceMemory',
        'the device itself is full: 40 MiB of it are held elsewhere; free memory, here or in other programs',
      )
      assert.deepEqual([error.figures.heldElsewhereBytes, error.figures.deviceFreeBytes], [40 * MiB, 20 * MiB])
    })

    it('leaveFreeBytes', () => {
      const pool = new TestDevice().createPool({ backing, leaveFreeBytes: 50 * MiB })
      const advice = 'leaveFreeBytes keeps 50 MiB of the device free: lower it, or free memory'
      assertAdvises(
        errorOf(() => pool.allocate(16 * MiB)),
        'lowerLeaveFree',
        advice,
      )
    })

    it('pieces: how large they are, and how much more limit would do without them', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 8 * MiB })
      const blocks = Array.from({ length: 8 }, () => pool.allocate(1 * MiB))
      for (const [index, block] of blocks.entries()) if (index % 2 === 0) block.free()
      const error = errorOf(() => pool.allocate(3 * MiB))
      const virtual = backing === 'segments' ? ", or use backing 'virtual'" : ''
      assertAdvises(
        error,
        'joinPieces',
        `4 MiB are idle but in pieces of at most 1 MiB: free what lies between them, or raise maxPoolBytes by at least 4 MiB (pool.maxPoolBytes = '12 MiB')${virtual}`,
      )
      assert.deepEqual([error.figures.largestFreeBytes, error.figures.pendingBytes], [1 * MiB, 0])
      for (const index of [1, 3]) blocks[index].free() // so that two segments are idle, or three pieces one
      pool.allocate(3 * MiB)
    })
  })
}

it('an out of memory lists the bytes that each stream caches and that are pending on it', () => {
  const device = new TestDevice()
  const pool = device.createPool({ maxPoolBytes: 32 * MiB })
  const [a, b] = [device.createStream(), device.createStream()]
  const buffers = [pool.allocate(9 * MiB, a), pool.allocate(4 * MiB, b), pool.allocate(64 * KiB, a)]
  for (const stream of [a, b]) device.hold(stream)
  buffers[1].recordUse(a)
  for (const buffer of buffers) buffer.free()
  const { message, streams, figures } = errorOf(() => pool.allocate(33 * MiB))
  assert.deepEqual(streams, [
    { stream: a.handle, pendingBytes: 9 * MiB, cachedBytes: 64 * KiB },
    { stream: b.handle, pendingBytes: 4 * MiB, cachedBytes: 0 },
  ])
  assert.deepEqual([figures.pendingBytes, figures.cachedBytes, figures.largestFreeBytes], [13 * MiB, 64 * KiB, 9 * MiB])
  const [first, second] = [a, b].map(stream => `stream 0x${stream.handle.toString(16)}`)
  assert.match(
    message,
    new RegExp(`64 KiB cached, 9 MiB pending on ${first}, 4 MiB pending on ${second}, limit 32 MiB`),
  )
  a.close()
  assert.deepEqual(
    errorOf(() => pool.allocate(33 * MiB)).streams.map(({ stream }) => stream),
    [null, b.handle],
  )
})

describe('pending memory that no step could wait for', () => {
  const stats = {
    ...new TestDevice().createPool().stats(),
    ...{ liveBytes: 10 * MiB, reservedBytes: 60 * MiB, pendingBytes: 50 * MiB, maxPoolBytes: 64 * MiB },
  }
  const streams = [
    { stream: 3, pendingBytes: 20 * MiB, cachedBytes: 0 },
    { stream: 0, pendingBytes: 30 * MiB, cachedBytes: 0 },
  ]
  const shortage: Shortage = {
    context: new TestDevice().context,
    bytes: 40 * MiB,
    blockBytes: 40 * MiB,
    stats,
    streams,
    largestFreeBytes: 50 * MiB,
    deviceFreeBytes: 4 * MiB,
    deviceTotalBytes: 64 * MiB,
    config: { leaveFreeBytes: 0, crossStreamReuse: 'wait-before-oom' },
    backing: { kind: 'virtual', granuleBytes: 2 * MiB },
    raise: null,
  }

  it('names the stream that holds most of it', () => {
    const advice = '50 MiB are pending, most on the default stream: synchronise it first'
    assertAdvises(outOfMemory(shortage), 'awaitPending', advice)
    const ordered: Shortage = { ...shortage, config: { leaveFreeBytes: 0, crossStreamReuse: 'ordered' } }
    const more = `${advice}, or let streams wait for each other with crossStreamReuse`
    assertAdvises(outOfMemory(ordered), 'awaitPending', more)
    assertAdvises(
      outOfMemory({ ...shortage, streams: [] }),
      'awaitPending',
      '50 MiB are pending, most on other devices: synchronise it first',
    )
  })
})
