// The subjects of the proof of refused calls: each kind of pool, and every other user of device memory, under random
// use.

import assert from 'node:assert/strict'
import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import { Event } from '../src/core/order/event.js'
import type { Graph } from '../src/core/order/graph.js'
import type { Stream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import type { GrowableBuffer } from '../src/core/pool/mapped/growable-buffer.js'
import type { TestDevice } from '../src/core/pool/pool.fixture.js'
import { createDeviceArena, createDeviceHeap, type DeviceArena, type DeviceHeap } from '../src/entries/kernels.js'

type AnyBuffer = DeviceBuffer | HostBuffer

export interface Subject {
  /** A random step, which the driver may refuse. */
  step(random: Random): void
  /** Asserts, with no more refusals, that nothing is lost, and that all memory can be allocated again. */
  settle(): void
  close(): void
}

interface SomePool {
  allocate(bytes: number, stream?: Stream): AnyBuffer
  tryAllocate(bytes: number, stream?: Stream): AnyBuffer | null
  check?(): void
  stats(): { liveBuffers: number; liveBytes: number; reservedBytes: number }
  trimTo?(bytes: number): unknown
  processDeferred?(): unknown
  reset?(stream?: Stream): void
  mark?(): unknown
  close(): unknown
}

interface Traits {
  /** most bytes of one request */
  readonly most: number
  /** an idle pool keeps nothing after trimTo(0) */
  readonly trims?: boolean
}

/** A pool with streams that use it. */
class PoolUse implements Subject {
  protected held: AnyBuffer[] = []
  private readonly streams: Stream[] = []

  constructor(
    protected readonly device: Device | TestDevice,
    protected readonly pool: SomePool,
    private readonly traits: Traits,
  ) {
    this.streams.push(device.defaultStream)
  }

  step(random: Random): void {
    const stream = this.streams[random.below(this.streams.length)]
    const buffer = this.held[random.below(this.held.length)]
    const kind = random.below(20)
    if (kind < 8) this.take(random.logUniform(4, this.traits.most), stream, random.below(2) === 0)
    else if (kind < 13) this.free(buffer, random.below(3) === 0 ? stream : undefined)
    else if (kind === 13) buffer?.recordUse(stream)
    else if (kind === 14) this.pool.trimTo?.(random.below(3) * MiB)
    else if (kind === 15) this.pool.processDeferred?.()
    else if (kind === 16) this.pool.reset?.(stream)
    else if (kind === 17 && this.streams.length < 4) this.streams.push(this.device.createStream())
    else if (kind === 18 && this.streams.length > 2) this.closeStream()
    else stream.query()
  }

  settle(): void {
    const { device, pool } = this
    pool.check?.()
    this.dropFreed()
    assert.equal(pool.stats().liveBuffers, this.held.length, 'what was handed out is what is held')
    for (const buffer of this.held.splice(0)) buffer.free()
    pool.reset?.()
    device.defaultStream.clocks.synchronize()
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
    pool.trimTo?.(0)
    device.defaultStream.clocks.synchronize()
    pool.trimTo?.(0)
    if (this.traits.trims) assert.equal(pool.stats().reservedBytes, 0, 'all goes back to the device')
    pool.allocate(this.traits.most).free()
    pool.check?.()
  }

  close(): void {
    this.pool.close()
    for (const stream of this.streams.slice(1)) stream.close()
  }

  protected take(bytes: number, stream: Stream, mayFail: boolean): void {
    const buffer = mayFail ? this.pool.tryAllocate(bytes, stream) : this.pool.allocate(bytes, stream)
    if (buffer === null) return
    this.held.push(buffer)
    if ('fill' in buffer) buffer.fill(1)
  }

  protected free(buffer: AnyBuffer | undefined, stream: Stream | undefined): void {
    try {
      if (stream !== undefined && buffer !== undefined && 'stream' in buffer && !buffer.stream.closed) {
        this.order(buffer.stream, stream)
        buffer.free(stream)
      } else buffer?.free()
    } finally {
      this.dropFreed()
    }
  }

  private closeStream(): void {
    this.streams.at(-1)!.close()
    this.streams.pop()
  }

  private order(earlier: Stream, later: Stream): void {
    const event = new Event(this.device.context)
    try {
      event.record(earlier)
      later.wait(event)
    } finally {
      event.close()
    }
  }

  private dropFreed(): void {
    this.held = this.held.filter(buffer => !buffer.freed)
  }
}

/**
 * A pool of 16 MiB whose free memory lies in gaps of 3 MiB, so that larger requests need views of two pieces and more,
 * and after a trim new pieces as well.
 */
class ViewUse extends PoolUse {
  private steps = 0

  override step(random: Random): void {
    const kind = this.steps++ % 6
    if (kind === 0) this.keepApart()
    else if (kind < 3) this.take((5 + random.below(2)) * MiB, this.device.defaultStream, true)
    else if (kind === 3) this.free(this.held.at(-1), undefined)
    else if (kind === 4) this.pool.trimTo?.(random.below(2) * 8 * MiB)
    else this.take(9 * MiB, this.device.defaultStream, true)
  }

  private keepApart(): void {
    for (const buffer of [...this.held]) this.free(buffer, undefined)
    const gaps: AnyBuffer[] = []
    for (let count = 0; count < 4; count++) {
      this.take(MiB, this.device.defaultStream, false)
      this.take(3 * MiB, this.device.defaultStream, false)
      gaps.push(this.held.at(-1)!)
    }
    for (const gap of gaps) this.free(gap, undefined)
  }
}

/** Captures, with memory for the captured work, and launches of their graphs. */
class GraphUse implements Subject {
  private readonly pool: CachingPool
  private readonly stream: Stream
  private graphs: Graph[] = []
  private outputs: DeviceBuffer[] = []

  constructor(private readonly device: Device) {
    this.pool = device.createPool({ maxPoolBytes: 32 * MiB })
    this.stream = device.createStream()
  }

  step(random: Random): void {
    const { pool, stream } = this
    const graph = this.graphs[random.below(this.graphs.length)]
    const kind = random.below(6)
    if (kind < 2) this.capture(random.logUniform(4, 4 * MiB))
    else if (kind === 2) graph?.launch(stream)
    else if (kind === 3) pool.allocate(random.logUniform(4, 4 * MiB), stream).free()
    else if (kind === 4) this.outputs.pop()?.free()
    else this.endOne(graph)
  }

  settle(): void {
    const { pool, stream, device } = this
    if (stream.capture !== null) stream.abortCapture()
    pool.check()
    for (const graph of this.graphs.splice(0)) graph.close()
    for (const output of this.outputs.splice(0)) if (!output.freed) output.free()
    device.synchronize()
    pool.trimTo(0)
    const { liveBuffers, liveBytes, reservedBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, reservedBytes], [0, 0, 0])
    pool.allocate(16 * MiB).free()
    pool.check()
  }

  close(): void {
    this.pool.close()
    this.stream.close()
  }

  private capture(bytes: number): void {
    const { pool, stream } = this
    if (stream.capture !== null) stream.abortCapture()
    const graph = this.device.capture(stream, () => {
      pool.allocate(bytes, stream).free()
      const output = pool.allocate(bytes, stream)
      this.outputs.push(output)
      output.fill(1)
    })
    this.graphs.push(graph)
  }

  private endOne(graph: Graph | undefined): void {
    graph?.close()
    this.graphs = this.graphs.filter(other => other !== graph)
  }
}

