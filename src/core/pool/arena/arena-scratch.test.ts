// An arena as the scratch of a graph group: contents and order of its launches, and what is refused meanwhile.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import { Event } from '../../order/event.js'
import type { Graph } from '../../order/graph.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { CachingPool } from '../caching/caching-pool.js'
import { endsOf, writer as poolWriter } from '../caching/captures/graph-group.fixture.js'
import type { GraphGroup, GraphGroupOptions } from '../caching/captures/graph-group.js'
import type { GraphOutput } from '../caching/captures/graph-output.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { limited } from '../wrappers/limited.js'
import type { AnyArenaOptions } from './arena-options.js'
import { ArenaPool } from './arena-pool.js'

const BYTES = 16 * MiB

/** The kinds of memory that an arena of one thread can have. */
const KINDS: Readonly<Record<string, (device: TestDevice, pool: CachingPool, stream: Stream) => AnyArenaOptions>> = {
  fixed: () => ({ bytes: BYTES }),
  growing: () => ({ bytes: 64 * KiB, maxPoolBytes: BYTES }),
  registrable: () => ({ bytes: BYTES, backing: 'registrable' }),
  'on a region': (_, pool, stream) => ({ region: pool.allocate(BYTES, stream) }),
  'over memory of others': device => ({ over: { ptr: device.driver.cuMemAlloc(BYTES), byteLength: BYTES } }),
}

function setUp(kind = 'growing', options: GraphGroupOptions = {}) {
  const device = new TestDevice({ capacityBytes: 128 * MiB })
  const pool = device.createPool({ maxPoolBytes: 64 * MiB })
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  const arena = new ArenaPool(device.clocks, device.defaultStream, KINDS[kind](device, pool, a))
  const below = arena.allocate(4 * KiB, a)
  below.fill(77)
  const group = pool.createGraphGroup({ ...options, arena })
  return { device, pool, arena, below, group, a, b, c }
}

interface Captures {
  readonly arena: ArenaPool
  readonly group: GraphGroup
}

/** A graph that writes `value` to scratch of the arena, and then copies it to an output. */
function writer({ arena, group }: Captures, stream: Stream, value: number, bytes = 1 * MiB): Graph<GraphOutput> {
  return group.capture(stream, () => {
    const output = group.allocateOutput(bytes, stream, 'own')
    const scratch = arena.allocate(bytes, stream)
    scratch.fill(value)
    output.copyFrom(scratch)
    return output
  })
}

