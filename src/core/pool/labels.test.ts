import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { TestDevice } from './pool.fixture.js'

describe('the label of a buffer', () => {
  it('is of the buffer, not of its memory', () => {
    const device = new TestDevice()
    const pools = [
      device.createPool(),
      device.createPool({ debug: true }),
      device.createPlainPool(),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 4 * KiB, count: 2 }),
      device.createSharedPool().pool,
    ]
    for (const pool of pools) {
      const buffer = pool.allocate(1 * KiB)
      assert.equal(buffer.label, '')
      buffer.label = 'weights'
      const other = pool.allocate(1 * KiB)
      assert.deepEqual([buffer.label, other.label], ['weights', ''])
      assert.match(`${buffer}`, /^DeviceBuffer \{ 'weights', 1 KiB at /)
      assert.equal((buffer.toJSON() as { label: string }).label, 'weights')
      buffer.free()
      assert.throws(() => (buffer.label = 'x'), { name: /^(Pool|Debug)Error$/, message: /label: / })
      const next = pool.allocate(1 * KiB)
      assert.equal(next.label, '', pool.constructor.name)
      next.label = 'x'
      next.label = ''
      assert.equal(next.label, '')
      assert.throws(() => (next.label = 5 as never), { name: 'TypeError', message: /label must be a text/ })
    }
  })

  it('of pinned memory is that of its array, too', () => {
    using array = new TestDevice().createHostPool().allocateArray(Float32Array, 10, { label: 'input' })
    assert.equal(array.label, 'input')
    array.label = 'staging'
    assert.equal(array.buffer.label, 'staging')
  })

  it('of an arena ends with a reset, and with a rewind to below the buffer', () => {
    const arena = new TestDevice().createArenaPool({ bytes: 1 * MiB })
    arena.allocate(1 * KiB).label = 'before the reset'
    arena.reset()
    const kept = arena.allocate(1 * KiB)
    assert.equal(kept.label, '')
    kept.label = 'kept'
    const mark = arena.mark()
    arena.allocate(1 * KiB).label = 'above the mark'
    arena.rewind(mark)
    assert.deepEqual([kept.label, arena.allocate(1 * KiB).label], ['kept', ''])
  })

  it('is shown by live(), and by an out of memory with the bytes of each', () => {
    const device = new TestDevice()
    const pool = device.createPool({ maxPoolBytes: 16 * MiB })
    const sizes = [
      ['weights', 4],
      ['cache', 2],
      ['cache', 6],
      ['', 1],
    ] as const
    for (const [label, mebibytes] of sizes) pool.allocate(mebibytes * MiB).label = label
    const labels = pool.live().map(({ label, byteLength }) => [label, byteLength / MiB] as const)
    assert.deepEqual(labels.sort(), [...sizes].sort())
    assert.deepEqual(pool.liveByLabel(), [
      { name: 'cache', buffers: 2, bytes: 8 * MiB },
      { name: 'weights', buffers: 1, bytes: 4 * MiB },
      { name: '', buffers: 1, bytes: 1 * MiB },
    ])
    const message = /largest free piece .*, 8 MiB labelled 'cache', 4 MiB labelled 'weights'; raise maxPoolBytes/
    assert.throws(() => pool.allocate(8 * MiB), { name: 'OutOfMemoryError', message })
    const { pool: shared } = device.createSharedPool()
    shared.allocate(100).label = 'shared'
    assert.deepEqual(
      shared.live().map(({ label }) => label),
      ['shared'],
    )
  })

  it('is in the messages of debug mode', () => {
    const pool = new TestDevice().createPool({ debug: true })
    const buffer = pool.allocate(100)
    buffer.label = 'weights'
    assert.equal(pool.live()[0].label, 'weights')
    buffer.free()
    assert.throws(() => buffer.free(), { name: 'DebugError', message: /Buffer 'weights' of 100 bytes at 0x/ })
  })
})

describe('labels of a shared pool', () => {
  it('are seen by all threads, in lists and errors', () => {
    const { pool, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 16 * MiB })
    const other = attach()
    pool.allocate(4 * MiB).label = 'weights'
    for (const mebibytes of [2, 6]) other.allocate(mebibytes * MiB).label = 'cache ✓'
    const groups = [
      { name: 'cache ✓', buffers: 2, bytes: 8 * MiB },
      { name: 'weights', buffers: 1, bytes: 4 * MiB },
    ]
    assert.deepEqual([pool.liveByLabel(), other.liveByLabel()], [groups, groups])
    const message = /largest free piece .*, 8 MiB labelled 'cache ✓', 4 MiB labelled 'weights'; raise maxPoolBytes/
    assert.throws(() => pool.allocate(8 * MiB), { name: 'OutOfMemoryError', message })
    pool.check()
  })

  it('stay with a buffer that other threads adopt, and go with its free', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const buffer = pool.allocate(1 * KiB)
    buffer.label = 'weights'
    const sent = buffer.transfer()
    assert.deepEqual(
      pool.live().map(({ label, thread }) => [label, thread]),
      [['weights', 0]],
    )
    const adopted = other.adopt(sent)
    assert.equal(adopted.label, 'weights')
    const [back] = pool.adoptAll([adopted.transfer()])
    assert.deepEqual([back.label, pool.live()[0].label], ['weights', 'weights'])
    back.free()
    assert.equal(pool.allocate(1 * KiB).label, '')
    assert.deepEqual(
      other.live().map(({ label }) => label),
      [''],
    )
  })

  it('have at most 56 bytes', () => {
    const { pool } = new TestDevice().createSharedPool()
    const buffer = pool.allocate(100)
    buffer.label = 'é'.repeat(28)
    assert.equal(buffer.label, 'é'.repeat(28))
    const message = /label must have at most 56 bytes of UTF-8 in a shared pool, not 57 B; shorten it/
    assert.throws(() => (buffer.label = `é${'x'.repeat(55)}`), { name: 'RangeError', message })
    assert.equal(buffer.label, 'é'.repeat(28))
    buffer.label = 'x'
    assert.equal(pool.live()[0].label, 'x')
  })
})
