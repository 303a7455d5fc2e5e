// Any device, checked by contents alone. Kernels stamp and compare every word of a buffer in stream order. Kernels
// that spin keep streams busy, so that memory handed out too early is written while it is still read.

import type { Kernel } from '../src/core/kernel/kernel.js'
import { Event } from '../src/core/order/event.js'
import { WAIT_FOR_GATE } from '../src/core/order/gpu.fixture.js'
import { Stream } from '../src/core/order/stream.js'
import { STAMPS } from '../src/core/pool/gpu-device.fixture.js'
import type { Device, DeviceBuffer, HostPool, HostPoolOptions } from '../src/index.js'
import type { Machine } from './machine.js'
import { UserOrder, type UserPoint } from './user-order.js'

const COUNTERS = 4096
const BLOCK = 256
const MOST_BLOCKS = 512

export class GpuMachine implements Machine<UserPoint> {
  readonly recyclesHandles = false
  readonly captures = false
  readonly peer = null
  private readonly order = new UserOrder()
  private readonly stampWords: Kernel
  private readonly countOtherWords: Kernel
  private readonly waitForGate: Kernel
  /** a word for each comparison, and one that stays 0 */
  private readonly counters: DeviceBuffer
  private readonly compared: string[] = []

  constructor(
    readonly device: Device,
    /** how long each hold keeps a stream busy */
    private readonly spinNs: number,
  ) {
    const stamps = device.loadModule(STAMPS)
    this.stampWords = stamps.kernel('stamp_words')
    this.countOtherWords = stamps.kernel('count_other_words')
    this.waitForGate = device.loadModule(WAIT_FOR_GATE).kernel('wait_for_gate')
    this.counters = device.createPlainPool().allocate(4 * (COUNTERS + 1))
    this.counters.fill(0)
    device.synchronize()
  }

  begin(): void {}

  end(): void {
    if (this.compared.length === COUNTERS) this.lookForDamage()
  }

  stamp(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    const words = bytes >> 2
    this.stampWords.launch({ ...shapeFor(words), stream }, buffer, words, stamp)
  }

  compare(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    const words = bytes >> 2
    const counter = this.counters.ptr + 4 * this.compared.length
    this.countOtherWords.launch({ ...shapeFor(words), stream }, buffer, words, stamp, counter)
    this.compared.push(`of ${words} words at 0x${buffer.ptr.toString(16)} were not ${stamp}`)
    if (this.compared.length === COUNTERS) this.lookForDamage()
  }

  hold(stream: Stream): void {
    this.waitForGate.launch({ grid: 1, block: 1, stream }, this.counters.ptr + 4 * COUNTERS, this.spinNs)
  }

  release(): boolean {
    return false
  }
  holdCopy(): void {}
  refuse(): void {}

  pointOf(stream: Stream): UserPoint {
    return this.order.pointOf(stream)
  }

  comesBefore(point: UserPoint, later: Stream): boolean {
    return this.order.comesBefore(point, later)
  }

  recorded(event: Event, stream: Stream): void {
    this.order.recorded(event, stream)
  }

  waited(stream: Stream, event: Event): void {
    this.order.waited(stream, event)
  }

  told(of: Event | Stream | Device): void {
    if (of instanceof Event) this.order.toldOfEvent(of)
    else if (of instanceof Stream) this.order.toldOfStream(of)
    else this.order.toldOfAll()
  }

  requested(): void {}
  granted(): void {}
  pinned(): void {}
  freed(): void {}
  notFreed(): void {}
  resized(): void {}
  fallsAsleep(): void {}
  isAwake(): void {}

  watch(): never {
    throw new Error('no program on a GPU has memory that spills')
  }

  createHostPool(options: HostPoolOptions): HostPool {
    return this.device.createHostPool(options)
  }

  finish(): void {
    this.lookForDamage()
  }

  /** Waits for all work; throws if comparisons since the last time found damage. */
  private lookForDamage(): void {
    this.device.synchronize()
    this.order.toldOfAll()
    const counts = new Uint32Array(this.counters.readSync().buffer)
    const damages = this.compared.flatMap((what, index) => (counts[index] === 0 ? [] : [`${counts[index]} ${what}`]))
    this.compared.length = 0
    this.counters.fill(0)
    this.device.synchronize()
    if (damages.length > 0) throw new Error(damages.join('\n'))
  }
}

function shapeFor(words: number) {
  return { grid: Math.max(1, Math.min(MOST_BLOCKS, Math.ceil(words / BLOCK))), block: BLOCK }
}
