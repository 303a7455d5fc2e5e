// Debug mode on a GPU: a kernel that writes past the end, a kernel that writes after the free, and a program without
// mistakes.

import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { DebugError } from '../../base/errors.js'
import type { Kernel } from '../../kernel/kernel.js'
import { Event } from '../../order/event.js'
import type { Stream } from '../../order/stream.js'
import { GpuDevice } from '../gpu-device.fixture.js'

const PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry write_word(.param .u64 data, .param .u32 offset)
{
  .reg .b32 %offset;
  .reg .b64 %at, %wide;
  ld.param.u64 %at, [data];
  ld.param.u32 %offset, [offset];
  cvt.u64.u32 %wide, %offset;
  add.u64 %at, %at, %wide;
  st.u32 [%at], 1;
  ret;
}
`

let gpu: GpuDevice
let writeWord: Kernel

before(() => {
  gpu = new GpuDevice()
  writeWord = gpu.loadModule(PTX).kernel('write_word')
})
after(() => gpu.close())

/** A kernel that writes a word at a byte offset from `ptr`, whatever lies there. */
function poke(ptr: number, offset: number, stream: Stream): void {
  writeWord.launch({ grid: 1, block: 1, stream }, { ptr }, offset)
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`debug mode on a GPU: ${backing}`, () => {
    it('a write past the end by a kernel is found at the free, also behind other work', () => {
      using pool = gpu.createPool({ debug: true, backing })
      using stream = gpu.createStream()
      for (const bytes of [4 * KiB, 3 * MiB]) {
        const buffer = pool.allocate(bytes, stream)
        gpu.spin(stream, 10)
        gpu.stamp(buffer, 1)
        poke(buffer.ptr, bytes, stream)
        assert.throws(
          () => buffer.free(),
          (error: unknown) => {
            assert.ok(error instanceof DebugError && error.fault === 'outOfBounds', `${error}`)
            assert.match(error.message, new RegExp(`byte ${bytes} was written, 1 past the end`))
            return true
          },
        )
        buffer.free()
      }
    })

    it('a write after the free by a kernel is found when the memory is reused', () => {
      using pool = gpu.createPool({ debug: { quarantineBytes: 64 * MiB }, backing })
      using stream = gpu.createStream()
      const buffer = pool.allocate(8 * MiB, stream)
      const { ptr } = buffer
      gpu.stamp(buffer, 1)
      buffer.free()
      poke(ptr, 5 * MiB, stream)
      assert.throws(() => pool.trimTo(0), { name: 'DebugError', message: /byte 5242880 was written after the free/ })
      pool.trimTo(0)
    })

    it('a program of two streams without mistakes runs as without debug mode', () => {
      const pool = gpu.createPool({ debug: { quarantineBytes: 32 * MiB }, backing })
      using first = gpu.createStream()
      using second = gpu.createStream()
      using event = new Event(gpu.context)
      for (let round = 1; round <= 20; round++) {
        const buffer = pool.allocate(round * 300 * KiB, first)
        gpu.stamp(buffer, round)
        event.record(first)
        second.wait(event)
        gpu.compare(buffer, round, second)
        buffer.recordUse(second)
        buffer.free()
      }
      assert.deepEqual(gpu.damages(), [])
      const { heldBuffers, faults } = pool.close()
      assert.deepEqual([heldBuffers, faults], [0, []])
    })
  })
}
