// A GPU built from the layers below, with two kernels that check memory. One writes a stamp into every word of a
// buffer, the other counts words that differ from the stamp. Both run in stream order, so that they see the memory as
// a user's kernel would.

import { CU_STREAM_LEGACY_DEFAULT } from '../driver/constants.js'
import { StagingBuffers } from '../driver/staging-buffers.js'
import type { Kernel } from '../kernel/kernel.js'
import { Module } from '../kernel/module.js'
import { TestGpu } from '../order/gpu.fixture.js'
import type { Stream } from '../order/stream.js'
import type { AnyArenaOptions } from './arena/arena-options.js'
import { ArenaPool } from './arena/arena-pool.js'
import type { BlockOptions } from './blocks/block-options.js'
import { BlockPool } from './blocks/block-pool.js'
import type { DeviceBuffer } from './buffer.js'
import type { CachingPool } from './caching/caching-pool.js'
import type { PoolOptions } from './caching/options.js'
import type { DebugPool } from './debug/debug-pool.js'
import { makeCachingPool, type WithDebug } from './debug/make-caching-pool.js'
import { DriverPool } from './driver-owned/driver-pool.js'
import type { DriverPoolOptions } from './driver-owned/driver-pool-options.js'
import { PlainPool } from './driver-owned/plain-pool.js'
import { GrowableBuffer, type GrowableOptions } from './mapped/growable-buffer.js'

const LOOP = `
  .reg .pred %done, %other;
  .reg .b32 %thread, %block, %threads, %blocks, %stamp, %value, %count;
  .reg .b64 %data, %words, %index, %step, %address;
  ld.param.u64 %data, [data];
  ld.param.u64 %words, [words];
  ld.param.u32 %stamp, [stamp];
  mov.u32 %thread, %tid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %index, %block, %threads;
  cvt.u64.u32 %step, %thread;
  add.u64 %index, %index, %step;
  mul.wide.u32 %step, %blocks, %threads;
  mov.u32 %count, 0;
next:
  setp.ge.u64 %done, %index, %words;
  @%done bra finish;
  shl.b64 %address, %index, 2;
  add.u64 %address, %data, %address;
  add.u64 %index, %index, %step;`

