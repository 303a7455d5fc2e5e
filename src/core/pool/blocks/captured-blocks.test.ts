// Blocks in captures: a graph keeps those that its capture has freed, or the group that it belongs to.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import { captureWork } from '../../order/capture.js'
import type { Graph } from '../../order/graph.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { signal } from '../caching/captures/graph-capture.fixture.js'
import { endsOf } from '../caching/captures/graph-group.fixture.js'
import type { GraphGroup } from '../caching/captures/graph-group.js'
import type { GraphOutput } from '../caching/captures/graph-output.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { limited } from '../wrappers/limited.js'
import type { BlockPool } from './block-pool.js'

const COUNT = 4

function setUp(blockBytes: number) {
  const device = new TestDevice()
  const blocks = device.createBlockPool({ blockBytes, count: 2, maxCount: COUNT })
  const pool = device.createPool({ maxPoolBytes: 32 * MiB })
  const group = pool.createGraphGroup()
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  return { device, blocks, pool, group, a, b, c }
}

/** A graph that writes `value` to blocks, and then copies the last to an output. */
function writer(
  { blocks, group }: { readonly blocks: BlockPool; readonly group: GraphGroup },
  stream: Stream,
  value: number,
  count = 1,
): Graph<GraphOutput> {
  return group.capture(stream, () => {
    const output = group.allocateOutput(blocks.blockBytes, stream, 'own')
    const held = Array.from({ length: count }, () => blocks.allocate({ stream }))
    for (const block of held) block.fill(value)
    output.copyFrom(held[count - 1])
    for (const block of held) block.free()
    return output
  })
}

/** Takes every block of the pool at once, which it must then have. */
function assertWhole(blocks: BlockPool, stream: Stream): void {
  const all = Array.from({ length: COUNT }, () => blocks.allocate({ stream }))
  assert.equal(blocks.availableBlocks, 0)
  for (const block of all) block.free()
  blocks.check()
}

