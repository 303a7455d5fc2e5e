// Graphs that share memory, with kernels that really run. Each graph stamps scratch with a value of its own, waits a
// while, and compares it, so that launches side by side would be seen. Without a GPU it fails.
//
// GROUP_FUZZ_SEED and GROUP_FUZZ_LAUNCHES replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import { GpuDevice } from '../../gpu-device.fixture.js'
import type { Captures } from './graph-group.fixture.js'
import type { GraphOutput, OutputLifetime } from './graph-output.js'

const SEED = Number(process.env['GROUP_FUZZ_SEED'] ?? 1)
const LAUNCHES = Number(process.env['GROUP_FUZZ_LAUNCHES'] ?? 1000)
const SPIN_MS = 0.05

const gpu = new GpuDevice()
after(() => gpu.close())

/** A graph that stamps scratch and its output with `value`, and compares the scratch a while later. */
function stamper(
  { pool, group }: Captures,
  stream: Stream,
  value: number,
  bytes = 2 * MiB,
  lifetime: OutputLifetime = 'shared',
): Graph<GraphOutput> {
  return group.capture(stream, () => {
    const output = group.allocateOutput(bytes, stream, lifetime)
    using scratch = pool.allocate(bytes, stream)
    gpu.stamp(scratch, value)
    gpu.spin(stream, SPIN_MS)
    gpu.compare(scratch, value)
    output.copyFrom(scratch)
    return output
  })
}

function open(backing: 'virtual' | 'segments', poison = false) {
  const pool = gpu.createPool({ backing, maxPoolBytes: 512 * MiB })
  return { pool, group: pool.createGraphGroup({ poison }) }
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`graphs that share memory on a GPU: ${backing}`, () => {
    it('have right results in turns on two streams, which wait for each other', () => {
      const captures = open(backing)
      const [a, b] = [gpu.createStream(), gpu.createStream()]
      const graphs = [stamper(captures, a, 1), stamper(captures, b, 2, 3 * MiB)]
      const release = gpu.hold(a)
      for (let turn = 0; turn < 40; turn++) {
        const [stream, graph] = [[a, b][turn % 2], graphs[turn % 2]]
        graph.launch(stream)
        gpu.compare(graph.result, 1 + (turn % 2), stream)
      }
      assert.equal(b.query(), false, 'the second stream waits for the first')
      release()
      assert.deepEqual(gpu.damages(), [])
      assert.ok(captures.group.stats().waits >= 39)
      captures.pool.close()
    })

    it(`have right results in ${LAUNCHES} random launches on three streams, beside captures, seed ${SEED}`, () => {
      const random = new Random(SEED)
      const captures = open(backing, true)
      const streams = [gpu.createStream(), gpu.createStream(), gpu.createStream()]
      const graphs: { graph: Graph<GraphOutput>; value: number }[] = []
      for (let launch = 0; launch < LAUNCHES; launch++) {
        const stream = streams[random.below(3)]
        if (graphs.length < 2 || random.below(20) === 0) {
          const lifetime = random.below(2) === 0 ? 'own' : 'shared'
          const value = launch + 1
          graphs.push({ graph: stamper(captures, stream, value, (1 + random.below(4)) * MiB, lifetime), value })
        }
        const { graph, value } = graphs[random.below(graphs.length)]
        graph.launch(stream)
        if (random.below(2) === 0) gpu.compare(graph.result, value, streams[random.below(3)])
        if (graphs.length > 6) {
          const [{ graph: old }] = graphs.splice(random.below(graphs.length), 1)
          old.close()
          old.result.free(streams[random.below(3)])
        }
      }
      assert.deepEqual(gpu.damages(), [])
      captures.pool.check()
      captures.pool.close()
    })

    it('can be captured in global mode while others run, which grows the scratch', () => {
      const captures = open(backing)
      const [a, b] = [gpu.createStream(), gpu.createStream()]
      const first = stamper(captures, a, 1)
      const release = gpu.hold(a)
      first.launch(a)
      const second = stamper(captures, b, 2, 32 * MiB)
      second.launch(b)
      release()
      gpu.compare(second.result, 2, b)
      assert.deepEqual(gpu.damages(), [])
      captures.pool.close()
    })
  })
}

describe('graphs that share memory on a GPU', () => {
  it('keep own outputs over a sleep, and run after it', async () => {
    const captures = open('virtual')
    const stream = gpu.createStream()
    const [own, shared] = [stamper(captures, stream, 1, 2 * MiB, 'own'), stamper(captures, stream, 2, 4 * MiB)]
    own.launch()
    shared.launch()
    await captures.pool.sleep()
    assert.throws(() => own.launch(), { code: 'ERR_POOL_ASLEEP' })
    await captures.pool.wake()
    gpu.compare(own.result, 1)
    assert.equal(shared.result.overwritten, true)
    shared.launch()
    gpu.compare(shared.result, 2)
    gpu.compare(own.result, 1)
    assert.deepEqual(gpu.damages(), [])
    captures.pool.close()
  })

  it('give their memory to the device once they are closed', () => {
    const captures = open('virtual')
    const stream = gpu.createStream()
    const graph = stamper(captures, stream, 1, 64 * MiB)
    graph.launch()
    graph.close()
    graph.result.free()
    stream.synchronize()
    assert.ok(captures.group.trim() >= 64 * MiB)
    assert.equal(captures.group.stats().scratchBytes, 0)
    captures.group.close()
    captures.pool.close()
  })
})
