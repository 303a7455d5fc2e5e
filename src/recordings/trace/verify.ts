// Fills every block with a stamp of its own after its allocation, and compares before its free, in the block's
// stream. A block that was handed out twice at a time, or lost its memory, is damaged.

import { registerSimulatedKernel } from '../../core/driver/simulated-kernels.js'
import type { Kernel } from '../../core/kernel/kernel.js'
import type { Module } from '../../core/kernel/module.js'
import type { DeviceBuffer } from '../../core/pool/buffer.js'
import type { Pool } from '../../core/pool/pool.js'
import type { ReplayDevice } from './replay-device.js'

/** Adds to `*damaged` how many of the `words` words at `data` differ from `stamp`. */
const PTX = `
.version 6.4
.target sm_52
.address_size 64
.visible .entry count_damaged_words(.param .u64 data, .param .u64 words, .param .u32 stamp, .param .u64 damaged)
{
  .reg .pred %done, %bad;
  .reg .b32 %thread, %block, %threads, %blocks, %stamp, %value, %count;
  .reg .b64 %data, %words, %damaged, %index, %step, %address;
  ld.param.u64 %data, [data];
  ld.param.u64 %words, [words];
  ld.param.u32 %stamp, [stamp];
  ld.param.u64 %damaged, [damaged];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %damaged, %damaged;
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
  ld.global.u32 %value, [%address];
  setp.ne.u32 %bad, %value, %stamp;
  @%bad add.u32 %count, %count, 1;
  add.u64 %index, %index, %step;
  bra next;
finish:
  setp.eq.u32 %done, %count, 0;
  @%done ret;
  red.global.add.u32 [%damaged], %count;
  ret;
}
`

registerSimulatedKernel('count_damaged_words', ({ args, memory }) => {
  const [data, words, stamp, damaged] = [args.pointer(0), args.pointer(1), args.uint32(2), args.pointer(3)]
  const count = memory.countDifferent(data, words * 4, stamp)
  const [before] = memory.load(Uint32Array, damaged, 1)
  memory.store(damaged, Uint32Array.of(before + count))
})

export class Verifier {
  private readonly module: Module
  private readonly kernel: Kernel
  private readonly counters: DeviceBuffer
  private readonly seen: Uint8Array

  /** `counterPool` holds the counters, apart from the pool under test. */
  constructor(
    private readonly device: ReplayDevice,
    private readonly counterPool: Pool,
    blocks: number,
  ) {
    this.module = device.loadModule(PTX)
    this.kernel = this.module.kernel('count_damaged_words')
    this.counters = this.counterPool.allocate(Math.max(1, blocks) * 4)
    this.counters.fill(0)
    this.seen = new Uint8Array(blocks)
    device.synchronize()
  }

  allocated(block: number, buffer: DeviceBuffer): void {
    const { ptr, stream, context } = buffer
    const words = wordsOf(buffer)
    if (words > 0) context.activate().cuMemsetD32Async(ptr, stampOf(block), words, stream.handle)
  }

  freeing(block: number, buffer: DeviceBuffer): void {
    const words = wordsOf(buffer)
    if (words === 0) return
    this.seen[block] = 1
    const grid = Math.min(1024, Math.ceil(words / 256))
    const damaged = { ptr: this.counters.ptr + block * 4 }
    this.kernel.launch({ grid, block: 256, stream: buffer.stream }, buffer, words, stampOf(block), damaged)
  }

  /** Waits for all comparisons, and counts the damaged blocks. */
  finish(): { blocks: number; damaged: number } {
    this.device.synchronize()
    const damaged = new Uint32Array(this.counters.readSync().buffer)
    const result = {
      blocks: this.seen.reduce((sum, one) => sum + one, 0),
      damaged: damaged.reduce((sum, count) => sum + (count > 0 ? 1 : 0), 0),
    }
    this.counters.free()
    this.module.close()
    return result
  }
}

const stampOf = (block: number) => (block + 0x5eed0000) >>> 0

/** A stamp is a word, so up to three last bytes of a block have none. */
const wordsOf = (buffer: DeviceBuffer) => Math.floor(buffer.byteLength / 4)
