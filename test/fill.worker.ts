// A thread of shared-pool.gpu.test.ts: on its own stream it fills buffers of a shared pool with its own bytes, and
// verifies them later, until it is stopped or terminated. It reports when it is attached.

import assert from 'node:assert/strict'
import { parentPort, workerData } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'

const MOST_HELD = 24

export interface FillTask {
  readonly pool: SharedPoolDescriptor
  readonly index: number
  /** 0: 1 to stop; 1: rounds of all threads */
  readonly progress: Int32Array
}

function run({ pool: descriptor, index, progress }: FillTask): void {
  const random = new Random(index)
  const device = attachDevice(descriptor.device)
  const pool = attachPool(descriptor)
  parentPort!.postMessage('attached')
  const stream = device.createStream()
  const held: { buffer: DeviceBuffer; value: number }[] = []
  for (let round = 1; Atomics.load(progress, 0) === 0; round++) {
    if (held.length < MOST_HELD && random.below(2) === 0) {
      const value = (index * 37 + round) & 255
      const bytes = random.below(8) === 0 ? random.logUniform(1 * MiB, 8 * MiB) : random.logUniform(1, 512 * KiB)
      const buffer = pool.allocate(bytes, stream)
      buffer.fill(value)
      held.push({ buffer, value })
    } else if (held.length > 0) {
      const [{ buffer, value }] = held.splice(random.below(held.length), 1)
      const { byteLength } = buffer
      const sample = buffer.readSync(random.below(byteLength), 1)
      assert.equal(sample[0], value, `a buffer of ${byteLength} bytes keeps its contents`)
      buffer.free()
    }
    Atomics.add(progress, 1, 1)
  }
  // The remaining buffers go to the main thread.
  parentPort!.postMessage(held.map(({ buffer, value }) => ({ value, transferred: buffer.transfer() })))
  pool.close()
  device.close()
}

if (workerData?.fillTask) run(workerData.fillTask as FillTask)
