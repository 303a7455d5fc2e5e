// Memory for kernels on a real GPU, from the host's side: its view while kernels run, growth, several streams, and
// the examples. The kernels' side is in cuda/device-heap.gpu.test.ts. Without a GPU it fails.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { NO_TRIALS, trialsPtx } from '../cuda/compile-ptx.js'
import { MiB } from '../src/core/base/bytes.js'
import { NoLibraryError } from '../src/core/base/errors.js'
import { openNvrtc } from '../src/core/libraries/nvrtc.js'
import { WAIT_FOR_GATE } from '../src/core/order/gpu.fixture.js'
import { createDeviceArena, createDeviceHeap, createStreamArenas } from '../src/entries/kernels.js'
import { type DevicePointer, openDevice, type Stream } from '../src/index.js'

const COUNT = 65_536
const THREADS = 256

const device = openDevice(0)
after(() => device.close())
const pool = device.createPool()
const ptx = trialsPtx()
const waitForGate = device.loadModule(WAIT_FOR_GATE).kernel('wait_for_gate')
const gates = device.createHostPool({ mapped: true })
const trials = ptx === null ? null : device.loadModule(ptx)
const names = trials === null ? [] : ['arena_take', 'heap_take', 'heap_free', 'stamp', 'verify']
const kernels = new Map(names.map(name => [name, trials!.kernel(name)]))
for (const kernel of [...kernels.values(), waitForGate]) kernel.resources() // loads the code

function launch(name: string, stream: Stream, ...args: readonly (DevicePointer | number)[]): void {
  kernels.get(name)!.launch({ grid: COUNT / THREADS, block: THREADS, stream }, ...args)
}

/** Keeps `stream` busy with a kernel that runs until the returned function is called, 5 seconds at most. */
function occupy(stream: Stream): () => void {
  const gate = gates.allocate(4096)
  gate.bytes.fill(0)
  waitForGate.launch({ grid: 1, block: 1, stream }, gate.devicePtr, 5e9)
  return () => {
    gate.bytes[0] = 1
    stream.synchronize()
    gate.free()
  }
}

const streams = (count: number) => Array.from({ length: count }, () => device.createStream())

