// Threads of a shared pool with a graph group, within one process. Each has clocks, streams and pool objects of its
// own, as a worker has. The pool server runs while a request waits.

import { Context } from '../../../driver/context.js'
import { Clocks } from '../../../order/clocks.js'
import type { Graph } from '../../../order/graph.js'
import { Stream } from '../../../order/stream.js'
import type { CachingPool } from '../../caching/caching-pool.js'
import { writer } from '../../caching/captures/graph-group.fixture.js'
import type { GraphGroup, GraphGroupOptions } from '../../caching/captures/graph-group.js'
import type { GraphOutput, OutputLifetime } from '../../caching/captures/graph-output.js'
import type { SharedPoolOptions } from '../../caching/options.js'
import { serve, TestDevice } from '../../pool.fixture.js'
import type { PoolServer } from '../pool-server.js'
import { SharedPool } from '../shared-pool.js'

export class GroupThreads {
  readonly device: TestDevice
  readonly server: PoolServer
  /** the thread that made the pool and the group */
  readonly maker: GroupThread
  private isServed = true

  constructor(options: SharedPoolOptions = {}, groupOptions: GraphGroupOptions = {}, device = new TestDevice()) {
    this.device = device
    const { pool, server } = device.createSharedPool(options)
    this.server = server
    this.maker = new GroupThread(device.clocks, pool, pool.createGraphGroup(groupOptions))
  }

  /** Another thread, with a stream. */
  join(group = this.maker.group): GroupThread {
    const { driver, clocks: shared, defaultStream } = this.device
    const clocks = new Clocks(Context.open(driver, 0), shared.share())
    const descriptor = this.maker.pool['descriptor']
    const own = Stream.borrow(clocks, defaultStream.share())!
    const pool = new SharedPool(clocks, own, descriptor, false, () => this.serve())
    return new GroupThread(clocks, pool, pool.attachGraphGroup(structuredClone(group.share())))
  }

  /** The pool server ends with the thread that made the pool. */
  endServer(): void {
    this.isServed = false
    const { registry, thread } = this.server['state']
    registry.bury(thread)
  }

  private serve(): void {
    if (this.isServed) serve(this.server)
  }

  /** A round of the pool server that also looks for ended threads. */
  sweep(): void {
    this.server.sweep(Infinity)
  }
}

export class GroupThread {
  readonly stream: Stream

  constructor(
    readonly clocks: Clocks,
    readonly pool: SharedPool,
    readonly group: GraphGroup,
  ) {
    this.stream = this.createStream()
  }

  createStream(): Stream {
    return Stream.create(this.clocks)
  }

  /** See `writer` of graph-group.fixture.ts. */
  write(value: number, bytes?: number, lifetime?: OutputLifetime, stream = this.stream): Graph<GraphOutput> {
    return writer({ pool: this.pool as unknown as CachingPool, group: this.group }, stream, value, bytes, lifetime)
  }

  /** The thread ends without closing anything. */
  die(): void {
    const { registry, thread } = this.pool['state']
    registry.bury(thread)
    const { slots } = this.clocks
    slots['registry'].bury(slots.me)
  }
}
