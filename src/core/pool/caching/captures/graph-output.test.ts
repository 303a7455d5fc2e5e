// Outputs of graphs that share memory: how long they are valid, and which uses are refused.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { capture, signal } from './graph-capture.fixture.js'
import { checkPool, endsOf, KINDS, setUpGroup, writer } from './graph-group.fixture.js'
import type { GraphOutput } from './graph-output.js'

const stale = (call: string) => ({
  name: 'PoolError',
  message: new RegExp(`^${call}: the output has no contents of its graph, which was not launched since a launch of`),
})

for (const backing of KINDS) {
  describe(`outputs of a graph group: ${backing}`, () => {
    it('a shared one is valid from a launch of its graph until a launch of another graph', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, a, 2)]
      const other = pool.allocate(1 * MiB, a)
      assert.equal(first.result.overwritten, true, 'it was not launched')
      assert.throws(() => first.result.readSync(), stale('readSync'))
      first.launch()
      assert.equal(first.result.overwritten, false)
      assert.deepEqual(endsOf(first.result), [1, 1])
      first.launch()
      assert.deepEqual(endsOf(first.result), [1, 1])
      second.launch()
      assert.deepEqual([first.result.overwritten, second.result.overwritten], [true, false])
      assert.throws(() => first.result.fill(0), stale('fill'))
      assert.throws(() => first.result.write(new Uint8Array(4)), stale('write'))
      assert.throws(() => other.copyFrom(first.result), stale('copyFrom'))
      assert.throws(() => first.result.recordUse(a), stale('recordUse'))
      assert.equal(typeof first.result.ptr, 'number', 'an address alone uses no memory')
      first.close()
      assert.deepEqual(endsOf(second.result), [2, 2])
      second.close()
      assert.deepEqual(endsOf(second.result), [2, 2], 'also once its graph is closed')
    })

    it('one that is freed by its address cannot be used, nor freed again', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const freed = { code: 'ERR_BUFFER_FREED', message: /: the output was already freed/ }
      const assertFreed = (output: GraphOutput) => {
        assert.equal(output.freed, true)
        assert.throws(() => output.fill(1), freed)
        assert.throws(() => output.free(), freed)
      }
      const { result } = group.capture(a, () => {
        const [shared, own] = (['shared', 'own'] as const).map(lifetime => group.allocateOutput(1 * MiB, a, lifetime))
        pool.deallocate(shared.ptr)
        assertFreed(shared)
        return { shared, own }
      })
      assertFreed(result.shared)
      pool.deallocate(result.own.ptr)
      assertFreed(result.own)
      checkPool(pool)
      assert.equal(pool.stats().liveBytes, 0)
    })

    it('one of its own outlives a capture that fails, and its memory comes back when it is freed', () => {
      for (const how of ['abort', 'refused'] as const) {
        const { device, pool, group, a } = setUpGroup({ backing })
        group.beginCapture(a)
        const output = group.allocateOutput(1 * MiB, a, 'own')
        const { ptr } = output
        if (how === 'abort') a.abortCapture()
        else {
          device.driver.failCall({ call: 'cuGraphInstantiate', code: 999 })
          assert.throws(() => a.endCapture(), CudaError)
          device.driver.clearFaults()
        }
        output.fill(1)
        assert.deepEqual(endsOf(output), [1, 1])
        const graph = writer({ pool, group }, a, 2, 1 * MiB, 'own')
        assert.notEqual(graph.result.ptr, ptr)
        output.free()
        const next = writer({ pool, group }, a, 3, 1 * MiB, 'own')
        assert.equal(next.result.ptr, ptr, 'while another graph is open')
        for (const one of [graph, next]) {
          one.close()
          one.result.free()
        }
        device.clocks.synchronize()
        assert.ok(group.trim() > 0)
        assert.deepEqual([group.stats().ownBytes, group.stats().scratchBytes], [0, 0])
        checkPool(pool)
      }
    })

    it('one of a capture that failed keeps no more than its own memory of a closed group', () => {
      const { pool, group, a } = setUpGroup({ backing })
      group.beginCapture(a)
      const output = group.allocateOutput(1 * MiB, a, 'own')
      pool.allocate(8 * MiB, a).free()
      a.abortCapture()
      group.close()
      output.free()
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
    })

    it('one is freed by the pool of its group, and by no other', () => {
      const { device, pool, group, a } = setUpGroup({ backing })
      const other = device.createPool()
      for (const lifetime of ['shared', 'own'] as const) {
        const { result } = writer({ pool, group }, a, 1, 1 * MiB, lifetime)
        assert.throws(() => other.free(result), /^PoolError: free: the buffer came from another pool/)
        pool.free(result)
        assert.equal(result.freed, true)
        assert.throws(() => pool.free(result), /^PoolError: free: the output was already freed/)
      }
      assert.equal(pool.stats().liveBuffers, 0)
      checkPool(pool)
    })

    it('a buffer in the place of a freed output is refused at the end like any other', () => {
      const { pool, group, a } = setUpGroup({ backing })
      writer({ pool, group }, a, 1)
      const held = () =>
        group.capture(a, () => {
          pool.deallocate(group.allocateOutput(1 * MiB, a).ptr)
          pool.allocate(1 * MiB, a)
        })
      assert.throws(held, /^PoolError: endCapture: a buffer of 1 MiB is still held where earlier graphs/)
    })

    it('a shared one costs no memory of its own, and no capture gets it twice', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const first = writer({ pool, group }, a, 1, 2 * MiB)
      const { scratchBytes } = group.stats()
      const second = writer({ pool, group }, a, 2, 2 * MiB)
      assert.deepEqual([group.stats().scratchBytes, group.stats().ownBytes], [scratchBytes, 0])
      assert.equal(second.result.ptr, first.result.ptr)
      const third = group.capture(a, () => {
        const output = group.allocateOutput(1 * MiB, a)
        output.free()
        using next = pool.allocate(1 * MiB, a)
        return [output.freed, output, next.ptr, output.pool] as const
      })
      const [freed, output, next, owner] = third.result
      assert.equal(freed, true)
      assert.throws(() => output.ptr, /^PoolError: ptr: the output was already freed/)
      assert.throws(() => output.free(), /already freed/)
      assert.equal(owner, group)
      assert.notEqual(next, first.result.ptr, 'its memory is scratch only after the capture')
      checkPool(pool)
    })

    it('one of its own stays through launches of others, and costs memory', () => {
      const { pool, group, a, b } = setUpGroup({ backing })
      const first = writer({ pool, group }, a, 1, 1 * MiB, 'own')
      const second = writer({ pool, group }, b, 2)
      assert.ok(group.stats().ownBytes >= 1 * MiB)
      assert.equal(group.stats().pinnedBytes, 0)
      first.launch(a)
      second.launch(b)
      assert.equal(first.result.overwritten, false)
      assert.deepEqual(endsOf(first.result), [1, 1])
      first.close()
      second.launch(a)
      assert.deepEqual(endsOf(first.result), [1, 1])
      const { ptr } = first.result
      first.result.free()
      const third = writer({ pool, group }, a, 3, 1 * MiB, 'own')
      assert.equal(third.result.ptr, ptr, 'later captures have its memory')
      third.launch(b)
      assert.deepEqual(endsOf(third.result), [3, 3])
      checkPool(pool)
    })

    it('the next launch waits for uses of an output on other streams', () => {
      for (const announced of [false, true]) {
        for (const lifetime of ['shared', 'own'] as const) {
          const { device, pool, group, a, b } = setUpGroup({ backing })
          const [first, second] = [writer({ pool, group }, a, 1, 1 * MiB, lifetime), writer({ pool, group }, a, 2)]
          const copy = pool.allocate(1 * MiB, b)
          first.launch(a)
          a.synchronize()
          const release = device.hold(b)
          if (announced) {
            first.result.recordUse(b)
            const { ptr } = first.result
            b.submit('copy', handle => device.driver.cuMemcpyDtoDAsync(copy.ptr, ptr, 1 * MiB, handle))
          } else copy.copyFrom(first.result)
          const next = lifetime === 'shared' ? second : first
          next.launch(a)
          assert.equal(a.query(), false, 'the launch waits for the copy')
          release()
          assert.deepEqual(endsOf(copy), [1, 1])
          next.launch(a)
          assert.deepEqual(endsOf(next.result), lifetime === 'shared' ? [2, 2] : [1, 1])
          assert.equal(group.stats().waits, 1)
        }
      }
    })

    it('a use on another stream than that of the launch waits for the launch', () => {
      for (const whenUnordered of ['wait', 'refuse'] as const) {
        const { device, pool, group, a, b } = setUpGroup({ backing }, { whenUnordered })
        const graph = writer({ pool, group }, a, 1)
        const release = device.hold(b)
        graph.launch(b)
        if (whenUnordered === 'wait') {
          assert.deepEqual(endsOf(graph.result), [1, 1], 'it is read in the stream of the capture')
          assert.equal(group.stats().waits, 1)
        } else {
          assert.throws(() => graph.result.readSync(), {
            code: 'ERR_STREAM_ORDER',
            message:
              /^readSync: a use of an output on stream 0x\w+ may run beside graph 1 on stream 0x\w+; let the stream/,
          })
          release()
          b.synchronize()
          assert.deepEqual(endsOf(graph.result), [1, 1])
        }
      }
    })

    it('is used during its capture by captured work alone, and has the properties of a buffer', () => {
      const { group, a, b } = setUpGroup({ backing })
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(10 * KiB, a)
        output.fill(1)
        output.recordUse(a)
        const use = () => output.noteUse(b, 'launch')
        assert.throws(use, /^PoolError: launch: the output is being captured, and this stream is not/)
        output.label = 'logits'
        return output
      })
      const { result } = graph
      assert.equal(result.label, 'logits')
      assert.equal(result.byteLength, 10 * KiB)
      assert.match(String(result), /^GraphOutput \{ 'logits', 10 KiB at 0x[0-9a-f]+, stream 0x[0-9a-f]+, live \}$/)
      graph.launch()
      {
        using output = result
        assert.deepEqual(endsOf(output), [1, 1])
      }
      assert.equal(String(result), 'GraphOutput { freed }')
    })

    if (backing === 'shared') return // buffers of a group that threads share are used in their capture alone

    it('a use of an own output follows the launches of its graph, and those of others if one uses it', () => {
      for (const whenUnordered of ['wait', 'refuse'] as const) {
        const { device, pool, group, a, b, c } = setUpGroup({ backing }, { whenUnordered })
        const [own, other] = [writer({ pool, group }, a, 1, 1 * MiB, 'own'), writer({ pool, group }, c, 2)]
        const copy = pool.allocate(1 * MiB, b)
        own.launch()
        for (const stream of [b, c]) signal(a, stream)
        const release = device.hold(c)
        other.launch()
        copy.copyFrom(own.result)
        assert.deepEqual([b.query(), group.stats().waits], [true, 0])
        const reader = group.capture(c, () => own.result.recordUse(c))
        signal(b, c)
        reader.launch()
        const { waits } = group.stats()
        if (whenUnordered === 'refuse') {
          assert.throws(() => copy.copyFrom(own.result), /a use of an output .* may run beside graph 3 on/)
        } else {
          copy.copyFrom(own.result)
          assert.deepEqual([b.query(), group.stats().waits], [false, waits + 1])
        }
        release()
        assert.deepEqual(endsOf(copy), [1, 1])
      }
    })

    it('is refused in other captures if it is shared, and else is held for their graphs', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const [shared, own] = [writer({ pool, group }, a, 1), writer({ pool, group }, a, 2, 1 * MiB, 'own')]
      const copy = pool.allocate(1 * MiB, b)
      shared.launch(a)
      own.launch(a)
      device.clocks.synchronize()
      const graph = capture(b, () => {
        assert.throws(() => copy.copyFrom(shared.result), stale('copyFrom'))
        copy.copyFrom(own.result)
        own.result.recordUse(b)
      })
      shared.launch(a)
      b.beginCapture()
      const use = () => shared.result.noteUse(b, 'launch')
      assert.throws(use, /^PoolError: launch: a shared output cannot be used in another capture/)
      b.abortCapture()
      const { ptr } = own.result
      own.result.free()
      const next = writer({ pool, group }, a, 3, 1 * MiB, 'own')
      assert.notEqual(next.result.ptr, ptr, 'the other graph still reads it')
      next.launch(a)
      device.clocks.synchronize()
      graph.launch(b)
      assert.deepEqual(endsOf(copy), [2, 2])
      graph.close()
      pool.processDeferred()
      assert.notEqual(writer({ pool, group }, a, 5, 1 * MiB, 'own').result.ptr, ptr, 'its own graph still writes it')
      own.close()
      const last = writer({ pool, group }, a, 4, 1 * MiB, 'own')
      assert.equal(last.result.ptr, ptr)
      checkPool(pool)
    })
  })
}

