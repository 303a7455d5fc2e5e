// The order of streams when an arena is reset or rewound. The streams belong to an eager simulated device, which
// holds work back on request, so that each test chooses the pending work.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'

function streamsOf(device: TestDevice) {
  return { a: device.createStream(), b: device.createStream(), c: device.createStream() }
}

function setUp() {
  const device = new TestDevice()
  return { device, arena: device.createArenaPool({ bytes: 4 * MiB }), ...streamsOf(device) }
}

/** An arena with two fronts; those of a shared one stand for two threads. */
function openWith(shared: boolean) {
  const device = new TestDevice()
  const streams = streamsOf(device)
  if (shared) {
    const { pool, attach } = device.createSharedArena({ bytes: 4 * MiB })
    return { device, arena: pool, other: attach(), ...streams }
  }
  const arena = device.createArenaPool({ bytes: 4 * MiB })
  return { device, arena, other: arena, ...streams }
}

/** Calls of the driver that `work` makes. */
function callsOf(device: TestDevice, work: () => void): string[] {
  const before = new Map(device.driver.calls)
  work()
  return [...device.driver.calls].filter(([call, count]) => count !== before.get(call)).map(([call]) => call)
}

for (const shared of [false, true]) {
  describe(`arena${shared ? ' that threads share' : ''}: the order of streams`, () => {
    it('the resetting stream waits for all users, and later users wait for the reset', () => {
      const uses: readonly ((world: ReturnType<typeof openWith>) => void)[] = [
        ({ other, b }) => other.allocate(1000, b),
        ({ other, a, b }) => other.allocate(1000, a).recordUse(b),
        ({ other, a, b }) => other.allocate(1000, a).free(b),
      ]
      for (const use of uses) {
        const world = openWith(shared)
        const { device, arena, other, a, b, c } = world
        use(world)
        const release = device.hold(b)
        arena.reset(a)
        assert.deepEqual([a.query(), c.query()], [false, true])
        other.allocate(1, c)
        assert.equal(c.query(), false)
        release()
        assert.deepEqual([a.query(), c.query()], [true, true])
        device.hold(b)
        arena.reset(a)
        assert.equal(a.query(), true, 'the other stream has not used it since')
      }
    })

    it('the very first allocation counts as a use, on the default stream too', () => {
      const { device, arena, other, a } = openWith(shared)
      other.allocate(1000)
      const release = device.hold(device.defaultStream)
      arena.reset(a)
      assert.equal(a.query(), false)
      release()
      assert.equal(a.query(), true)
    })

    it('a stream does not wait for a reset that is known complete', () => {
      const { device, arena, other, a, b } = openWith(shared)
      other.allocate(1000, a)
      arena.reset(a)
      a.synchronize()
      assert.deepEqual(
        callsOf(device, () => other.allocate(1000, b)),
        [],
      )
    })

    it('the device waits for the work of a closed stream, and the host does not', () => {
      const { device, arena, other, a, b } = openWith(shared)
      const buffer = other.allocate(1000, b)
      device.hold(b)
      buffer.fill(1)
      b.close()
      arena.reset(a)
      assert.equal(a.query(), false)
      a.synchronize()
      other.allocate(1000, a)
      arena.reset(a)
      assert.equal(a.query(), true)
    })

    it('a reset waits for a closed stream that a buffer was freed on', () => {
      const { device, arena, other, a, b } = openWith(shared)
      const buffer = other.allocate(1000, a)
      device.hold(b)
      b.close()
      buffer.free(b)
      arena.reset(a)
      assert.equal(a.query(), false)
    })

    it('a stream waits for a reset whose stream was closed', () => {
      const { device, arena, other, a, b } = openWith(shared)
      other.allocate(1000, a)
      device.hold(a)
      arena.reset(a)
      a.close()
      other.allocate(1000, b)
      assert.equal(b.query(), false)
    })

    it('a reset without a stream uses the only stream of the arena, or else the default stream', () => {
      const { device, arena, other, a, b } = openWith(shared)
      device.hold(a)
      other.allocate(1000, a)
      arena.reset()
      arena.reset()
      assert.equal(device.defaultStream.query(), true)
      other.allocate(1000, b)
      arena.reset()
      assert.equal(device.defaultStream.query(), false)
    })

    it('a refused reset changes nothing', () => {
      const { device, arena, other, a, b } = openWith(shared)
      const buffer = other.allocate(1000, b)
      const { availableBytes } = arena
      device.hold(b)
      device.driver.failCall({ call: 'cuStreamWaitEvent', nth: 1, code: 1 })
      assert.throws(() => arena.reset(a), CudaError)
      assert.deepEqual([buffer.freed, arena.availableBytes], [false, availableBytes])
      assert.equal(other.allocate(1, b).ptr, buffer.ptr + 1024)
      arena.reset(a)
      assert.equal(buffer.freed, true)
    })
  })
}

describe('arena: stream order', () => {
  it('one stream alone makes no driver call', () => {
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

  it('a stream that allocates after a reset waits for the reset, once', () => {
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

  it('a rewind waits for streams of earlier epochs, which still own buffers below the mark', () => {
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

  it('a stream of another device is a user until the reset', () => {
    const device = new TestDevice({ devices: 2 })
    const second = new TestDevice(device.driver, 1)
    second.context.enablePeerAccess(device.context)
    const [a, far] = [device.createStream(), second.createStream()]
    const arena = device.createArenaPool({ bytes: 4 * MiB })
    arena.allocate(1000, a).recordUse(far)
    arena.rewind(arena.mark(), a)
    const release = second.hold(far)
    arena.reset(a)
    assert.equal(a.query(), false, 'it may use what the rewind has kept')
    release()
    arena.rewind(arena.mark(), a)
    second.hold(far)
    arena.reset(a)
    assert.equal(a.query(), true, 'it has not used the arena since')
  })

  it('a refused wait changes nothing', () => {
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