class GrowableUse implements Subject {
  private readonly buffer: GrowableBuffer

  constructor(private readonly device: Device) {
    this.buffer = device.createGrowableBuffer({ bytes: 1 * MiB, capacityBytes: 32 * MiB })
  }

  step(random: Random): void {
    const { buffer } = this
    const bytes = random.logUniform(4, 24 * MiB)
    if (random.below(4) === 0) buffer.fill(1)
    else if (bytes > buffer.byteLength) buffer.grow(bytes)
    else buffer.shrink(bytes)
  }

  settle(): void {
    const { buffer } = this
    buffer.shrink(4)
    this.device.synchronize()
    buffer.grow(24 * MiB)
    buffer.fill(2)
    assert.equal(buffer.readSync(24 * MiB - 1)[0], 2)
  }

  close(): void {
    this.buffer.free()
  }
}

/** Memory for kernels, over a buffer of a pool. */
class KernelMemoryUse implements Subject {
  private readonly pool: CachingPool
  private memory: DeviceHeap | DeviceArena | null = null
  private region: DeviceBuffer | null = null

  constructor(private readonly device: Device) {
    this.pool = device.createPool({ maxPoolBytes: 32 * MiB })
  }

  step(random: Random): void {
    const kind = random.below(6)
    if (this.memory === null) this.make(random.below(2) === 0)
    else if (kind < 2) this.memory.statsSync()
    else if (kind < 4) this.memory.reset()
    else this.end()
  }

