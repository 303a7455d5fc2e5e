// A graph group and the rest of its pool: limits, trimming, sleep, access of other devices, figures, and the close.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../../base/errors.js'
import { twoDevices } from '../../pool.fixture.js'
import { signal } from './graph-capture.fixture.js'
import { checkPool, endsOf, KINDS, setUpGroup, writer } from './graph-group.fixture.js'

for (const backing of KINDS) {
  describe(`a graph group and its pool: ${backing}`, () => {
    it('counts for the limit of the pool, which first gives back what is idle', () => {
      const { pool, group, a } = setUpGroup({ backing, maxPoolBytes: 24 * MiB })
      pool.allocate(20 * MiB, a).free()
      a.synchronize()
      writer({ pool, group }, a, 1, 4 * MiB)
      const large = (backing === 'segments' ? 10 : 14) * MiB
      const graph = group.capture(a, () => {
        const first = pool.tryAllocate(large, a)
        assert.equal(pool.tryAllocate(large, a), null)
        assert.throws(() => pool.allocate(large, a), {
          name: 'OutOfMemoryError',
          message: /^no room for 1\d MiB: .* MiB in graph groups/,
        })
        first!.fill(3)
        first!.free()
      })
      graph.launch()
      assert.ok(pool.stats().reservedBytes <= 24 * MiB)
      checkPool(pool)
    })

    it('gives what it kept for buffers that outlived it to a capture of another group that needs room', () => {
      const { device, pool, group, a } = setUpGroup({ backing, maxPoolBytes: 16 * MiB })
      const graph = writer({ pool, group }, a, 1, 6 * MiB, 'own')
      graph.launch()
      graph.close()
      group.close()
      device.clocks.synchronize()
      graph.result.free()
      const next = writer({ pool, group: pool.createGraphGroup() }, a, 2, 6 * MiB, 'own')
      next.launch()
      assert.deepEqual(endsOf(next.result), [2, 2])
      const idle = pool.createGraphGroup()
      next.close()
      next.result.free()
      device.clocks.synchronize()
      idle.reserve(14 * MiB)
      checkPool(pool)
    })

    it('has a limit of its own, and a capture goes on after its refusal', () => {
      const { pool, group, a } = setUpGroup({ backing }, { maxBytes: '8MiB' })
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(1 * MiB, a, 'own')
        assert.throws(
          () => pool.allocate(9 * MiB, a),
          (error: unknown) =>
            error instanceof OutOfMemoryError &&
            error.remedy === 'raiseLimit' &&
            /; raise maxBytes of the graph group, or free that much in it$/.test(error.message),
        )
        assert.equal(pool.tryAllocate(9 * MiB, a), null)
        using scratch = pool.allocate(1 * MiB, a)
        scratch.fill(4)
        output.copyFrom(scratch)
        return output
      })
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [4, 4])
      const { scratchBytes, ownBytes } = group.stats()
      assert.ok(scratchBytes + ownBytes <= 8 * MiB)
      pool.allocate(9 * MiB, a).free()
    })

    it('names its own limit where that refuses a reserve, and only there', () => {
      const { pool, group, a } = setUpGroup({ backing, maxPoolBytes: 16 * MiB }, { maxBytes: 4 * MiB })
      const limit = /; raise maxBytes of the graph group, or free that much in it$/
      assert.throws(() => group.reserve(8 * MiB), { name: 'OutOfMemoryError', remedy: 'raiseLimit', message: limit })
      const refused = (error: unknown) => error instanceof OutOfMemoryError && !limit.test(error.message)
      assert.throws(() => pool.allocate(32 * MiB, a), refused)
      group.capture(a, () => assert.equal(pool.tryAllocate(8 * MiB, a), null))
      assert.throws(() => pool.allocate(32 * MiB, a), refused)
    })

    it('has nothing once the pool is closed', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const graph = group.capture(a, () => [group.allocateOutput(1 * MiB, a, 'own'), pool.allocate(1 * MiB, a)])
      pool.warnOnHeld = false
      pool.close()
      const { scratchBytes, ownBytes, pinnedBytes, graphs } = group.stats()
      assert.deepEqual([scratchBytes, ownBytes, pinnedBytes, graphs], [0, 0, 0, 0])
      assert.equal(String(group), 'GraphGroup { 0 graphs, closed }')
      graph.close()
    })

    it('takes its scratch ahead', () => {
      const { device, pool, group, a } = setUpGroup({ backing, maxPoolBytes: 32 * MiB }, { maxBytes: 24 * MiB })
      group.reserve('16MiB')
      assert.ok(group.stats().scratchBytes >= 16 * MiB)
      const calls = device.calls('cuMemCreate') + device.calls('cuMemAlloc')
      writer({ pool, group }, a, 1, 8 * MiB)
      assert.equal(device.calls('cuMemCreate') + device.calls('cuMemAlloc'), calls)
      group.reserve(1)
      assert.throws(() => group.reserve(28 * MiB), OutOfMemoryError)
      assert.throws(() => group.reserve(40 * MiB), OutOfMemoryError)
      checkPool(pool)
    })

    it('gives memory back once no graph is open and the last launch has completed', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing, maxPoolBytes: 32 * MiB })
      const graph = writer({ pool, group }, a, 1, 8 * MiB, 'own')
      const { reservedBytes } = pool.stats()
      const release = device.hold(a)
      graph.launch()
      assert.equal(group.trim(), 0)
      graph.close()
      graph.result.free()
      assert.equal(group.trim(), 0, 'the launch is under way')
      assert.equal(pool.trimTo(0), 0)
      release()
      pool.processDeferred()
      const { scratchBytes, ownBytes } = group.stats()
      assert.equal(group.trim(), scratchBytes + ownBytes)
      assert.deepEqual([group.stats().scratchBytes, group.stats().ownBytes], [0, 0])
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(pool.stats().peakReservedBytes, reservedBytes)
      const again = writer({ pool, group }, b, 2, 8 * MiB)
      again.launch()
      assert.deepEqual(endsOf(again.result), [2, 2])
      again.close()
      b.synchronize()
      pool.allocate(30 * MiB, a).free() // takes the place of the group's memory
      checkPool(pool)
    })

    it('keeps held buffers when it is trimmed or closed, until they are freed', () => {
      const { device, pool, group, a } = setUpGroup({ backing })
      const graph = group.capture(a, () => {
        using scratch = pool.allocate(6 * MiB, a)
        const held = pool.allocate(1 * MiB, a)
        held.fill(5)
        using more = pool.allocate(8 * MiB, a)
        scratch.fill(1)
        more.fill(2)
        return held
      })
      graph.launch()
      a.synchronize()
      graph.close()
      group.trim()
      group.close()
      assert.equal(group.closed, true)
      pool.trimTo(0)
      assert.deepEqual(endsOf(graph.result), [5, 5])
      assert.ok(pool.stats().reservedBytes > 0)
      checkPool(pool)
      graph.result.free()
      a.synchronize()
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(device.freeBytes(), 64 * MiB)
      pool.close()
    })

    it('loses its graphs and outputs by the close of the pool', () => {
      const { device, pool, group, a } = setUpGroup({ backing })
      const graph = writer({ pool, group }, a, 1)
      graph.launch()
      pool.close()
      assert.throws(() => graph.launch(), /^PoolError: launch: a pool or buffer that the graph uses is closed/)
      assert.equal(graph.result.freed, true)
      assert.throws(() => graph.result.readSync(), { code: 'ERR_POOL_CLOSED' })
      assert.throws(() => writer({ pool, group }, a, 1), { code: 'ERR_POOL_CLOSED' })
      assert.throws(() => group.trim(), { code: 'ERR_POOL_CLOSED' })
      graph.close()
      group.close()
      assert.equal(device.freeBytes(), 64 * MiB)
    })

    if (backing === 'shared') return // pools that threads share are open to no other device

    it('is open to devices that the pool is open to, also where it grows later', () => {
      const [device, peer] = twoDevices()
      const pool = device.createPool({ backing })
      const group = pool.createGraphGroup()
      const [a, theirs] = [device.createStream(), peer.createStream()]
      const first = writer({ pool, group }, a, 1)
      pool.setAccess(peer, 'readWrite')
      const second = writer({ pool, group }, a, 2, 4 * MiB)
      const target = peer.createPool({ backing }).allocate(4 * MiB, theirs)
      first.launch()
      second.launch()
      signal(a, theirs)
      const release = peer.hold(theirs)
      target.copyFrom(second.result)
      second.result.recordUse(theirs)
      first.launch()
      assert.equal(a.query(), false, 'the launch waits for the copy of the other device')
      release()
      assert.deepEqual(endsOf(target), [2, 2])
      a.synchronize()
      assert.throws(() => first.launch(theirs), { code: 'ERR_OTHER_DEVICE' })
      checkPool(pool)
      pool.close()
    })
  })
}

