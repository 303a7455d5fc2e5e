// The machine for GPUs on a simulated device: its idea of the user's order makes right programs, and what is handed
// out too early shows in the contents.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { registerSimulatedKernel, SimulatedDriver } from '../src/entries/simulated.js'
import { openDevice } from '../src/index.js'
import { GpuMachine } from './gpu-machine.js'
import { runOnGpu } from './gpu-program.js'
import { CAPACITY_BYTES, GRANULE_BYTES } from './settings.js'

registerSimulatedKernel('wait_for_gate', () => {})

registerSimulatedKernel('stamp_words', ({ args, memory }) => {
  memory.fill(args.pointer(0), 4 * args.pointer(1), args.uint32(2))
})

registerSimulatedKernel('count_other_words', ({ args, memory }) => {
  const different = memory.countDifferent(args.pointer(0), 4 * args.pointer(1), args.uint32(2))
  memory.store(args.pointer(3), Uint32Array.of(different))
})

function machineFor(seed: number): GpuMachine {
  const capacityBytes = CAPACITY_BYTES * 3 // plain buffers beside the pools
  return new GpuMachine(openDevice(new SimulatedDriver({ capacityBytes, granularityBytes: GRANULE_BYTES, seed })), 1000)
}

describe('programs checked by contents', () => {
  it('are right ones, one after the other on one device', async () => {
    const machine = machineFor(1)
    for (let seed = 1; seed <= 15; seed++) await runOnGpu(machine, seed, 300)
    machine.device.close()
  })

  it('show a library whose frees are not stamped', async () => {
    const machine = machineFor(2)
    await assert.rejects(async () => {
      for (let seed = 1; seed <= 50; seed++) await runOnGpu(machine, seed, 400, 'a free is stamped')
    }, /words at 0x[0-9a-f]+ were not/)
  })
})