export const STAMPS = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry stamp_words(.param .u64 data, .param .u64 words, .param .u32 stamp)
{${LOOP}
  st.u32 [%address], %stamp;
  bra next;
finish:
  ret;
}
.visible .entry count_other_words(.param .u64 data, .param .u64 words, .param .u32 stamp, .param .u64 counter)
{${LOOP}
  ld.u32 %value, [%address];
  setp.ne.u32 %other, %value, %stamp;
  @%other add.u32 %count, %count, 1;
  bra next;
finish:
  setp.eq.u32 %done, %count, 0;
  @%done ret;
  ld.param.u64 %address, [counter];
  red.add.u32 [%address], %count;
  ret;
}
`

const COUNTERS = 16 * 1024
const BLOCK = 256
const MOST_BLOCKS = 512

/** GPU 0, or another by its number. A replay can use it too. */
export class GpuDevice extends TestGpu {
  readonly simulated = false
  readonly name: string
  readonly totalBytes: number
  private readonly pools: { close(): unknown }[] = []
  private readonly kernels: Module
  private readonly stampWords: Kernel
  private readonly countOtherWords: Kernel
  /** device memory: a word for each comparison */
  private readonly counters: number
  private readonly compared: string[] = []

  constructor(ordinal = 0) {
    super(ordinal)
    this.name = this.driver.cuDeviceGetName(this.context.device)
    this.totalBytes = this.driver.cuDeviceTotalMem(this.context.device)
    this.kernels = this.loadModule(STAMPS)
    this.stampWords = this.kernels.kernel('stamp_words')
    this.countOtherWords = this.kernels.kernel('count_other_words')
    this.counters = this.driver.cuMemAlloc(COUNTERS * 4)
    const nothing = { ptr: this.counters }
    this.stampWords.launch({ grid: 1, block: 1 }, nothing, 0, 0) // loads the code, as in `warmUp`
    this.countOtherWords.launch({ grid: 1, block: 1 }, nothing, 0, 0, nothing)
    this.clearCounters()
  }

  createPool(options: WithDebug): DebugPool
  createPool(options?: PoolOptions): CachingPool
  createPool(options: PoolOptions = {}): CachingPool {
    return this.opened(makeCachingPool(this.clocks, this.defaultStream, options, this.totalBytes))
  }

  createArenaPool(options: AnyArenaOptions): ArenaPool {
    return this.opened(new ArenaPool(this.clocks, this.defaultStream, options))
  }

  createBlockPool(options: BlockOptions): BlockPool {
    return this.opened(new BlockPool(this.clocks, this.defaultStream, options))
  }

  createPlainPool(): PlainPool {
    return this.opened(new PlainPool(this.clocks, this.defaultStream))
  }

  defaultDriverPool(): DriverPool {
    return this.opened(new DriverPool(this.clocks, this.defaultStream))
  }

  createDriverPool(options: DriverPoolOptions = {}): DriverPool {
    return this.opened(new DriverPool(this.clocks, this.defaultStream, options))
  }

  createGrowableBuffer(options: GrowableOptions): GrowableBuffer {
    const buffer = GrowableBuffer.create(this.clocks, this.defaultStream, options)
    this.opened(buffer.allocation)
    return buffer
  }

  loadModule(ptx: string): Module {
    return new Module(this.context, this.defaultStream, ptx)
  }

  synchronize(): void {
    this.context.activate().cuCtxSynchronize()
  }

  /** Writes `stamp` into every word of a buffer, on its own stream or another. */
  stamp(buffer: DeviceBuffer, stamp: number, stream: Stream = buffer.stream): void {
    const words = wordsOf(buffer)
    this.stampWords.launch({ grid: blocksFor(words), block: BLOCK, stream }, buffer, words, stamp)
  }

  /** Compares every word of a buffer with `stamp`, on its own stream or another; `damages` tells the result. */
  compare(buffer: DeviceBuffer, stamp: number, stream: Stream = buffer.stream): void {
    if (this.compared.length === COUNTERS) throw new RangeError(`ask for damages before ${COUNTERS} comparisons`)
    const counter = this.counters + 4 * this.compared.length
    const words = wordsOf(buffer)
    this.countOtherWords.launch({ grid: blocksFor(words), block: BLOCK, stream }, buffer, words, stamp, counter)
    this.compared.push(`of ${words} words at 0x${buffer.ptr.toString(16)} were not ${stamp}`)
  }

  /** Waits for all work. Returns a line for each comparison since the last call that found a difference. */
  damages(): string[] {
    this.synchronize()
    const counts = new Uint32Array(Math.max(1, this.compared.length))
    this.context.activate().cuMemcpyDtoH(counts, this.counters)
    const found = this.compared.flatMap((what, index) => (counts[index] === 0 ? [] : [`${counts[index]} ${what}`]))
    this.compared.length = 0
    this.clearCounters()
    return found
  }

  override close(): void {
    for (const pool of this.pools) pool.close()
    this.kernels.close()
    this.context.activate().cuMemFree(this.counters)
    StagingBuffers.of(this.context).close()
    super.close()
  }

  private clearCounters(): void {
    this.context.activate().cuMemsetD8Async(this.counters, 0, COUNTERS * 4, CU_STREAM_LEGACY_DEFAULT)
    this.synchronize()
  }

  private opened<P extends { close(): unknown }>(pool: P): P {
    this.pools.push(pool)
    return pool
  }
}

const wordsOf = (buffer: DeviceBuffer) => Math.floor(buffer.byteLength / 4)

const blocksFor = (words: number) => Math.max(1, Math.min(MOST_BLOCKS, Math.ceil(words / BLOCK)))
