// A pass through a pool, on streams of a device that stand for the recorded streams, with modelled work.

import type { Stream } from '../../core/order/stream.js'
import type { DeviceBuffer } from '../../core/pool/buffer.js'
import type { Pool } from '../../core/pool/pool.js'
import { type Lag, ModelledWork } from './modelled-work.js'
import { paceOf } from './pace.js'
import { type ReplayDevice, type SimulatedDriver, simulatedDriverOf } from './replay-device.js'
import { ReplayPass } from './replay-pass.js'
import { Action, BEFORE, NEVER, type Trace } from './trace.js'

export class PoolPass extends ReplayPass<DeviceBuffer> {
  private readonly streams: readonly Stream[]
  private readonly driver: SimulatedDriver | null
  private readonly work: ModelledWork | null

  /** On a GPU, which the pass waits for, it may take any time. */
  constructor(
    trace: Trace,
    device: ReplayDevice,
    private readonly pool: Pool,
    lag: Lag,
    policy = '',
  ) {
    const driver = simulatedDriverOf(device)
    super(trace, driver === null ? null : paceOf(trace), policy)
    this.streams = trace.streams.map(() => device.createStream())
    this.driver = driver
    this.work = driver === null ? null : new ModelledWork(driver, this.streams, lag, () => device.createStream())
  }

  protected override allocateInitial(block: number): void {
    if (this.trace.blocks.freeRequestedAt[block] !== BEFORE) this.allocate(-1, block)
  }

  protected override apply(event: number): void {
    const { action, block, stream, timeUs, bytes, pool } = this.trace
    const { driver, work } = this
    const index = block[event]
    if (event > 0) driver?.passTime(Math.max(0, timeUs[event] - timeUs[event - 1]) / 1e6)
    if (action[event] === Action.alloc) {
      work?.tick(stream[event])
      this.allocate(event, index)
      work?.submit(stream[event])
    } else if (action[event] === Action.freeRequested) {
      work?.tick(stream[event])
      const buffer = this.held[index]
      if (buffer !== null) {
        this.observer.freeing?.(index, buffer)
        if (work !== null && this.completesLater(index, event)) buffer.recordUse(work.beginUse(index))
        this.free(buffer)
        this.held[index] = null
      }
    } else if (action[event] === Action.freeCompleted) {
      work?.tick(stream[event])
      work?.endUse(index)
    } else if (action[event] === Action.outOfMemory && event >= this.failedFrom) {
      const buffer = this.request(event, leastOne(bytes[event]), stream[event], pool[event])
      if (buffer !== null) this.free(buffer)
    }
  }

  protected override end(block: number): void {
    const buffer = this.held[block]
    if (buffer !== null) {
      this.observer.freeing?.(block, buffer)
      buffer.free()
      this.held[block] = null
    }
    this.work?.endUse(block)
  }

  protected override endRound(): void {
    if (this.streams.length === 1 && this.work !== null) return
    for (const each of this.streams) {
      each.synchronize()
      this.pace?.step()
    }
  }

  protected override take(bytes: number, stream: number): DeviceBuffer | null {
    return this.pool.tryAllocate(bytes, this.streams[stream])
  }

  protected override give(buffer: DeviceBuffer): void {
    buffer.free()
  }

  /** The pool's own message. */
  protected override refusal(bytes: number, stream: number): string {
    try {
      this.pool.allocate(bytes, this.streams[stream]).free()
      return 'refused, though a moment later there was room'
    } catch (error) {
      return (error as Error).message
    }
  }

  private allocate(event: number, index: number): void {
    const { blocks } = this.trace
    const buffer = this.request(event, leastOne(blocks.bytes[index]), blocks.stream[index], blocks.pool[index])
    this.held[index] = buffer
    if (buffer !== null) this.observer.allocated?.(index, buffer)
  }

  /**
   * Whether a block is in use on another stream after its free, until the free completes. Recordings without
   * completed frees do not tell.
   */
  private completesLater(index: number, freeRequestedAt: number): boolean {
    const completedAt = this.trace.blocks.freeCompletedAt[index]
    if (completedAt === NEVER) return this.trace.saysCompleted
    return completedAt > freeRequestedAt + 1 && this.trace.action[completedAt] === Action.freeCompleted
  }
}

/** PyTorch gave a request of 0 bytes a block of the least size. */
function leastOne(bytes: number): number {
  return Math.max(1, bytes)
}
