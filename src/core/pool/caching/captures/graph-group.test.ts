// Graphs that share memory: the memory of their captures, and the order and results of their launches.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError, PoolError } from '../../../base/errors.js'
import { signal } from './graph-capture.fixture.js'
import { checkPool, endsOf, KINDS, setUpGroup, writer } from './graph-group.fixture.js'

for (const backing of KINDS) {
  describe(`a graph group: ${backing}`, () => {
    it('gives each capture the scratch of the ones before', () => {
      const { pool, group, a, b } = setUpGroup({ backing })
      const addresses: number[] = []
      const graphs = [a, b, a].map(stream =>
        group.capture(stream, () => {
          using scratch = pool.allocate(3 * MiB, stream)
          addresses.push(scratch.ptr)
          scratch.fill(1)
        }),
      )
      assert.equal(new Set(addresses).size, 1, 'all have the same address')
      const { scratchBytes, ...counts } = group.stats()
      assert.deepEqual(counts, { ownBytes: 0, pinnedBytes: 0, graphs: 3, launches: 0, waits: 0 })
      assert.ok(scratchBytes >= 3 * MiB && scratchBytes <= 4 * MiB, `${scratchBytes}`)
      checkPool(pool)
      assert.equal(String(group), 'GraphGroup { 3 graphs, open }')
      for (const graph of graphs) graph.close()
      group.close()
      checkPool(pool)
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
      pool.close()
    })

    it('makes a launch wait on the device for the launch before on another stream', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const copy = pool.allocate(1 * MiB, a)
      const release = device.hold(a)
      first.launch(a)
      copy.copyFrom(first.result)
      second.launch(b)
      assert.equal(b.query(), false, 'the second launch waits for the first')
      release()
      assert.deepEqual(endsOf(copy), [1, 1])
      assert.deepEqual(endsOf(second.result), [2, 2])
      assert.deepEqual([group.stats().launches, group.stats().waits], [2, 1])
    })

    it('inserts no wait on one stream, behind an event, or once the host has seen the launch complete', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const waits = device.calls('cuStreamWaitEvent')
      first.launch(a)
      second.launch(a)
      signal(a, b)
      first.launch(b)
      b.synchronize()
      second.launch(a)
      assert.equal(device.calls('cuStreamWaitEvent') - waits, 1, 'the program has made one')
      assert.equal(group.stats().waits, 0)
      assert.deepEqual(endsOf(second.result), [2, 2])
    })

    it('waits for the launch alone once the group has needed a wait', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      first.launch(a)
      const early = device.hold(a)
      first.launch(a)
      second.launch(b)
      early()
      b.synchronize()
      first.launch(a)
      device.hold(a) // later work of the stream that the next launch does not need
      second.launch(b)
      assert.equal(b.query(), true)
    })

    it('waits for a launch that was cut short after the driver had it', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const { driver } = device
      const { cuGraphLaunch } = driver
      driver.cuGraphLaunch = (...args) => {
        cuGraphLaunch.apply(driver, args)
        throw new Error('cut')
      }
      device.hold(a)
      assert.throws(() => first.launch(a), /cut/)
      driver.cuGraphLaunch = cuGraphLaunch
      second.launch(b)
      assert.equal(b.query(), false)
    })

    it('waits for a launch during whose call another thread has placed a mark', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const { driver } = device
      const { cuGraphLaunch } = driver
      device.clocks.share()
      let release = () => {}
      driver.cuGraphLaunch = (...args) => {
        device.clocks.watcher.mark(a.slot) // does not cover the launch
        release = device.hold(a)
        cuGraphLaunch.apply(driver, args)
      }
      first.launch(a)
      driver.cuGraphLaunch = cuGraphLaunch
      second.launch(b)
      assert.equal(b.query(), false)
      release()
      assert.deepEqual(endsOf(second.result), [2, 2])
    })

    it('refuses a launch whose order is not known, if it was made so', () => {
      const { device, pool, group, a, b, c } = setUpGroup({ backing }, { whenUnordered: 'refuse' })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const release = device.hold(a)
      first.launch(a)
      const names = [b, a].map(({ handle }) => `stream 0x${handle.toString(16)}`)
      assert.throws(() => second.launch(b), {
        name: 'PoolError',
        code: 'ERR_STREAM_ORDER',
        message: new RegExp(`^launch: graph 2 of the group on ${names[0]} may run beside graph 1 on ${names[1]}; let`),
      })
      assert.equal(group.stats().launches, 1)
      signal(a, b)
      second.launch(b)
      assert.throws(
        () => second.result.recordUse(c),
        /recordUse: a use of an output on stream 0x\w+ may run beside graph 2/,
      )
      signal(b, c)
      second.result.recordUse(c)
      assert.throws(() => second.launch(b), /may run beside a use of the same memory on stream/)
      release()
      c.synchronize()
      second.launch(b)
      assert.deepEqual(endsOf(second.result), [2, 2])
    })

    it('keeps a buffer that is still held when the capture ends, and shows what it costs', () => {
      const { pool, group, a, b } = setUpGroup({ backing })
      const first = group.capture(a, () => {
        const held = pool.allocate(1 * MiB, a)
        held.fill(7)
        return held
      })
      assert.equal(group.stats().pinnedBytes, 1 * MiB)
      const second = writer({ pool, group }, b, 2, 2 * MiB)
      first.launch(a)
      second.launch(b)
      assert.deepEqual(endsOf(first.result), [7, 7])
      first.close()
      second.launch(b)
      assert.deepEqual(endsOf(first.result), [7, 7], 'also once its graph is closed')
      checkPool(pool)
      const { ptr } = first.result
      first.result.free()
      assert.equal(group.stats().pinnedBytes, 0)
      const third = group.capture(a, () => pool.allocate(1 * MiB, a))
      assert.equal(third.result.ptr, ptr, 'the next capture has its memory')
    })

    it('makes the next launch wait for work on a block that was freed after its capture', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const first = group.capture(a, () => pool.allocate(1 * MiB, a))
      const copy = pool.allocate(1 * MiB, a)
      first.result.fill(5)
      const release = device.hold(a)
      copy.copyFrom(first.result)
      first.result.free()
      const second = group.capture(b, () => {
        using scratch = pool.allocate(1 * MiB, b)
        scratch.fill(6)
        return scratch.ptr
      })
      second.launch(b)
      release()
      assert.deepEqual(endsOf(copy), [5, 5])
      assert.equal(group.stats().waits, 1)
    })

    it('gives memory that was freed with a use on another stream to later captures only', () => {
      const { pool, group, a, b } = setUpGroup({ backing })
      const addresses: number[] = []
      const take = () => {
        using buffer = pool.allocate(1 * MiB, a)
        addresses.push(buffer.ptr)
      }
      const graph = group.capture(a, () => {
        const buffer = pool.allocate(1 * MiB, a)
        addresses.push(buffer.ptr)
        buffer.recordUse(b)
        buffer.free()
        take()
      })
      group.capture(a, take)
      assert.notEqual(addresses[0], addresses[1])
      assert.equal(addresses[2], addresses[0])
      graph.launch(b)
      pool.check()
    })

    it('captures a stream that a use of a buffer was announced for', () => {
      const { pool, group, a, b } = setUpGroup({ backing })
      const buffer = pool.allocate(1 * MiB, b)
      buffer.recordUse(a)
      using graph = writer({ pool, group }, a, 1)
      graph.launch()
      assert.equal(group.stats().graphs, 1)
      buffer.free()
      checkPool(pool)
    })

    it('takes captures and closes in any order, also while launches run', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const first = writer({ pool, group }, a, 1)
      const copy = pool.allocate(1 * MiB, a)
      const release = device.hold(a)
      first.launch(a)
      copy.copyFrom(first.result)
      const second = writer({ pool, group }, b, 2, 4 * MiB)
      first.close()
      assert.deepEqual([group.trim(), group.stats().graphs], [0, 1])
      second.launch(b)
      release()
      assert.deepEqual(endsOf(copy), [1, 1])
      assert.deepEqual(endsOf(second.result), [2, 2])
      assert.throws(() => first.launch(a), /the graph is closed/)
      checkPool(pool)
    })

    it('has its scratch back after a capture that was aborted, and keeps held buffers until they are freed', () => {
      const { pool, group, a } = setUpGroup({ backing })
      group.beginCapture(a)
      const held = pool.allocate(1 * MiB, a)
      pool.allocate(1 * MiB, a).free()
      const output = group.allocateOutput(1 * MiB, a)
      a.abortCapture()
      assert.deepEqual([group.stats().graphs, group.stats().pinnedBytes], [0, 1 * MiB])
      assert.equal(output.overwritten, true)
      held.free()
      assert.equal(group.stats().pinnedBytes, 0)
      const next = group.capture(a, () => [1, 2].map(() => pool.allocate(1 * MiB, a).ptr))
      assert.ok(next.result.includes(output.ptr))
      checkPool(pool)
    })

    it('refuses uses of buffers that a capture without a graph holds, since other graphs may write there', () => {
      for (const how of ['abort', 'refused'] as const) {
        const { device, pool, group, a, b } = setUpGroup({ backing })
        const copy = pool.allocate(1 * MiB, b)
        const earlier = how === 'abort' ? writer({ pool, group }, a, 1) : null
        group.beginCapture(a)
        const held = pool.allocate(1 * MiB, a)
        held.fill(5)
        if (how === 'abort') a.abortCapture()
        else {
          device.driver.failCall({ call: 'cuGraphInstantiate', code: 999 })
          assert.throws(() => a.endCapture(), CudaError)
          device.driver.clearFaults()
        }
        copy.fill(3) // a use of another buffer changes nothing
        for (const [call, use] of Object.entries({
          fill: () => held.fill(1),
          copyFrom: () => copy.copyFrom(held),
          recordUse: () => held.recordUse(b),
        })) {
          const message = new RegExp(`^${call}: the capture that allocated the buffer made no graph`)
          assert.throws(use, { code: 'ERR_BUFFER_FREED', message })
        }
        assert.ok(String(held).includes('live') && held.ptr > 0)
        pool.free(held)
        earlier?.launch()
        if (earlier !== null) assert.deepEqual(endsOf(earlier.result), [1, 1])
        earlier?.close()
        const { result } = group.capture(a, () => pool.allocate(1 * MiB, a))
        result.fill(2)
        assert.deepEqual(endsOf(result), [2, 2], 'a buffer in its place can be used')
        checkPool(pool)
      }
    })

    it('shows graphs that rely on old contents: poison fills the scratch before each launch', () => {
      const { pool, group, a } = setUpGroup({ backing }, { poison: true })
      const pinned = group.capture(a, () => pool.allocate(1 * MiB, a))
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(4 * KiB, a, 'own')
        using scratch = pool.allocate(4 * KiB, a)
        output.copyFrom(scratch) // reads what it has never written
        return output
      })
      pinned.result.fill(3)
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [0xff, 0xff])
      assert.deepEqual(endsOf(pinned.result), [3, 3], 'held buffers stay')
    })

    if (backing === 'shared') return // threads that share a group have no other graphs of its buffers

    it('makes the next launch wait for work on a block that was freed while another graph uses it', () => {
      const { device, pool, group, a, b, c } = setUpGroup({ backing })
      const graph = group.capture(a, () => pool.allocate(1 * MiB, a))
      const { result } = graph
      c.beginCapture()
      result.recordUse(c)
      using other = c.endCapture()
      const release = device.hold(b)
      result.recordUse(b)
      result.free()
      graph.launch(a)
      assert.equal(a.query(), false)
      release()
      assert.equal(a.query(), true)
      other.launch(c)
      checkPool(pool)
    })

    it('serves captures of another library, whose launches are announced', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const { driver } = device
      const graphs = [a, b].map((stream, index) => {
        pool.beginCapture(stream, { group })
        driver.cuStreamBeginCapture(stream.handle, 0)
        const output = group.allocateOutput(1 * MiB, stream)
        output.fill(index + 1)
        const executable = driver.cuGraphInstantiate(driver.cuStreamEndCapture(stream.handle))
        return { output, executable, memory: pool.endCapture(stream) }
      })
      const [first, second] = graphs
      const launch = ({ memory, executable }: typeof first, stream: typeof a) => {
        memory.beforeLaunch(stream)
        driver.cuGraphLaunch(executable, stream.handle)
        memory.noteLaunch(stream)
      }
      assert.throws(() => first.memory.noteLaunch(a), {
        name: 'PoolError',
        message: /^noteLaunch: the graph shares memory with others; call beforeLaunch\(stream\) before each launch/,
      })
      const release = device.hold(a)
      launch(first, a)
      launch(second, b)
      assert.equal(b.query(), false)
      release()
      assert.deepEqual(endsOf(second.output), [2, 2])
      assert.throws(() => first.output.readSync(), PoolError)
      first.memory.beforeLaunch(a)
      launch(second, b)
      const free = device.hold(a)
      driver.cuGraphLaunch(first.executable, a.handle)
      assert.throws(() => first.memory.noteLaunch(a), {
        code: 'ERR_STREAM_ORDER',
        message: /^noteLaunch: another graph that shares the memory was launched since beforeLaunch/,
      })
      launch(second, b)
      assert.equal(b.query(), false, 'it comes after that launch all the same')
      free()
      for (const { memory } of graphs) memory.close()
      assert.throws(() => first.memory.beforeLaunch(a), /^PoolError: beforeLaunch: the graph is closed/)
    })
  })
}
