// Graphs of a group whose scratch lies in an arena or a block pool, with kernels that really run. Each graph stamps its
// scratch with a value of its own, waits a while, and compares it. So it sees launches side by side. Without a GPU it
// fails.
//
// GROUP_FUZZ_SEED and GROUP_FUZZ_LAUNCHES replay and lengthen; the name of the test says the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { GpuDevice } from '../../gpu-device.fixture.js'

const SEED = Number(process.env['GROUP_FUZZ_SEED'] ?? 1)
const LAUNCHES = Number(process.env['GROUP_FUZZ_LAUNCHES'] ?? 1000)
const SPIN_MS = 0.05

const gpu = new GpuDevice()
after(() => gpu.close())

function setUp() {
  const pool = gpu.createPool({ maxPoolBytes: 256 * MiB })
  const arena = gpu.createArenaPool({ bytes: 2 * MiB, maxPoolBytes: 64 * MiB })
  const blocks = gpu.createBlockPool({ blockBytes: 1 * MiB, count: 2, maxCount: 8 })
  const streams = [gpu.createStream(), gpu.createStream(), gpu.createStream()]
  const close = () => {
    for (const each of [pool, arena, blocks]) each.close()
  }
  return { pool, arena, blocks, streams, close }
}

/** Work that stamps a buffer with `value`, and compares it a while later. */
function stamp(buffer: DeviceBuffer, value: number): void {
  gpu.stamp(buffer, value)
  gpu.spin(buffer.stream, SPIN_MS)
  gpu.compare(buffer, value)
}

describe('groups over an arena and a block pool on a GPU', () => {
  it(`have right results in ${LAUNCHES} random launches on three streams, beside captures, seed ${SEED}`, () => {
    const random = new Random(SEED)
    const { pool, arena, blocks, streams, close } = setUp()
    const group = pool.createGraphGroup({ arena })
    const capture = (stream: Stream, value: number): Graph =>
      group.capture(stream, () => {
        using block = blocks.allocate({ stream })
        const scratch = arena.allocate((1 + random.below(8)) * MiB, stream)
        stamp(block, value)
        stamp(scratch, value)
      })
    const graphs: Graph[] = []
    for (let launch = 0; launch < LAUNCHES; launch++) {
      const stream = streams[random.below(3)]
      if (graphs.length < 2 || random.below(20) === 0) graphs.push(capture(stream, launch + 1))
      graphs[random.below(graphs.length)].launch(stream)
      using eager = blocks.allocate({ stream: streams[random.below(3)] })
      stamp(eager, launch + 1)
      if (graphs.length > 6) graphs.splice(random.below(graphs.length), 1)[0].close()
    }
    assert.deepEqual(gpu.damages(), [])
    for (const each of [pool, arena, blocks]) each.check()
    close()
  })

  it('order eager work before and after the group with its launches', () => {
    const { pool, arena, blocks, streams, close } = setUp()
    const [a, b, c] = streams
    const mark = arena.mark()
    const release = gpu.hold(a)
    stamp(arena.allocate(4 * MiB, a), 1)
    arena.rewind(mark, a)
    const group = pool.createGraphGroup({ arena })
    const graph = group.capture(b, () => {
      using block = blocks.allocate({ stream: b })
      stamp(block, 2)
      stamp(arena.allocate(4 * MiB, b), 2)
    })
    graph.launch(b)
    assert.equal(b.query(), false, 'the launch waits for the eager work')
    graph.close()
    group.close()
    stamp(arena.allocate(4 * MiB, c), 3)
    release()
    stamp(blocks.allocate({ stream: c }), 3)
    assert.deepEqual(gpu.damages(), [])
    close()
  })
})