for (const blockBytes of [1 * KiB, 1 * MiB]) {
  describe(`blocks of ${blockBytes} bytes in captures`, () => {
    it('without a group are kept for the graph until it is closed and its launches are complete', () => {
      const { device, blocks, a, b } = setUp(blockBytes)
      const other = blocks.allocate({ stream: b })
      const graph = captureWork(
        a,
        () => {
          const first = blocks.allocate({ stream: a })
          const { ptr } = first
          first.fill(5)
          first.free()
          const again = blocks.allocate({ stream: a })
          assert.equal(again.ptr, ptr, 'it comes after the first in the same stream')
          const held = blocks.allocate({ stream: a })
          again.fill(6)
          held.copyFrom(again)
          again.free()
          return held
        },
        () => a.beginCapture(),
      )
      const held = graph.result
      assert.deepEqual([blocks.stats().liveBuffers, blocks.availableBlocks], [2, COUNT - 3])
      graph.launch(b)
      b.synchronize()
      assert.deepEqual(endsOf(held), [6, 6])
      held.free()
      assert.equal(blocks.availableBlocks, COUNT - 3, 'a block that is freed later is the graph’s, too')
      const last = blocks.allocate({ stream: a })
      assert.equal(blocks.tryAllocate({ stream: a }), null)
      assert.throws(() => blocks.allocate({ stream: a }), {
        name: 'OutOfMemoryError',
        message: /all 4 blocks are handed out, or kept for graphs \(2\): free some, close graphs and their groups/,
      })
      device.hold(b)
      graph.launch(b)
      graph.close()
      blocks.allocate({ stream: a }).free()
      assert.equal(b.query(), true, 'the host has waited')
      for (const block of [last, other]) block.free()
      assertWhole(blocks, b)
    })

    it('that a capture of a group has freed serve the next ones, whose launches never overlap', () => {
      const { device, blocks, group, a, b } = setUp(blockBytes)
      const first = writer({ blocks, group }, a, 1)
      assert.equal(blocks.availableBlocks, COUNT - 1)
      const graphs = [first, writer({ blocks, group }, b, 2), writer({ blocks, group }, a, 3, 2)]
      assert.deepEqual([blocks.availableBlocks, blocks.stats().liveBuffers], [COUNT - 2, 0])
      const release = device.hold(a)
      for (const [index, graph] of graphs.entries()) graph.launch(index === 1 ? b : a)
      assert.equal(b.query(), false)
      release()
      assert.deepEqual(
        graphs.flatMap(({ result }) => endsOf(result)),
        [1, 1, 2, 2, 3, 3],
      )
      graphs[0].close()
      assert.equal(writer({ blocks, group }, b, 4).result.freed, false)
      assert.equal(blocks.availableBlocks, COUNT - 2, 'they stay with the group')
      blocks.check()
    })

    it('go back when the group is closed, after its launches', () => {
      const { device, blocks, group, a, b, c } = setUp(blockBytes)
      const graph = writer({ blocks, group }, a, 1, COUNT)
      assert.equal(blocks.tryAllocate({ stream: c }), null)
      const release = device.hold(b)
      graph.launch(b)
      graph.close()
      assert.equal(blocks.tryAllocate({ stream: c }), null, 'another capture may come, and work is under way')
      assert.equal(blocks.availableBlocks, 0)
      group.close()
      assert.equal(blocks.availableBlocks, COUNT)
      const block = blocks.allocate({ stream: c }) // the host waits, as for all blocks of other streams
      assert.equal(b.query(), true)
      release()
      block.fill(7)
      assert.deepEqual([...endsOf(block), ...endsOf(graph.result)], [7, 7, 1, 1])
      block.free()
      assertWhole(blocks, a)
    })

    it('go back to a request that finds no other once no graph of the group is open', () => {
      const { device, blocks, group, a, b } = setUp(blockBytes)
      group.capture(a, () => {}).close() // without blocks
      const graph = writer({ blocks, group }, a, 1, COUNT)
      graph.launch()
      device.clocks.synchronize()
      assert.equal(blocks.tryAllocate({ stream: b }), null)
      graph.close()
      blocks.allocate({ stream: b }).free()
      assertWhole(blocks, b)
      const next = writer({ blocks, group }, b, 2, COUNT)
      next.launch()
      assert.deepEqual(endsOf(next.result), [2, 2])
    })

    it('that are still held where an earlier graph of the group writes refuse the end of the capture', () => {
      const { blocks, group, a } = setUp(blockBytes)
      const first = writer({ blocks, group }, a, 1)
      group.beginCapture(a)
      const held = blocks.allocate({ stream: a })
      assert.throws(() => a.endCapture(), /^PoolError: endCapture: a buffer of .* is still held where earlier graphs/)
      held.free()
      a.endCapture().close()
      const second = group.capture(a, () => {
        using taken = blocks.allocate({ stream: a })
        taken.fill(1)
        const apart = blocks.allocate({ stream: a })
        apart.fill(2)
        return apart
      })
      first.launch()
      second.launch()
      first.launch()
      assert.deepEqual(endsOf(second.result), [2, 2])
      second.result.free()
      blocks.check()
    })

    it('that a capture without a graph holds cannot be used, and come back when they are freed', () => {
      const { device, blocks, group, a, b } = setUp(blockBytes)
      for (const inGroup of [true, false]) {
        if (inGroup) group.beginCapture(a)
        else a.beginCapture()
        const held = blocks.allocate({ stream: a })
        device.driver.failCall({ call: 'cuGraphInstantiate', code: 999 })
        assert.throws(() => a.endCapture(), CudaError)
        device.driver.clearFaults()
        if (inGroup)
          assert.throws(() => held.fill(1), /^PoolError: fill: the capture that allocated the buffer made no/)
        else held.fill(1)
        held.free()
      }
      group.close()
      assertWhole(blocks, b)
    })

    it('of earlier allocations stay for the graph if they are freed in its capture, or announced to it', () => {
      const { device, blocks, group, a, b } = setUp(blockBytes)
      const [freed, announced] = [blocks.allocate({ stream: a }), blocks.allocate({ stream: b })]
      announced.fill(3)
      device.clocks.synchronize()
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(blockBytes, a, 'own')
        freed.fill(1)
        freed.free()
        announced.recordUse(a)
        output.copyFrom(announced)
        return output
      })
      announced.free()
      assert.equal(blocks.availableBlocks, COUNT - 2)
      const others = [blocks.allocate({ stream: b }), blocks.allocate({ stream: b })]
      for (const block of others) block.fill(9)
      device.clocks.synchronize()
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [3, 3])
      for (const block of others) block.free()
      graph.close()
      assertWhole(blocks, b)
    })

    it('are used along captured edges only, in several streams', () => {
      const { blocks, group, a, b } = setUp(blockBytes)
      const graph = group.capture(a, () => {
        const output = group.allocateOutput(2 * blockBytes, a)
        const first = blocks.allocate({ stream: a })
        first.fill(1)
        signal(a, b)
        const second = blocks.allocate({ stream: b })
        second.fill(2)
        output.copyFrom(first)
        first.free()
        const third = blocks.allocate({ stream: b })
        third.fill(3)
        assert.notEqual(third.ptr, second.ptr)
        signal(b, a)
        output.copyFrom(second, blockBytes)
        second.free(a)
        third.free(a)
        return output
      })
      graph.launch()
      assert.deepEqual(endsOf(graph.result), [1, 2])
    })
  })
}

