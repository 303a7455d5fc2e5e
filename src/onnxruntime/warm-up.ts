// Runs the code behind the callbacks before the first session does, so that V8 has compiled it. ONNX Runtime asks for
// memory a few times a run, and V8 compiles after thousands of calls: without this, requests of the first thousand runs
// take half as long again. It takes some 0.1 s, once a process, and memory of a pool of its own meanwhile.

import { MiB } from '../core/base/bytes.js'
import { Random } from '../core/base/random.js'
import { deviceOf } from '../core/device/device.js'
import type { Koffi } from '../core/libraries/koffi.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import type { Pool } from '../core/pool/pool.js'
import { type Blocks, DeviceBlocks, HostBlocks } from './blocks.js'

const ROUNDS = 1000
const DEVICE_BYTES = 32 * MiB
const HOST_BYTES = 8 * MiB
const LEAST_BYTES = 256

/** the kinds of blocks that are compiled */
const done = new Set<'host' | 'device'>()

/** `warmUp` at the first call for blocks of a host pool, and at the first one for blocks of a device's pool. */
export function warmUpOnce(pool: Pool | HostPool, koffi: Koffi): void {
  const kind = pool instanceof HostPool ? 'host' : 'device'
  if (done.has(kind)) return
  done.add(kind)
  warmUp(pool, koffi)
}

/** For blocks of pools like `pool`. It ends early if memory is short, and does nothing during a capture. */
export function warmUp(pool: Pool | HostPool, koffi: Koffi): void {
  const isHost = pool instanceof HostPool
  const clocks = isHost ? pool.clocks : pool.defaultStream.clocks
  if (clocks.captures.size > 0) return
  const device = deviceOf.get(clocks)!
  if (isHost) {
    using scratch = device.createHostPool({ maxPoolBytes: HOST_BYTES, segmentBytes: HOST_BYTES })
    run(new HostBlocks(scratch, koffi), HOST_BYTES, [null])
  } else {
    using scratch = device.createPool({ maxPoolBytes: DEVICE_BYTES })
    // Two sessions take memory over from each other, which is code of its own.
    using first = device.createStream()
    using second = device.createStream()
    run(new DeviceBlocks(scratch, true), DEVICE_BYTES, [first.handle, second.handle])
  }
}

/** Requests like those of small models by turns, whose batches vary in size. */
function run(blocks: Blocks, poolBytes: number, streams: readonly (number | null)[]): void {
  const random = new Random(1)
  blocks.warned = true // if memory is short, the first session says so
  for (let round = 0; round < ROUNDS && blocks.failures === 0; round++) {
    const bytes = Math.floor(random.logUniform(LEAST_BYTES, poolBytes / 8))
    const stream = streams[round % streams.length]
    const input = blocks.allocate(bytes, stream)
    const first = blocks.allocate(bytes, stream)
    blocks.free(input)
    const second = blocks.allocate(bytes, stream)
    blocks.free(first)
    blocks.free(second)
  }
}
