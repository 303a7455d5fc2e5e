// A random program on a heap of kernels. HEAP_FUZZ_SEED replays.

import assert from 'node:assert/strict'
import { it } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { createDeviceHeap } from '../src/entries/kernels.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { openDevice } from '../src/index.js'
import { takeAndGiveBack } from './device-memory.fixture.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)

it(`a heap of kernels stays whole through a random program (HEAP_FUZZ_SEED=${SEED})`, () => {
  using device = openDevice(new SimulatedDriver())
  const { allocate, free } = takeAndGiveBack(device)
  const random = new Random(SEED)
  const region = device.createPool().allocate(3 * MiB + 256)
  const heap = createDeviceHeap(device, region)
  const held: number[] = []
  for (let step = 0; step < 60; step++) {
    const bytes = 2 ** random.below(18) + random.below(100)
    held.push(...allocate(heap, bytes, 1 + random.below(20)).filter(address => address !== 0))
    const given: number[] = []
    while (held.length > 0 && random.below(10) !== 0) given.push(held.splice(random.below(held.length), 1)[0])
    if (given.length > 0) free(heap, given.slice(0, 8000))
    heap.check()
    assert.equal(heap.statsSync().liveBlocks, held.length)
  }
  assert.equal(heap.statsSync().doubleFrees, 0)
})