describe('memory for kernels on a GPU', { skip: ptx === null && NO_TRIALS }, () => {
  it('counters are read while a kernel runs, with and without blocking', async () => {
    using stream = device.createStream()
    using region = pool.allocate(32 * MiB, stream)
    using blocks = pool.allocate(8 * COUNT, stream)
    using heap = createDeviceHeap(device, region, { stream })
    launch('heap_take', stream, heap, blocks, COUNT, 64, 64, 0, 1)
    stream.synchronize()
    const release = occupy(stream)
    try {
      const [now, later] = [heap.statsSync(), await heap.stats()]
      assert.equal(stream.query(), false, 'the kernel still runs')
      for (const { liveBlocks, liveBytes, failures } of [now, later]) {
        assert.deepEqual([liveBlocks, liveBytes, failures], [COUNT, 64 * COUNT, 0])
      }
    } finally {
      release()
    }
    launch('heap_free', stream, heap, blocks, COUNT, 1)
    heap.check()
    const { liveBlocks, usedBytes, doubleFrees, invalidFrees } = heap.statsSync()
    assert.deepEqual([liveBlocks, doubleFrees, invalidFrees], [0, 0, 0])
    assert.equal(usedBytes, 0)
  })

  it('several streams take from one heap at once, and its tables stay whole', () => {
    const several = streams(4)
    using region = pool.allocate(128 * MiB)
    using heap = createDeviceHeap(device, region)
    device.synchronize()
    const held = several.map(stream => pool.allocate(8 * COUNT, stream))
    using faults = pool.allocateArray(Uint32Array, 1)
    faults.fill(0)
    device.synchronize()
    for (let round = 0; round < 3; round++) {
      for (const [index, stream] of several.entries()) {
        launch('heap_take', stream, heap, held[index], COUNT, 16, 512, 1, index)
        launch('stamp', stream, held[index], COUNT, 16, 512, 1, index)
      }
      for (const [index, stream] of several.entries()) {
        launch('verify', stream, held[index], COUNT, 16, 512, 1, index, faults)
      }
      heap.check()
      const { liveBlocks, failures } = heap.statsSync()
      assert.equal(liveBlocks + failures, 4 * COUNT)
      for (const [index, stream] of several.entries()) launch('heap_free', stream, heap, held[index], COUNT, 5)
      heap.check()
      assert.deepEqual([heap.statsSync().liveBlocks, heap.statsSync().doubleFrees], [0, 0])
      heap.reset()
      device.synchronize()
    }
    assert.equal(faults.readSync()[0], 0)
    for (const [index, stream] of several.entries()) {
      held[index].free()
      stream.close()
    }
  })

  it('both grow in a growable buffer while kernels of another stream run', () => {
    const [stream, other] = streams(2)
    const makers = { arena_take: createDeviceArena, heap_take: createDeviceHeap }
    for (const [take, make] of Object.entries(makers)) {
      using region = device.createGrowableBuffer({ bytes: 4 * MiB, capacityBytes: 256 * MiB, stream })
      using memory = make(device, region, { stream })
      using blocks = pool.allocate(8 * COUNT, stream)
      const { ptr } = memory
      launch(take, stream, memory, blocks, COUNT, 256, 256, 0, 1)
      stream.synchronize()
      const refused = memory.statsSync().failures
      assert.ok(refused > COUNT / 2, `${make}: ${refused} refused`)
      const release = occupy(other)
      try {
        memory.grow(64 * MiB)
        launch(take, stream, memory, blocks, COUNT, 256, 256, 0, 1)
        stream.synchronize()
        assert.equal(other.query(), false, 'the kernel still runs')
      } finally {
        release()
      }
      assert.equal(memory.ptr, ptr)
      assert.equal(memory.statsSync().failures, refused, take)
      memory.check()
    }
    stream.close()
    other.close()
  })

  it('arenas for streams are reset each in its own order', () => {
    const several = streams(3)
    using arenas = createStreamArenas(device, { pool, bytes: 4 * MiB })
    const taken = several.map(stream => pool.allocate(8 * COUNT, stream))
    for (const [index, stream] of several.entries()) {
      launch('arena_take', stream, arenas.of(stream), taken[index], COUNT, 16, 16, 0, 0)
      if (index === 0) arenas.of(stream).reset()
    }
    device.synchronize()
    const bytes = several.map(stream => arenas.of(stream).statsSync().takenBytes)
    assert.deepEqual(bytes, [0, 16 * COUNT, 16 * COUNT])
    for (const stream of several) arenas.of(stream).check()
    for (const buffer of taken) buffer.free()
    arenas.close()
    for (const stream of several) stream.close()
  })

  it('a reset is captured in a graph like any kernel', () => {
    using stream = device.createStream()
    using region = pool.allocate(4 * MiB, stream)
    using taken = pool.allocate(8 * COUNT, stream)
    using arena = createDeviceArena(device, region, { stream })
    const graph = device.capture(stream, () => {
      arena.reset(stream)
      launch('arena_take', stream, arena, taken, COUNT, 16, 16, 0, 0)
    })
    for (let round = 0; round < 3; round++) graph.launch(stream)
    stream.synchronize()
    const { takenBytes, failures } = arena.statsSync()
    assert.deepEqual([takenBytes, failures], [16 * COUNT, 0])
    graph.close()
  })
})

describe('the examples on a GPU', { skip: whyNoNvrtc() }, () => {
  for (const name of ['device-pool', 'hash-table', 'compaction', 'kernels', 'graph', 'pipeline']) {
    it(`${name} runs`, () => {
      const path = fileURLToPath(new URL(`../examples/${name}.js`, import.meta.url))
      const { status, stdout, stderr } = spawnSync(process.execPath, [path], { encoding: 'utf8' })
      assert.deepEqual([status, stderr], [0, ''], stdout)
      assert.doesNotMatch(stdout, /simulated|undefined/)
    })
  }
})

function whyNoNvrtc(): string | false {
  try {
    openNvrtc(device.driver.cuDriverGetVersion())
    return false
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}
