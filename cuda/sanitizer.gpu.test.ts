// The verification kernels on a real GPU under the compute sanitizer, where that is installed and knows the device:
// small runs, each in a process of its own, in which nothing is accessed out of bounds, no warp waits for lanes that
// do not come and no two threads race for shared memory. A write out of bounds, made on purpose, shows that the
// sanitizer does look.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../src/core/base/bytes.js'
import type { KernelArgument } from '../src/core/kernel/kernel.js'
import { createDeviceArena, createDeviceHeap } from '../src/entries/kernels.js'
import { openDevice } from '../src/index.js'
import { NO_TRIALS, runTool, trialsPtx } from './compile-ptx.js'

const COUNT = 2048
const THREADS = 128
const HEAP_BYTES = 8 * MiB
const STREAMS = 3

const PROGRAMS = { blocks: tryBlocks, growth: tryGrowth, 'out of bounds': writeOutOfBounds }
type Program = keyof typeof PROGRAMS

const RUNS: readonly (readonly [tool: string, program: Program])[] = [
  ['memcheck', 'blocks'],
  ['memcheck', 'growth'],
  ['synccheck', 'blocks'],
  ['racecheck', 'growth'],
]

/** A device, and the kernels that try the allocators. Each buffer is an allocation of its own, which has bounds. */
function openTrials() {
  const device = openDevice(0)
  const pool = device.createPlainPool()
  const trials = device.loadModule(trialsPtx()!)
  const streams = Array.from({ length: STREAMS }, () => device.createStream())
  const run = (name: string, stream: number, ...args: readonly KernelArgument[]) =>
    trials.kernel(name).launch({ grid: COUNT / THREADS, block: THREADS, stream: streams[stream] }, ...args)
  return { device, pool, streams, run }
}

/** Takes, stamps, verifies and frees on several streams; then churns, with a detector of memory handed out twice. */
function tryBlocks() {
  const { device, pool, streams, run } = openTrials()
  const heap = createDeviceHeap(device, pool.allocate(HEAP_BYTES, device.defaultStream))
  const arena = createDeviceArena(device, pool.allocate(1 * MiB, device.defaultStream))
  const blocks = streams.map(() => pool.allocate(8 * COUNT, device.defaultStream))
  const marks = pool.allocate(HEAP_BYTES / 4, device.defaultStream)
  const faults = pool.allocate(4, device.defaultStream)
  for (const buffer of [marks, faults]) buffer.fill(0)
  device.synchronize()
  for (const [least, most, shape] of [
    [64, 64, 0],
    [16, 1024, 1],
  ]) {
    const shapeOf = [COUNT, least, most, shape, 7] as const
    for (const stream of streams.keys()) {
      run('heap_take', stream, heap, blocks[stream], ...shapeOf)
      run('stamp', stream, blocks[stream], ...shapeOf)
      run('verify', stream, blocks[stream], ...shapeOf, faults)
      run('heap_free', stream, heap, blocks[stream], COUNT, 5)
      run('churn', stream, heap, 4, 16, 4 * most, shape, stream, marks, faults)
    }
  }
  device.synchronize()
  heap.check()
  // Blocks that are freed twice are not written to.
  for (const stream of streams.keys()) run('free_twice', stream, heap, 4, 16, 100_000, 0, stream)
  for (const take of ['arena_take', 'pool_take']) {
    run(take, 0, arena, blocks[0], COUNT, 16, 256, 0, 7)
    run('stamp', 0, blocks[0], COUNT, 16, 256, 0, 7)
    run('verify', 0, blocks[0], COUNT, 16, 256, 0, 7, faults)
    streams[0].synchronize()
    arena.check()
    arena.reset(streams[0])
  }
  device.synchronize()
  heap.check()
  const { liveBlocks, usedBytes } = heap.statsSync()
  console.log(JSON.stringify({ liveBlocks, usedBytes, faults: new Uint32Array(faults.readSync().buffer)[0] }))
  device.close()
}

function tryGrowth() {
  const device = openDevice(0)
  const region = device.createGrowableBuffer({ bytes: 2 * MiB, capacityBytes: 32 * MiB })
  const heap = createDeviceHeap(device, region)
  for (const bytes of [6 * MiB, 32 * MiB]) {
    heap.grow(bytes)
    heap.check()
  }
  heap.reset()
  heap.check()
  const { liveBlocks, usedBytes } = heap.statsSync()
  console.log(JSON.stringify({ liveBlocks, usedBytes, faults: 0 }))
  device.close()
}

/** Stamps a block that lies behind the end of its allocation. */
function writeOutOfBounds() {
  const { device, run } = openTrials()
  const bytes = 1 * MiB - 256 // the memory behind it is unused, since the driver rounds up to 512
  const [memory, blocks] = [device.driver.cuMemAlloc(bytes), device.driver.cuMemAlloc(8)]
  device.driver.cuMemcpyHtoD(blocks, BigUint64Array.of(BigInt(memory + bytes)))
  run('stamp', 0, blocks, 1, 16, 16, 0, 0)
  try {
    device.synchronize()
  } catch {
    // Whether the launch fails is the sanitizer's choice.
  }
}

/**
 * Runs a program of this file in a process under a tool of the sanitizer, and returns its findings, or why it cannot
 * run.
 */
function sanitized(tool: string, program: Program): { failed: boolean; output: string } | string {
  const self = fileURLToPath(import.meta.url)
  const options = ['--tool', tool, '--error-exitcode', '3', '--print-limit', '20']
  const found = runTool('compute-sanitizer', ...options, process.execPath, self, program)
  if (found === null) return 'the compute sanitizer is not installed'
  if (/not supported/i.test(found.output)) return `the compute sanitizer does not know this device: ${found.output}`
  return found
}

const program = process.argv[2]
if (program === undefined) {
  describe('the verification kernels under the compute sanitizer', { skip: trialsPtx() === null && NO_TRIALS }, () => {
    it('a write out of bounds is found', t => {
      const found = sanitized('memcheck', 'out of bounds')
      if (typeof found === 'string') return t.skip(found)
      assert.match(found.output, /Invalid __global__ write of size 4 bytes/)
      assert.doesNotMatch(found.output, /ERROR SUMMARY: 0 errors/)
      assert.equal(found.failed, true)
    })

    for (const [tool, program] of RUNS) {
      it(`${tool} has nothing to say about ${program}`, t => {
        const found = sanitized(tool, program)
        if (typeof found === 'string') return t.skip(found)
        assert.equal(found.failed, false, found.output)
        assert.match(found.output, /SUMMARY: 0 (errors|hazards)/)
        const [line] = /^\{.*\}$/m.exec(found.output) ?? assert.fail(found.output)
        assert.deepEqual(JSON.parse(line), { liveBlocks: 0, usedBytes: 0, faults: 0 })
      })
    }
  })
} else PROGRAMS[program as Program]()
