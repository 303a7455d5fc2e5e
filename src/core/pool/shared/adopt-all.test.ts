import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import { RESULT } from '../../driver/constants.js'
import type { Stream } from '../../order/stream.js'

import { TestDevice } from '../pool.fixture.js'
import type { TransferredBuffer } from '../transferred-buffer.js'

/** The methods of all kinds of shared pools. */
interface Front {
  allocate(bytes: number, stream?: Stream): { transfer(): TransferredBuffer }
  adopt(transferred: TransferredBuffer): { free(): void }
  adoptAll(transferred: readonly TransferredBuffer[]): { free(): void; byteLength: number; stream?: Stream }[]
  stats(): { liveBuffers: number }
  close(): void
}

const kinds: Record<string, (device: TestDevice) => { pool: Front; attach: () => Front }> = {
  caching: device => device.createSharedPool(),
  blocks: device => device.createSharedBlocks({ blockBytes: 4096, count: 16 }),
  arena: device => device.createSharedArena({ bytes: 1 * MiB }),
  host: device => device.createSharedHost(),
}

for (const [kind, create] of Object.entries(kinds)) {
  describe(`adoptAll: ${kind}`, () => {
    const fronts = (device = new TestDevice()) => {
      const { pool, attach } = create(device)
      return { pool, other: attach() }
    }

    it('adopts the buffers of another thread in the order of the list', () => {
      const { pool, other } = fronts()
      const sizes = [100, 2000, 300]
      const adopted = other.adoptAll(structuredClone(sizes.map(bytes => pool.allocate(bytes).transfer())))
      assert.deepEqual(
        adopted.map(({ byteLength }) => byteLength),
        sizes,
      )
      for (const buffer of adopted) {
        buffer.free()
        assert.throws(() => buffer.free(), { name: 'PoolError' })
      }
      assert.equal(pool.stats().liveBuffers, 0)
      assert.deepEqual(other.adoptAll([]), [])
    })

    it('adopts all of a list or none', () => {
      const { pool, other } = fronts()
      const sent = [1, 2, 3].map(bytes => pool.allocate(bytes).transfer())
      const gone = pool.allocate(4).transfer()
      other.adopt(gone).free()
      for (const bad of [gone, sent[0], { ...gone, record: 2 ** 30 }, { ...gone, record: -1 }]) {
        assert.throws(() => other.adoptAll([...sent, bad]), {
          name: 'PoolError',
          message: /^adoptAll: .* is not on its way/,
        })
      }
      assert.throws(() => other.adoptAll([...sent, { ...gone, pool: 1 }]), { name: 'PoolError', message: /adoptAll/ })
      for (const bad of [null, {}, { ...gone, tag: 0.5 }]) {
        const list = [...sent, bad] as TransferredBuffer[]
        assert.throws(() => other.adoptAll(list), { name: 'TypeError', message: /^adoptAll: transferred must/ })
      }
      assert.throws(() => other.adoptAll(sent[0] as never), { name: 'TypeError', message: /must be a list/ })
      assert.equal(pool.stats().liveBuffers, 3)
      for (const buffer of other.adoptAll(sent)) buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
      other.close()
      assert.throws(() => other.adoptAll([]), { name: 'PoolError', message: /closed/ })
    })

    if (kind === 'host') return // host buffers have no stream

    it('keeps the streams that the buffers were allocated on', () => {
      const device = new TestDevice()
      const { pool, other } = fronts(device)
      const stream = device.createStream()
      const streams = [stream, stream, device.defaultStream, stream, device.defaultStream]
      const adopted = other.adoptAll(streams.map(one => pool.allocate(100, one).transfer()))
      assert.deepEqual(
        adopted.map(buffer => buffer.stream!.slot),
        streams.map(({ slot }) => slot),
      )
      for (const buffer of adopted) buffer.free()
    })

    it('gives buffers of closed streams to the default stream', () => {
      const device = new TestDevice()
      const { pool, other } = fronts(device)
      const stream = device.createStream()
      const sent = [1, 2, 3].map(bytes => pool.allocate(bytes, stream).transfer())
      stream.close()
      device.clocks.synchronize()
      const next = device.createStream()
      assert.equal(next.slot, stream.lastSlot)
      sent.push(pool.allocate(4, next).transfer())
      const adopted = [other.adopt(sent[0]), ...other.adoptAll(sent.slice(1))] as { free(): void; stream?: Stream }[]
      const { defaultStream } = device
      assert.deepEqual(
        adopted.map(buffer => buffer.stream!.slot),
        [defaultStream, defaultStream, defaultStream, next].map(({ slot }) => slot),
      )
      for (const buffer of adopted) buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
    })

    it('adopts none when the driver refuses to wait for a closed stream', () => {
      const device = new TestDevice()
      const { pool, other } = fronts(device)
      const stream = device.createStream()
      const sent = [pool.allocate(1), pool.allocate(2, stream), pool.allocate(3)].map(buffer => buffer.transfer())
      device.hold(stream)
      stream.close()
      device.driver.failCall({ call: 'cuEventSynchronize', code: RESULT.CUDA_ERROR_NOT_SUPPORTED, onwards: true })
      assert.throws(() => other.adoptAll(sent), CudaError)
      assert.throws(() => other.adopt(sent[1]), CudaError)
      device.driver.clearFaults()
      for (const buffer of sent.map(one => other.adopt(one))) buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
    })
  })
}