for (const kind of Object.keys(KINDS)) {
  describe(`an arena as scratch of a graph group: ${kind}`, () => {
    it('gives all graphs the same memory, above what it had handed out, and keeps their launches apart', () => {
      const { device, pool, arena, below, group, a, b } = setUp(kind)
      const { liveBuffers } = arena.stats()
      const places: number[] = []
      const graphs = [3, 1, 8, 2].map((size, index) =>
        group.capture(index % 2 === 0 ? a : b, () => {
          const stream = index % 2 === 0 ? a : b
          const output = group.allocateOutput(size * MiB, stream, 'own')
          using scratch = arena.allocate(size * MiB, stream)
          places.push(scratch.ptr)
          scratch.fill(index + 1)
          output.copyFrom(scratch)
          return output
        }),
      )
      assert.deepEqual(new Set(places).size, 1, `${places}`)
      assert.ok(places[0] >= below.ptr + below.byteLength)
      assert.equal(arena.stats().liveBuffers, liveBuffers)
      const release = device.hold(a)
      for (const [index, graph] of graphs.entries()) graph.launch(index % 2 === 0 ? a : b)
      assert.equal(b.query(), false, 'each waits for the one before')
      release()
      for (const [index, { result }] of graphs.entries()) assert.deepEqual(endsOf(result), [index + 1, index + 1])
      assert.deepEqual(endsOf(below), [77, 77])
      arena.check()
      assertConsistent(pool)
    })

    it('comes after what used it before the group, and before what uses it after', () => {
      const { device, pool, arena, group, a, b, c } = setUp(kind)
      group.close()
      const mark = arena.mark()
      const copy = pool.allocate(1 * MiB, c)
      let release = device.hold(c)
      const early = arena.allocate(1 * MiB, c)
      early.fill(9)
      copy.copyFrom(early)
      arena.rewind(mark, c)
      const second = pool.createGraphGroup({ arena })
      const graph = writer({ arena, group: second }, a, 5)
      graph.launch(b)
      assert.equal(b.query(), false, 'a launch waits for eager work')
      release()
      assert.deepEqual([...endsOf(copy), ...endsOf(graph.result)], [9, 9, 5, 5])
      release = device.hold(b)
      graph.launch(b)
      graph.close()
      second.close()
      const late = arena.allocate(1 * MiB, a)
      late.fill(6)
      assert.equal(a.query(), false, 'eager work waits for the launch')
      release()
      device.clocks.synchronize()
      assert.deepEqual([...endsOf(late), ...endsOf(graph.result)], [6, 6, 5, 5])
      arena.check()
    })

    it('is waited for at a reset by those who used memory below the scratch', () => {
      const { device, arena, below, group, a, b, c } = setUp(kind)
      const graph = writer({ arena, group }, a, 5)
      below.recordUse(c)
      const release = device.hold(c)
      graph.launch(a)
      graph.close()
      group.close()
      arena.allocate(1, a) // the next epoch begins
      arena.reset(b)
      assert.equal(b.query(), false)
      release()
      assert.equal(b.query(), true)
    })

    it('is refused to all but captures of the group until that is closed', () => {
      const { pool, arena, below, group, a, b, c } = setUp(kind)
      const mark = arena.mark()
      const lent = (call: string) => ({
        code: 'ERR_POOL_IN_USE',
        message: new RegExp(`^${call}: the arena is the scratch of a graph group, .*close the group first$`),
      })
      const assertRefused = () => {
        if (a.capture === null) assert.throws(() => arena.allocate(1, a), lent('allocate'), 'the last buffer is there')
        assert.throws(() => arena.allocate(1, b), lent('allocate'))
        assert.throws(() => arena.tryAllocate(1), lent('allocate'))
        assert.throws(() => arena.reset(), lent('reset'))
        assert.throws(() => arena.rewind(mark, b), lent('rewind'))
        assert.throws(() => pool.createGraphGroup({ arena }), {
          code: 'ERR_POOL_IN_USE',
          message: /^createGraphGroup: the arena is the scratch of another graph group; close that group first/,
        })
      }
      assertRefused()
      const graph = writer({ arena, group }, a, 1)
      assertRefused()
      group.beginCapture(a)
      c.beginCapture()
      arena.allocate(1, a)
      assert.deepEqual(
        [a, c].map(({ capture }) => arena.groupOf(capture!)),
        [group.number, 0],
      )
      assertRefused()
      assert.throws(() => arena.allocate(1, c), lent('allocate'), 'another capture')
      c.abortCapture()
      a.abortCapture()
      below.fill(2) // what was handed out before is used as always
      below.free()
      assertRefused()
      graph.close()
      assertRefused()
      group.close()
      arena.rewind(mark, b)
      arena.allocate(1, b)
      arena.reset()
      pool.createGraphGroup({ arena }).close()
      arena.check()
    })

    it('that is closed leaves graphs that cannot be launched', () => {
      const { arena, group, a } = setUp(kind)
      const graph = writer({ arena, group }, a, 1)
      graph.launch()
      arena.close()
      assert.throws(() => graph.launch(), { code: 'ERR_BUFFER_FREED', message: /^launch: a pool or buffer that the/ })
      assert.deepEqual(endsOf(graph.result), [1, 1])
      graph.close()
      group.close()
    })

    it('is poisoned before each launch, as far as captures have used it', () => {
      const { arena, below, group, a } = setUp(kind, { poison: true })
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(4 * KiB, a, 'own')
        output.copyFrom(arena.allocate(4 * KiB, a)) // reads what it has never written
        return output
      })
      writer({ arena, group }, a, 3, 2 * MiB).launch()
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [0xff, 0xff])
      assert.deepEqual(endsOf(below), [77, 77])
    })
  })
}