describe('a graph group that sleeps with its pool', () => {
  it('keeps own outputs and held buffers, at their addresses, and no scratch', async () => {
    const { device, pool, group, a, b } = setUpGroup({ backing: 'virtual' })
    const own = writer({ pool, group }, a, 1, 1 * MiB, 'own')
    const held = pool.createGraphGroup().capture(a, () => {
      const buffer = pool.allocate(1 * MiB, a)
      buffer.fill(3)
      return buffer
    })
    const shared = writer({ pool, group }, a, 2, 2 * MiB)
    for (const graph of [own, held, shared]) graph.launch(b)
    b.synchronize()
    assert.deepEqual(endsOf(shared.result), [2, 2])
    const { reservedBytes } = pool.stats()
    const before = group.stats()
    const addresses = [own, held].map(({ result }) => result.ptr)
    await pool.sleep()
    assert.equal(device.freeBytes(), 64 * MiB)
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().hostCopyBytes], [0, 2 * MiB])
    assert.ok(pool.stats().asleepBytes >= before.scratchBytes + before.ownBytes)
    assert.throws(() => own.launch(), { code: 'ERR_POOL_ASLEEP' })
    assert.throws(() => own.result.readSync(), { code: 'ERR_POOL_ASLEEP' })
    assert.throws(() => shared.result.readSync(), { code: 'ERR_POOL_ASLEEP' })
    assert.throws(() => group.beginCapture(a), { code: 'ERR_POOL_ASLEEP' })
    assert.throws(() => group.reserve(60 * MiB), { code: 'ERR_POOL_ASLEEP' })
    assert.throws(() => pool.createGraphGroup(), { code: 'ERR_POOL_ASLEEP' })
    assert.equal(group.trim(), 0)
    pool.check()
    await pool.wake()
    assert.equal(pool.stats().reservedBytes, reservedBytes)
    assert.deepEqual(
      [own, held].map(({ result }) => result.ptr),
      addresses,
    )
    assert.deepEqual(
      [own, held].flatMap(({ result }) => endsOf(result)),
      [1, 1, 3, 3],
    )
    assert.equal(shared.result.overwritten, true)
    assert.throws(() => shared.result.readSync(), /or a sleep; use it right after its launch/)
    shared.launch(b)
    assert.deepEqual(endsOf(shared.result), [2, 2])
    checkPool(pool)
  })

  it('is trimmed by a sleep without open graphs, and gives what was freed meanwhile to captures after it', async () => {
    const { pool, group, a } = setUpGroup({ backing: 'virtual' })
    const graph = writer({ pool, group }, a, 1, 1 * MiB, 'own')
    graph.launch()
    const { ptr } = graph.result
    await pool.sleep()
    graph.result.free()
    graph.close()
    await pool.wake()
    const next = writer({ pool, group }, a, 2, 1 * MiB, 'own')
    next.launch()
    assert.equal(next.result.ptr, ptr)
    assert.deepEqual(endsOf(next.result), [2, 2])
    checkPool(pool)
  })

  it('refuses to sleep while a capture of the group is under way', async () => {
    const { pool, group, a } = setUpGroup({ backing: 'virtual' })
    group.beginCapture(a)
    await assert.rejects(pool.sleep(), { code: 'ERR_STREAM_CAPTURED' })
    a.endCapture().launch()
    await pool.sleep()
    await pool.wake()
  })

  it('sleeps on, whole, if the device is full at wake', async () => {
    const { device, pool, group, a } = setUpGroup({ backing: 'virtual' })
    const graph = writer({ pool, group }, a, 1, 16 * MiB, 'own')
    const buffer = pool.allocate(8 * MiB, a)
    buffer.fill(2)
    graph.launch()
    await pool.sleep()
    const other = device.createPool({ backing: 'virtual' })
    const taken = other.allocate(40 * MiB)
    const free = device.freeBytes()
    await assert.rejects(pool.wake(), OutOfMemoryError)
    assert.equal(device.freeBytes(), free)
    taken.free()
    other.close()
    await pool.wake()
    assert.deepEqual([...endsOf(graph.result), ...endsOf(buffer)], [1, 1, 2, 2])
    graph.launch()
    checkPool(pool)
  })
})