describe('block pools and graphs', () => {
  it('a shortage leaves the capture whole, and takes no idle blocks of others for nothing', () => {
    const { device, blocks, group, a, b } = setUp(1 * MiB)
    const held = Array.from({ length: COUNT - 1 }, () => blocks.allocate({ stream: b }))
    const graph = group.capture(a, () => {
      const output = group.allocateOutput(1 * MiB, a)
      const block = blocks.allocate({ stream: a })
      assert.throws(() => blocks.allocate({ stream: a }), OutOfMemoryError)
      assert.equal(blocks.tryAllocate({ stream: a }), null)
      assert.throws(() => blocks.allocate(2 * MiB, a), OutOfMemoryError)
      assert.throws(() => blocks.allocate(0, a), RangeError)
      block.fill(4)
      output.copyFrom(block)
      block.free()
      return output
    })
    for (const block of held) block.free()
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [4, 4])
    device.clocks.synchronize()
    blocks.check()
  })

  it('a capture waits on the host for a block that work of another stream still uses', () => {
    const { device, blocks, group, a, b } = setUp(1 * MiB)
    device.hold(b)
    const pending = Array.from({ length: COUNT }, () => blocks.allocate({ stream: b }))
    for (const block of pending) block.fill(1)
    for (const block of pending) block.free()
    const graph = writer({ blocks, group }, a, 2)
    assert.equal(b.query(), true)
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [2, 2])
  })

  it('wrappers and the long form work in a capture', () => {
    const { blocks, group, a } = setUp(1 * MiB)
    const wrapped = limited(blocks, 2 * MiB)
    group.capture(a, () => {
      const buffer: DeviceBuffer = wrapped.allocate(1 * MiB, { stream: a, label: 'page' })
      assert.equal(buffer.label, 'page')
      buffer.free()
      wrapped.allocateArray(Float32Array, 64, a).free()
      blocks.deallocate(blocks.allocate({ stream: a }).ptr)
    })
    assert.equal(wrapped.handedOutBytes, 0)
    blocks.check()
  })

  it('a graph is not launched once the block pool is closed, and the group goes on without', () => {
    const { device, blocks, pool, group, a } = setUp(1 * MiB)
    const graph = writer({ blocks, group }, a, 1)
    graph.launch()
    blocks.close()
    assert.throws(() => graph.launch(), {
      code: 'ERR_BUFFER_FREED',
      message: /^launch: a pool or buffer that the graph/,
    })
    assert.deepEqual(endsOf(graph.result), [1, 1])
    const other = device.createBlockPool({ blockBytes: 1 * MiB, count: 1 })
    const next = writer({ blocks: other, group }, a, 2)
    next.launch()
    assert.deepEqual(endsOf(next.result), [2, 2])
    for (const each of [graph, next]) each.close()
    group.close()
    other.close()
    assertConsistent(pool)
  })

  it('the close of the pool of the group gives blocks back once the graphs are closed', () => {
    const { blocks, pool, group, a, b } = setUp(1 * MiB)
    const graph = writer({ blocks, group }, a, 1, COUNT)
    graph.launch()
    pool.close()
    assert.equal(blocks.tryAllocate({ stream: b }), null)
    graph.close()
    assertWhole(blocks, b)
  })

  it('a pool that has blocks in graphs is not mended after a call that was cut short', () => {
    const { blocks, group, a } = setUp(1 * MiB)
    const graph = writer({ blocks, group }, a, 1)
    const cut = () => {
      ;(blocks as unknown as { isBusy: boolean }).isBusy = true
    }
    cut()
    assert.throws(() => blocks.processDeferred(), /an earlier call of the pool was cut short in the middle/)
    graph.close()
    assert.throws(() => blocks.processDeferred(), /cut short/)
  })
})