describe('an arena as scratch of a graph group', () => {
  it('is poisoned for graphs that use it alone: once it is gone, others may have its memory', () => {
    for (const end of ['arena', 'region'] as const) {
      const { device, pool, a, b } = setUp()
      const owner = device.createPool()
      const region = owner.allocate(4 * MiB, a)
      const arena = device.createArenaPool(end === 'arena' ? { bytes: 4 * MiB } : { region })
      const group = pool.createGraphGroup({ arena, poison: true })
      const used = writer({ arena, group }, a, 1)
      const graph = poolWriter({ pool, group }, b, 2, 1 * MiB, 'own')
      if (end === 'arena') arena.close()
      used.close()
      region.free()
      device.clocks.synchronize()
      owner.trimTo(0)
      const others = Array.from({ length: 12 }, () => device.createPlainPool().allocate(4 * MiB))
      for (const other of others) other.fill(7)
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [2, 2])
      for (const other of others) assert.deepEqual(endsOf(other), [7, 7])
    }
  })

  it('grows in a capture without moving, and a shortage leaves the capture whole', () => {
    const { device, arena, group, a } = setUp()
    const first = writer({ arena, group }, a, 1, 32 * KiB)
    const before = arena.stats().reservedBytes
    const second = group.capture(a, () => {
      const output = group.allocateOutput(8 * MiB, a)
      assert.throws(() => arena.allocate(2 * BYTES, a), OutOfMemoryError)
      device.driver.failCall({ call: 'cuMemCreate', code: 2 })
      assert.throws(() => arena.allocate(8 * MiB, a), OutOfMemoryError)
      device.driver.clearFaults()
      const scratch = arena.allocate(8 * MiB, a)
      scratch.fill(2)
      output.copyFrom(scratch)
      return output
    })
    assert.ok(arena.stats().reservedBytes > before)
    second.launch()
    assert.deepEqual(endsOf(second.result), [2, 2])
    first.launch()
    assert.deepEqual(endsOf(first.result), [1, 1])
    assert.equal(group.trim(), 0, 'the memory stays')
    arena.check()
  })

  it('drops what a capture has at its end, also if that makes no graph', () => {
    const { device, arena, group, a, b } = setUp()
    const counted = limited(arena, 4 * MiB)
    const { liveBytes } = arena.stats()
    const held: DeviceBuffer[] = []
    const take = () => {
      held.push(counted.allocate(1 * MiB, a), arena.allocate(1 * MiB, a, 4096))
    }
    group.capture(a, take).launch()
    assert.throws(() =>
      group.capture(a, () => {
        take()
        throw new Error('of the program')
      }),
    )
    device.driver.failCall({ call: 'cuGraphInstantiate', code: 999 })
    assert.throws(() => group.capture(a, take), CudaError)
    device.driver.clearFaults()
    for (const buffer of held) {
      assert.equal(buffer.freed, true)
      assert.throws(() => buffer.fill(1), { code: 'ERR_BUFFER_FREED' })
      assert.throws(() => buffer.recordUse(b), { code: 'ERR_BUFFER_FREED' })
    }
    assert.deepEqual([counted.handedOutBytes, arena.stats().liveBytes], [0, liveBytes])
    assert.equal(new Set(held.map((_, index) => index)).size, 6)
    arena.check()
  })

  it('serves all streams of a capture, and frees and announced uses change nothing', () => {
    const { device, arena, group, a, b } = setUp()
    const [fork, join] = [new Event(device.context), new Event(device.context)]
    const graph = group.capture(a, () => {
      const output = group.allocateOutput(2 * MiB, a)
      using first = arena.allocate(1 * MiB, a)
      first.fill(1)
      fork.record(a)
      b.wait(fork)
      const second = arena.allocate(1 * MiB, b)
      second.fill(2)
      first.recordUse(b)
      second.free(a)
      assert.throws(() => second.fill(1), { code: 'ERR_BUFFER_FREED' })
      join.record(b)
      a.wait(join)
      const third = arena.allocate(1 * MiB, a)
      assert.ok(third.ptr > first.ptr)
      third.fill(3)
      output.copyFrom(first)
      output.copyFrom(third, 1 * MiB)
      return output
    })
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [1, 3])
  })

  it('refuses uses of captured scratch by work that is not part of the capture', () => {
    const { arena, group, a, b, c } = setUp()
    group.capture(a, () => {
      const scratch = arena.allocate(1 * MiB, a)
      const refusal = (call: string) => ({
        code: 'ERR_STREAM_CAPTURED',
        message: new RegExp(`^${call}: the buffer is scratch of a graph that is being captured, and this stream is`),
      })
      assert.throws(() => scratch.noteUse(b, 'launch'), refusal('launch'))
      assert.throws(() => scratch.recordUse(b), refusal('recordUse'))
      c.beginCapture()
      assert.throws(() => scratch.noteUse(c, 'launch'), refusal('launch'))
      assert.throws(() => scratch.recordUse(c), refusal('recordUse'))
      c.abortCapture()
    })
  })

  it('serves captures of other libraries', () => {
    const { device, pool, arena, group, a, b } = setUp()
    const { driver } = device
    const graphs = [a, b].map((stream, index) => {
      pool.beginCapture(stream, { group })
      driver.cuStreamBeginCapture(stream.handle, 0)
      const output = group.allocateOutput(1 * MiB, stream, 'own')
      const scratch = arena.allocate(1 * MiB, stream)
      scratch.fill(index + 1)
      output.copyFrom(scratch)
      const executable = driver.cuGraphInstantiate(driver.cuStreamEndCapture(stream.handle))
      return { output, executable, memory: pool.endCapture(stream), place: scratch }
    })
    const release = device.hold(a)
    for (const [index, { memory, executable }] of graphs.entries()) {
      const stream = [a, b][index]
      memory.beforeLaunch(stream)
      driver.cuGraphLaunch(executable, stream.handle)
      memory.noteLaunch(stream)
    }
    assert.equal(b.query(), false)
    release()
    assert.deepEqual(
      graphs.flatMap(({ output }) => endsOf(output)),
      [1, 1, 2, 2],
    )
    assert.ok(graphs.every(({ place }) => place.freed))
  })

  it('must be an open arena of this thread and device', () => {
    const { device, pool } = setUp()
    const other = new TestDevice()
    const plain = device.createPlainPool()
    const onPlain = new ArenaPool(device.clocks, device.defaultStream, { region: plain.allocate(1 * MiB) })
    const closed = device.createArenaPool({ bytes: 1 * MiB })
    closed.close()
    const cases: [unknown, object][] = [
      [1, { name: 'TypeError', message: /^createGraphGroup: arena must be an arena of createArenaPool, not 1$/ }],
      [{ mark: () => {} }, { name: 'TypeError', message: /^createGraphGroup: arena must be an arena/ }],
      [device.createPool(), { name: 'PoolError', message: /^createGraphGroup: arena must be an arena of one thread/ }],
      [limited(device.createArenaPool({ bytes: 256 }), 256), { name: 'PoolError', message: /of one thread/ }],
      [closed, { code: 'ERR_POOL_CLOSED', message: /^createGraphGroup: the pool is closed/ }],
      [
        other.createArenaPool({ bytes: 1 * MiB }),
        { code: 'ERR_OTHER_DEVICE', message: /^createGraphGroup: the arena/ },
      ],
      [onPlain, { name: 'PoolError', message: /^createGraphGroup: .* on a buffer of a pool that keeps no memory/ }],
    ]
    const shared = device.createSharedPool({}).pool
    const ofThreads = /^PoolError: createGraphGroup: a group that threads share has no arena/
    assert.throws(() => shared.createGraphGroup({ arena: device.createArenaPool({ bytes: 256 }) }), ofThreads)
    const before = pool.stats()
    for (const [arena, error] of cases) assert.throws(() => pool.createGraphGroup({ arena } as never), error)
    assert.deepEqual(pool.stats(), before)
    onPlain.allocate(1)
  })

  it('is an ordinary arena again once the pool of the group is closed', () => {
    const { device, pool, arena, group, a, b } = setUp()
    const graph = writer({ arena, group }, a, 1)
    graph.launch(b)
    pool.close()
    assert.throws(() => graph.launch(), { code: 'ERR_BUFFER_FREED' })
    const buffer = arena.allocate(1 * MiB, a)
    buffer.fill(4)
    assert.deepEqual(endsOf(buffer), [4, 4])
    graph.close()
    device.createPool().createGraphGroup({ arena }).close()
    arena.check()
  })

  it('on a region: the memory stays as long as a graph has it, and a launch is refused while its pool sleeps', async () => {
    const { device, pool, a } = setUp()
    const owner = device.createPool()
    const region = owner.allocate(4 * MiB, a)
    const arena = new ArenaPool(device.clocks, device.defaultStream, { region })
    const group = pool.createGraphGroup({ arena })
    const graph = writer({ arena, group }, a, 1)
    await owner.sleep()
    assert.throws(() => graph.launch(), { code: 'ERR_POOL_ASLEEP' })
    await owner.wake()
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [1, 1])
    const { ptr } = region
    region.free()
    device.clocks.synchronize()
    assert.notEqual(owner.allocate(4 * MiB, a).ptr, ptr, 'the graph writes there')
    graph.launch()
    graph.close()
    device.clocks.synchronize()
    owner.processDeferred()
    assert.equal(owner.allocate(4 * MiB, a).ptr, ptr)
    arena.close()
  })

  it('on a region: the stream of the region waits for launches once the arena is closed', () => {
    const { device, arena, group, a, b } = setUp('on a region')
    const graph = writer({ arena, group }, a, 1)
    const release = device.hold(b)
    graph.launch(b)
    arena.close()
    assert.equal(a.query(), false)
    release()
    assert.equal(a.query(), true)
  })

  it('in a group that refuses launches, work before the group is named', () => {
    const { device, pool, arena, group, a, b } = setUp()
    group.close()
    const strict = pool.createGraphGroup({ arena, whenUnordered: 'refuse' })
    const graph = writer({ arena, group: strict }, a, 1)
    const refusal = { code: 'ERR_STREAM_ORDER', message: /^launch: graph 1 .* may run beside a use of the same memory/ }
    assert.throws(() => graph.launch(b), refusal)
    const done = new Event(device.context)
    done.record(a) // `below` was filled there
    b.wait(done)
    graph.launch(b)
  })
})