describe('the memory of a graph group', () => {
  it('is among the segments of the pool, which its observer hears of', () => {
    const { pool, group, a } = setUpGroup({ backing: 'virtual' })
    const known = new Map<number, number>()
    pool.observeSegments({
      ready: ({ ptr, bytes }) => void known.set(ptr, bytes),
      leaving: ({ ptr }) => void known.delete(ptr),
    })
    const graph = group.capture(a, () => pool.allocate(5 * MiB, a))
    const inSegments = (ptr: number) => pool.segments().some(one => ptr >= one.ptr && ptr < one.ptr + one.bytes)
    assert.ok(inSegments(graph.result.ptr))
    const sum = [...known.values()].reduce((total, bytes) => total + bytes, 0)
    assert.equal(sum, pool.stats().reservedBytes)
    pool.deallocate(graph.result.ptr)
    graph.close()
    a.synchronize()
    group.trim()
    assert.equal(known.size, 0)
  })

  it('lets its observer call nothing that changes the pool', () => {
    const { pool, group } = setUpGroup()
    let refused = 0
    const call = () => {
      assert.throws(() => pool.trimTo(0), PoolError)
      refused++
    }
    pool.observeSegments({ ready: call, leaving: call })
    group.reserve(4 * MiB)
    const grown = refused
    assert.ok(grown > 0)
    group.trim()
    assert.equal(refused, 2 * grown)
    group.reserve(4 * MiB)
    group.close()
    assert.equal(refused, 4 * grown)
  })

  it('shows in snapshots, and in lists of live buffers', () => {
    const { pool, group, a } = setUpGroup({ backing: 'virtual' })
    const graph = writer({ pool, group }, a, 1, 100 * KiB, 'own')
    graph.result.label = 'logits'
    const held = pool.createGraphGroup().capture(a, () => pool.allocate(200 * KiB, a))
    assert.deepEqual(
      pool.live().map(({ byteLength }) => byteLength),
      [100 * KiB, 200 * KiB],
    )
    const states = pool.snapshot().ranges.flatMap(({ blocks }) => blocks.map(({ state }) => state))
    assert.ok(states.includes('captured') && states.filter(state => state === 'live').length === 2)
    held.close()
    checkPool(pool)
  })
})