  settle(): void {
    this.end()
    for (const isHeap of [true, false]) {
      this.make(isHeap)
      this.memory!.statsSync()
      this.end()
    }
    this.device.synchronize()
    this.pool.trimTo(0)
    const { liveBuffers, reservedBytes } = this.pool.stats()
    assert.deepEqual([liveBuffers, reservedBytes], [0, 0])
    this.pool.check()
  }

  close(): void {
    this.pool.close()
  }

  private make(isHeap: boolean): void {
    this.region ??= this.pool.allocate(1 * MiB)
    this.memory = isHeap ? createDeviceHeap(this.device, this.region) : createDeviceArena(this.device, this.region)
  }

  private end(): void {
    this.memory?.close()
    this.memory = null
    this.region?.free()
    this.region = null
  }
}

const LIMIT = 32 * MiB
const caching: Traits = { most: 6 * MiB, trims: true }
const pooled = (traits: Traits, open: (device: Device) => SomePool) => (device: Device) =>
  new PoolUse(device, open(device), traits)
const shared = (traits: Traits, open: (device: TestDevice) => SomePool) => (device: TestDevice) =>
  new PoolUse(device, open(device), traits)

/** The subjects of one thread, on a whole device. */
export const SUBJECTS: Readonly<Record<string, (device: Device) => Subject>> = {
  'caching pool': pooled(caching, device => device.createPool({ maxPoolBytes: LIMIT, backing: 'virtual' })),
  'caching pool with views': device =>
    new ViewUse(device, device.createPool({ maxPoolBytes: 16 * MiB, backing: 'virtual' }), caching),
  'caching pool of segments': pooled(caching, device =>
    device.createPool({ maxPoolBytes: LIMIT, backing: 'segments' }),
  ),
  'debug pool': pooled(caching, device => device.createPool({ maxPoolBytes: LIMIT, debug: true })),
  'block pool': pooled({ most: 64 * KiB }, device =>
    device.createBlockPool({ blockBytes: 64 * KiB, count: 4, maxCount: 64 }),
  ),
  'arena pool': pooled({ most: 1 * MiB }, device => device.createArenaPool({ bytes: 8 * MiB })),
  'growing arena pool': pooled({ most: 1 * MiB }, device =>
    device.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 16 * MiB }),
  ),
  'arena pool on a buffer': pooled({ most: 1 * MiB }, device =>
    device.createArenaPool({ region: device.createPool().allocate(8 * MiB) }),
  ),
  'plain pool': pooled({ most: 6 * MiB }, device => device.createPlainPool()),
  'driver pool': pooled({ most: 6 * MiB, trims: true }, device => device.createDriverPool({ maxPoolBytes: LIMIT })),
  'host pool': pooled({ most: 1 * MiB, trims: true }, device => device.createHostPool({ maxPoolBytes: LIMIT })),
  graphs: device => new GraphUse(device),
  'growable buffer': device => new GrowableUse(device),
  'memory for kernels': device => new KernelMemoryUse(device),
}

/** The subjects that threads share, with all threads and the pool server in this thread. */
export const SHARED_SUBJECTS: Readonly<Record<string, (device: TestDevice) => Subject>> = {
  'shared caching pool': shared(caching, device => device.createSharedPool({ maxPoolBytes: LIMIT }).pool),
  'shared caching pool with views': device =>
    new ViewUse(device, device.createSharedPool({ maxPoolBytes: 16 * MiB }).pool, caching),
  'shared caching pool of segments': shared(
    caching,
    device => device.createSharedPool({ maxPoolBytes: LIMIT, backing: 'segments' }).pool,
  ),
  'shared block pool': shared(
    { most: 64 * KiB },
    device => device.createSharedBlocks({ blockBytes: 64 * KiB, count: 4, maxCount: 64 }).pool,
  ),
  'shared host pool': shared(
    { most: 1 * MiB, trims: true },
    device => device.createSharedHost({ maxPoolBytes: LIMIT }).pool,
  ),
  'shared arena': shared({ most: 1 * MiB }, device => device.createSharedArena({ bytes: 8 * MiB }).pool),
}