for (const backing of KINDS) {
  describe(`contents that outlive a launch: ${backing}`, () => {
    it('an own output whose graph is open does not serve as another own output once it is freed', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const first = writer({ pool, group }, a, 1, 1 * MiB, 'own')
      first.result.free()
      const second = writer({ pool, group }, a, 2, 1 * MiB, 'own')
      second.launch()
      first.launch()
      assert.deepEqual(endsOf(second.result), [2, 2])
    })

    it('a buffer that is still held where an earlier graph writes refuses the end of its capture', () => {
      const { pool, group, a } = setUpGroup({ backing })
      const first = writer({ pool, group }, a, 1)
      group.beginCapture(a)
      const held = pool.allocate(1 * MiB, a)
      assert.throws(() => a.endCapture(), {
        name: 'PoolError',
        message: /^endCapture: a buffer of 1 MiB is still held where earlier graphs of the group write; free it in/,
      })
      held.free()
      a.endCapture().close()
      first.close()
      group.capture(a, () => pool.allocate(1 * MiB, a))
      checkPool(pool)
    })

    it('such a capture waits for launches of closed graphs, which may still write there', () => {
      for (const lifetime of ['shared', 'own'] as const) {
        const { device, pool, group, a, b } = setUpGroup({ backing })
        const first = writer({ pool, group }, a, 1, 1 * MiB, lifetime)
        device.hold(a)
        first.launch()
        first.close()
        first.result.free()
        const second = group.capture(b, () =>
          lifetime === 'own' ? group.allocateOutput(1 * MiB, b, 'own') : pool.allocate(1 * MiB, b),
        )
        assert.equal(a.query(), true, 'the host has waited')
        second.result.fill(2)
        assert.deepEqual(endsOf(second.result), [2, 2])
      }
    })

    it('a shared one has none once the scratch was given back, or the driver has refused its launch', () => {
      const { device, pool, group, a } = setUpGroup({ backing })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, a, 2)]
      first.launch()
      second.launch()
      device.driver.failCall({ call: 'cuGraphLaunch', nth: 1, code: 999 })
      assert.throws(() => first.launch(), CudaError)
      assert.throws(() => first.result.readSync(), stale('readSync'))
      second.launch()
      first.close()
      second.close()
      assert.deepEqual(endsOf(second.result), [2, 2])
      assert.ok(group.trim() > 0)
      assert.throws(() => second.result.readSync(), stale('readSync'))
    })

    it('a use that was announced until the next launch keeps the memory while its stream has work', () => {
      const { device, pool, group, a, b } = setUpGroup({ backing })
      const graph = writer({ pool, group }, a, 1)
      graph.launch()
      a.synchronize()
      const release = device.hold(b)
      graph.result.recordUse(b)
      graph.close()
      assert.equal(group.trim(), 0)
      release()
      assert.ok(group.trim() > 0)
    })
  })
}

describe('outputs of a pool that sleeps', () => {
  it('a shared one has no contents after a sleep that the driver has cut short', async () => {
    const { device, pool, group, a } = setUpGroup()
    const [graph, own] = [writer({ pool, group }, a, 1), writer({ pool, group }, a, 2, 1 * MiB, 'own')]
    own.launch()
    graph.launch()
    device.driver.failCall({ call: 'cuMemUnmap', nth: 2, code: 999 })
    await assert.rejects(pool.sleep(), CudaError)
    await pool.wake()
    assert.throws(() => graph.result.readSync(), stale('readSync'))
    assert.deepEqual(endsOf(own.result), [2, 2])
  })
})
