// What waits for what when an arena is reset or rewound. Work is held back on streams of an eager simulated device, so
// that each test says exactly what is pending.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'

function setUp() {
  const device = new TestDevice()
  const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
  return { device, arena: device.createArenaPool({ bytes: 4 * MiB }), a, b, c }
}

/** Calls of the driver that `work` makes. */
function callsOf(device: TestDevice, work: () => void): string[] {
  const before = new Map(device.driver.calls)
  work()
  return [...device.driver.calls].filter(([call, count]) => count !== before.get(call)).map(([call]) => call)
}

describe('arena: stream order', () => {
  it('one stream alone asks the driver for nothing', () => {
    const { device, arena, a } = setUp()
    const calls = callsOf(device, () => {
      for (let round = 0; round < 3; round++) {
        arena.allocate(1000, a)
        const mark = arena.mark()
        arena.allocate(1000, a).free()
        arena.rewind(mark)
        arena.allocate(1000, a)
        arena.reset(round % 2 === 0 ? a : undefined)
      }
    })
    assert.deepEqual(calls, [])
  })

  it('the resetting stream waits for the others that used the arena', () => {
    const uses: readonly ((world: ReturnType<typeof setUp>) => void)[] = [
      ({ arena, b }) => arena.allocate(1000, b),
      ({ arena, a, b }) => arena.allocate(1000, a).recordUse(b),
      ({ arena, a, b }) => arena.allocate(1000, a).free(b),
    ]
    for (const use of uses) {
      const world = setUp()
      const { device, arena, a, b, c } = world
      use(world)
      const release = device.hold(b)
      arena.reset(a)
      assert.deepEqual([a.query(), c.query()], [false, true])
      release()
      assert.equal(a.query(), true)
      device.hold(b)
      arena.reset(a)
      assert.equal(a.query(), true, 'the other stream has not used it since')
    }
  })

  it('the first allocation of all counts as a use, also on the default stream', () => {
    const { device, arena, a } = setUp()
    arena.allocate(1000)
    const release = device.hold(device.defaultStream)
    arena.reset(a)
    assert.equal(a.query(), false)
    release()
    assert.equal(a.query(), true)
  })

  it('a stream that allocates after a reset waits for it, once', () => {
    const { device, arena, a, b } = setUp()
    arena.allocate(1000, a)
    const release = device.hold(a)
    arena.reset(a)
    assert.equal(b.query(), true)
    const calls = callsOf(device, () => arena.allocate(1000, b))
    assert.deepEqual(calls.sort(), ['cuEventCreate', 'cuEventRecord', 'cuStreamWaitEvent'])
    assert.equal(b.query(), false)
    assert.deepEqual(
      callsOf(device, () => {
        for (const stream of [b, a, b]) arena.allocate(1000, stream)
      }),
      [],
    )
    release()
    assert.equal(b.query(), true)
  })

  it('and does not when that point is known complete', () => {
    const { device, arena, a, b } = setUp()
    arena.allocate(1000, a)
    arena.reset(a)
    a.synchronize()
    assert.deepEqual(
      callsOf(device, () => arena.allocate(1000, b)),
      [],
    )
  })

  it('a rewind waits for the streams of earlier epochs, too, because buffers below the mark are still theirs', () => {
    const { device, arena, a, b } = setUp()
    const below = arena.allocate(1000, b)
    const mark = arena.mark()
    for (let round = 0; round < 3; round++) {
      arena.allocate(1000, a)
      arena.rewind(mark, a)
    }
    device.hold(b)
    below.fill(1)
    arena.reset(a)
    assert.equal(a.query(), false)
  })

  it('work of a closed stream is waited for on the device, not on the host', () => {
    const { device, arena, a, b } = setUp()
    const buffer = arena.allocate(1000, b)
    device.hold(b)
    buffer.fill(1)
    b.close()
    arena.reset(a)
    assert.equal(a.query(), false)
    a.synchronize()
    arena.allocate(1000, a)
    arena.reset(a)
    assert.equal(a.query(), true)
  })

  it('work of a closed stream that a buffer was freed on is waited for', () => {
    const { device, arena, a, b } = setUp()
    const buffer = arena.allocate(1000, a)
    device.hold(b)
    b.close()
    buffer.free(b)
    arena.reset(a)
    assert.equal(a.query(), false)
  })

  it('the point of a reset is known after its stream was closed', () => {
    const { device, arena, a, b } = setUp()
    arena.allocate(1000, a)
    device.hold(a)
    arena.reset(a)
    a.close()
    arena.allocate(1000, b)
    assert.equal(b.query(), false)
  })

  it('without a stream a reset is on the only one that used the arena, or else on the default stream', () => {
    const { device, arena, a, b } = setUp()
    device.hold(a)
    arena.allocate(1000, a)
    arena.reset()
    arena.reset()
    assert.equal(device.defaultStream.query(), true)
    arena.allocate(1000, b)
    arena.reset()
    assert.equal(device.defaultStream.query(), false)
  })

  it('a refused wait leaves everything as it was', () => {
    const { device, arena, a, b } = setUp()
    const mark = arena.mark()
    const held = [arena.allocate(1000, a), arena.allocate(1000, b)]
    const changes = [() => arena.reset(a), () => arena.rewind(mark, a)]
    for (const change of changes) {
      device.driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
      assert.throws(change, CudaError)
      assert.ok(held.every(buffer => !buffer.freed))
      assert.equal(arena.stats().liveBuffers, 2)
    }
    device.hold(a)
    arena.reset(a)
    device.driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => arena.allocate(1000, b), CudaError)
    assert.equal(arena.availableBytes, 4 * MiB)
    arena.allocate(1000, b)
    assert.equal(b.query(), false, 'the wait that was refused is made up for')
  })
})
