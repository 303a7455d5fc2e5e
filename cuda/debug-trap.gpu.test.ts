// Bad frees in kernels compiled with and without CUDA_MEMPOOL_DEBUG on a real GPU: trapped, or counted and ignored. A
// trap loses the context, so each is tried in a process of its own. Without a GPU it fails; without NVRTC it has
// nothing to try.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../src/core/base/bytes.js'
import { NoLibraryError } from '../src/core/base/errors.js'
import { openNvrtc } from '../src/core/libraries/nvrtc.js'
import { createDeviceHeap } from '../src/entries/kernels.js'
import { openDevice } from '../src/index.js'
import { outcome } from '../test/outcome.fixture.js'

// The heap counts or traps the kernel's invalid frees, as `counted` says. Another block keeps the superblock in use.
const BAD_FREES = [
  { what: 'a block that was freed before', counted: 'doubleFrees', frees: 'block' },
  { what: 'a foreign pointer', counted: 'invalidFrees', frees: 'foreign' },
  { what: 'a misaligned pointer', counted: 'invalidFrees', frees: 'kept + 1' },
  { what: 'an interior pointer', counted: 'invalidFrees', frees: 'kept + 16' },
] as const

const NONE = { doubleFrees: 0, invalidFrees: 0, liveBlocks: 1 }

const SOURCE = `
#include "cuda_mempool.cuh"
extern "C" __global__ void bad_free(cuda_mempool::DeviceHeap *heap, char *foreign, unsigned *reached, unsigned which) {
  char *const kept = static_cast<char *>(heap->allocate(64));
  char *const block = static_cast<char *>(heap->allocate(64));
  heap->free(block);
  atomicAdd(reached, 1u);
  char *const bad[] = { ${BAD_FREES.map(({ frees }) => frees).join(', ')} };
  heap->free(bad[which]);
  atomicAdd(reached, 1u);
}`

/** Launches a kernel with a bad free on a heap of its own. */
function launch(index: number, traps: boolean) {
  const device = openDevice(0)
  const stream = device.createStream()
  const module = device.compileKernels(SOURCE, { defines: { CUDA_MEMPOOL_DEBUG: traps } })
  const pool = device.createPool()
  const heap = createDeviceHeap(device, pool.allocate(4 * MiB, stream), { stream })
  const reached = pool.allocateArray(Uint32Array, 1, stream)
  reached.fill(0)
  device.synchronize()
  const kernel = module.kernel('bad_free')
  const again = () => kernel.launch({ grid: 1, block: 1, stream }, heap, reached, reached, index)
  again()
  return { device, stream, pool, heap, reached, again }
}

/** In a process of its own, whose context it loses; prints what the calls after the launch throw. */
async function trap(index: number): Promise<void> {
  const { device, stream, pool, heap, reached, again } = launch(index, true)
  const first = await outcome(() => stream.synchronize())
  const later = {
    launch: await outcome(again),
    stats: await outcome(() => heap.stats()),
    check: await outcome(() => heap.check()),
    read: await outcome(() => reached.read()),
    allocate: await outcome(() => pool.allocate(256 * MiB, stream)),
    synchronize: await outcome(() => device.synchronize()),
  }
  console.log(JSON.stringify({ first, later }))
}

function whyNot(): string | false {
  using device = openDevice(0)
  try {
    openNvrtc(device.driver.cuDriverGetVersion())
    return false
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}

const task = process.argv[2]
if (task === undefined) {
  describe('bad frees on a GPU', { skip: whyNot() }, () => {
    for (const [index, { what, counted }] of BAD_FREES.entries()) {
      it(`${what} is counted and ignored`, () => {
        const { device, stream, heap, reached } = launch(index, false)
        stream.synchronize()
        const { doubleFrees, invalidFrees, liveBlocks } = heap.statsSync()
        assert.deepEqual({ doubleFrees, invalidFrees, liveBlocks }, { ...NONE, [counted]: 1 })
        assert.equal(reached.readSync()[0], 2)
        heap.check()
        device.close()
      })

      it(`${what} ends in the trap of a debug build`, () => {
        const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), `${index}`], { encoding: 'utf8' })
        assert.deepEqual([child.status, child.signal, child.stderr], [0, null, ''])
        const { first, later } = JSON.parse(child.stdout)
        // The device decides which of both it is.
        assert.match(first.join(' '), /^CudaError \w+ CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)$/)
        for (const [call, result] of Object.entries(later)) {
          assert.deepEqual(result, ['DeviceLostError', first[1], first[2]], call)
        }
      })
    }
  })
} else await trap(Number(task))
