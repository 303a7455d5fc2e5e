// The driver refuses calls of a group: a launch whose wait was refused is not made, and order that was needed is still
// needed. Then each driver call of a group's life is refused in turn, once or from then on: nothing may be lost.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import type { Graph } from '../../../order/graph.js'
import { untilDone } from '../../../order/polling.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { refuseEach, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import { attempt, endsOf, KINDS, poolOf, setUpGroup, writer } from './graph-group.fixture.js'
import type { GraphGroup } from './graph-group.js'
import type { GraphOutput } from './graph-output.js'

const CAPACITY = 64 * MiB

for (const call of ['cuEventRecord', 'cuStreamWaitEvent', 'cuMemsetD8Async', 'cuGraphLaunch'] as const) {
  describe(`a launch in a group, if ${call} is refused`, () => {
    it('is not made, and the next launch has the same waits', () => {
      const { device, pool, group, a, b } = setUpGroup({}, { poison: call === 'cuMemsetD8Async' })
      const [first, second] = [writer({ pool, group }, a, 1), writer({ pool, group }, b, 2)]
      const copy = pool.allocate(1 * MiB, a)
      const release = device.hold(a)
      first.launch(a)
      copy.copyFrom(first.result)
      const launches = device.calls('cuGraphLaunch')
      device.driver.failCall({ call, code: 999 })
      assert.throws(() => second.launch(b), CudaError)
      device.driver.clearFaults()
      assert.equal(device.calls('cuGraphLaunch') - launches, call === 'cuGraphLaunch' ? 1 : 0)
      second.launch(b)
      assert.equal(b.query(), false)
      release()
      assert.deepEqual([...endsOf(copy), ...endsOf(second.result)], [1, 1, 2, 2])
      pool.check()
    })
  })
}

describe('a capture of a group, in a pool whose call was cut short', () => {
  for (const end of ['endCapture', 'abortCapture'] as const) {
    it(`ends by ${end}, so that the pool can be closed`, () => {
      const { device, pool, group, a } = setUpGroup()
      group.beginCapture(a)
      const output = group.allocateOutput(1 * MiB, a)
      ;(pool as unknown as { isBusy: boolean }).isBusy = true
      assert.throws(() => pool.allocate(1 * MiB, a), /^PoolError: allocate: an earlier call of the pool was cut short/)
      a[end]()
      assert.equal(a.capture, null)
      pool.close()
      group.close()
      assert.equal(output.freed, true)
      assert.equal(device.freeBytes(), CAPACITY)
    })
  }
})

describe('driver failures: graph groups', () => {
  it('the addresses of a group that are refused make no group', () => {
    const { device, pool, a } = setUpGroup()
    device.driver.failCall({ call: 'cuMemAddressReserve', code: 2 })
    assert.throws(() => pool.createGraphGroup(), CudaError)
    device.driver.clearFaults()
    const group = pool.createGraphGroup()
    writer({ pool, group }, a, 1).launch()
    pool.check()
  })

  for (const backing of KINDS) {
    for (const [code, onwards] of [[2, false] as const, [999, true] as const]) {
      const how = `code ${code}${onwards ? ', and so are later ones' : ''}`
      it(`each call in turn leaves nothing behind, and results right: ${backing}, ${how}`, async test => {
        const calls = await refuseEach(
          () => new Life(backing),
          life => life.run(),
          life => life.finish(),
          { codes: [code], onwards: [onwards] },
        )
        test.diagnostic(`${calls} calls`)
        assert.ok(calls > 60)
      })
    }
  }
})

/** The life of a group: captures, launches on two streams, copies of outputs, frees, a trim, a sleep, and the close. */
class Life {
  readonly device = new TestDevice({ capacityBytes: CAPACITY })
  readonly pool: CachingPool
  private readonly streams: readonly [Stream, Stream]
  group: GraphGroup
  private readonly graphs: { graph: Graph<GraphOutput>; value: number }[] = []
  private readonly copies: { buffer: DeviceBuffer; value: number }[] = []

  constructor(private readonly backing: (typeof KINDS)[number]) {
    const { device } = this
    this.pool = poolOf(device, { backing, maxPoolBytes: CAPACITY })
    this.group = this.pool.createGraphGroup()
    this.streams = [device.createStream(), device.createStream()]
  }

  async run(): Promise<void> {
    const { streams, graphs } = this
    for (const [index, bytes] of [1 * MiB, 3 * MiB, 2 * MiB].entries()) {
      attempt(() => this.capture(index + 1, bytes, index === 2 ? 'own' : 'shared'))
    }
    for (const [index, entry] of [...graphs, ...graphs.slice(0, 1)].entries()) {
      const stream = streams[index % 2]
      if (attempt(() => entry.graph.launch(stream))) attempt(() => this.copy(entry, stream))
    }
    attempt(() => graphs[0]?.graph.close())
    if (this.backing === 'virtual') await this.nap()
    attempt(() => graphs.at(-1)?.graph.launch(streams[0]))
    attempt(() => graphs.at(-1)?.graph.result.free())
    for (const { graph } of graphs) attempt(() => graph.close())
    attempt(() => this.group.trim())
    attempt(() => this.pool.trimTo(0))
    attempt(() => this.capture(9, 4 * MiB, 'shared'))
    for (const { graph } of graphs) attempt(() => graph.close())
    attempt(() => this.group.close())
  }

  /** Everything works again. */
  async finish(): Promise<void> {
    const { pool, device, graphs, streams } = this
    for (const stream of streams) if (stream.capture !== null) stream.abortCapture()
    if (pool.asleep) {
      if (pool.stats().reservedBytes > 0) await pool.sleep()
      await pool.wake()
    }
    for (const { buffer, value } of this.copies) assert.deepEqual(endsOf(buffer), [value, value])
    pool.check()
    for (const { graph } of graphs) graph.close()
    this.group.close()
    this.group = pool.createGraphGroup()
    this.capture(5, 1 * MiB, 'shared')
    const { graph } = graphs.at(-1)!
    graph.launch(streams[1])
    assert.deepEqual(endsOf(graph.result), [5, 5])
    graph.close()
    this.group.close()
    device.clocks.synchronize()
    for (const { ptr } of pool.live()) pool.deallocate(ptr)
    device.clocks.synchronize()
    // Copies of a sleep that was refused midway may go on for a moment, and memory is not unmapped before.
    await untilDone(() => pool.trimTo(0) >= 0 && pool.stats().reservedBytes === 0)
    pool.check()
    pool.close()
    assert.equal(device.freeBytes(), CAPACITY)
  }

  private capture(value: number, bytes: number, lifetime: 'shared' | 'own'): void {
    this.graphs.push({ graph: writer(this, this.streams[value % 2], value, bytes, lifetime), value })
  }

  private copy({ graph, value }: (typeof this.graphs)[number], stream: (typeof this.streams)[number]): void {
    const { result } = graph
    const buffer = this.pool.allocate(result.byteLength, stream)
    const source = result.addressFor('launch')
    result.noteUse(stream, 'launch')
    const { driver } = this.device
    stream.submit('copy', handle => driver.cuMemcpyDtoDAsync(buffer.ptr, source, result.byteLength, handle))
    this.copies.push({ buffer, value })
  }

  private async nap(): Promise<void> {
    try {
      await this.pool.sleep()
      await this.pool.wake()
    } catch (error) {
      assert.ok(error instanceof Error)
    }
  }
}
