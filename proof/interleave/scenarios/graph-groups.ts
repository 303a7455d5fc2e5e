// Threads that launch graphs of one group, each on a stream of its own. The exact order, derived from the driver's
// calls, must have every launch after all launches before it.

import { assert } from '../../../src/core/base/assert.js'
import { PoolError } from '../../../src/core/base/errors.js'
import { Context } from '../../../src/core/driver/context.js'
import { SimulatedDriver } from '../../../src/core/driver/simulated/simulated-driver.js'
import { Clocks } from '../../../src/core/order/clocks.js'
import { Graph } from '../../../src/core/order/graph.js'
import { GraphMemory } from '../../../src/core/order/graph-memory.js'
import { Stream } from '../../../src/core/order/stream.js'
import { GroupOrder } from '../../../src/core/pool/caching/captures/group-order.js'
import { RobustLock } from '../../../src/core/threads/robust-lock.js'
import { CallOrder, type Point } from '../../call-order.js'
import { type Cast, mayBeCut, mayDie, pause, type Scenario } from '../stage.js'

/** Graphs are numbers here. Other threads may go on before and after each call that counts for the order. */
class LaunchingDriver extends SimulatedDriver {
  launches = 0
  private latest: Point | null = null
  private readonly order = new CallOrder()
  /** as the driver's lock: a call sees what other threads have stored before their calls */
  private readonly lock = new Int32Array(new SharedArrayBuffer(4))

  override cuStreamCreate(flags: number): number {
    const handle = super.cuStreamCreate(flags)
    this.order.open(handle, 0)
    return handle
  }

  override cuEventRecord(event: number, stream: number): void {
    this.letOthersGoOn()
    super.cuEventRecord(event, stream)
    this.order.record(event, this.queueOf(stream))
    this.letOthersGoOn()
  }

  override cuStreamWaitEvent(stream: number, event: number): void {
    this.letOthersGoOn()
    super.cuStreamWaitEvent(stream, event)
    this.order.wait(this.queueOf(stream), event)
    this.letOthersGoOn()
  }

  override cuGraphLaunch(_graph: number, stream: number): void {
    this.letOthersGoOn()
    const queue = this.queueOf(stream)
    assert(this.latest === null || this.order.comesBefore(this.latest, queue), 'launches of a group never overlap')
    this.latest = this.order.submit(queue)
    this.launches++
    this.letOthersGoOn()
  }

  private queueOf(stream: number) {
    return this.order.queueOf(stream, 0, null)
  }

  private letOthersGoOn(): void {
    Atomics.add(this.lock, 0, 1)
    pause()
  }
}

/** A device and a group. `attach` makes a thread's part of both, with a stream and a graph. */
function newGroup(refuses: boolean) {
  const driver = new LaunchingDriver({ capacityBytes: 2 ** 22, progress: 'eager' })
  driver.cuInit()
  const first = new Clocks(Context.open(driver, 0))
  const shared = first.share()
  const state = new Float64Array(new SharedArrayBuffer(8 * GroupOrder.WORDS))
  const lockWords = new Int32Array(new SharedArrayBuffer(4))
  const streams: Stream[] = []
  let graphs = 0
  const attach = () => {
    const clocks = new Clocks(Context.open(driver, 0), shared)
    const lock = new RobustLock(lockWords, 0, clocks.slots['registry'], clocks.slots.me)
    const order = new GroupOrder(clocks, { refuses, poison: null, state, lock })
    const stream = Stream.create(clocks)
    const graph = new Graph(clocks, 1, new GraphMemory(clocks, new Set(), order, ++graphs), stream, undefined)
    streams.push(stream)
    return { clocks, order, graph }
  }
  return { driver, streams, attach }
}

/**
 * Threads that launch, and place marks on all streams, as their pools do for other work. The first launch is made in
 * some `way`. The last thread comes when the second has ended.
 */
function launches(way: (work: () => void) => void): Cast {
  const { driver, streams, attach } = newGroup(false)
  let counted = 0
  const work = (wayOfFirst: (work: () => void) => void) => {
    const { clocks, order, graph } = attach()
    for (const { slot } of streams) clocks.watcher.mark(slot)
    wayOfFirst(() => graph.launch())
    counted = order.launches
  }
  const simply = (launch: () => void) => launch()
  return {
    threads: [() => work(way), () => work(simply), () => work(simply)],
    heirs: { 2: 1 },
    end: () => assert(counted <= driver.launches, 'no launch is counted that was not made'),
  }
}

/** A launch that may run beside another thread's is refused, and leaves the lock. */
function refusals(): Cast {
  const { driver, attach } = newGroup(true)
  let refused = 0
  const work = () => {
    const { graph } = attach()
    for (let turn = 0; turn < 2; turn++) {
      try {
        graph.launch()
      } catch (error) {
        if (!(error instanceof PoolError)) throw error
        refused++
      }
    }
  }
  const end = () => assert(refused === 2 && driver.launches === 2, `${refused} launches are refused`)
  return { threads: [work, work], end }
}

export const scenarios: Record<string, Scenario> = {
  'launches of a group never overlap, though a thread may die': { begin: () => launches(mayDie) },
  'launches of a group never overlap, though one may be cut short': {
    begin: () =>
      launches(launch => {
        if (!mayBeCut(launch)) launch()
      }),
  },
  'a launch that may overlap is refused': { begin: refusals },
}
