// Kernels of the simulated device that allocate from arenas and heaps of kernels.

import { KiB } from '../src/core/base/bytes.js'
import { type DeviceArena, type DeviceHeap, SimulatedArena, SimulatedHeap } from '../src/entries/kernels.js'
import type { Device, DevicePointer } from '../src/index.js'

const SOURCE = `
#include "cuda_mempool.cuh"
extern "C" __global__ void take(DeviceArena *arena, unsigned bytes, void **blocks, unsigned count);
extern "C" __global__ void allocate(DeviceHeap *heap, unsigned bytes, void **blocks, unsigned count);
extern "C" __global__ void give_back(DeviceHeap *heap, void **blocks, unsigned count);`

/** Kernels that take blocks and give them back; the blocks' addresses are in device memory. */
export function takeAndGiveBack(device: Device) {
  const module = device.compileKernels(SOURCE, {
    simulated: {
      take: ({ args, memory }) => {
        const arena = new SimulatedArena(memory, args.pointer(0))
        const blocks = Array.from({ length: args.uint32(3) }, () => BigInt(arena.allocate(args.uint32(1))))
        memory.write(args.pointer(2), new Uint8Array(BigUint64Array.from(blocks).buffer))
      },
      allocate: ({ args, memory }) => {
        const heap = new SimulatedHeap(memory, args.pointer(0))
        const blocks = Array.from({ length: args.uint32(3) }, () => BigInt(heap.allocate(args.uint32(1))))
        memory.write(args.pointer(2), new Uint8Array(BigUint64Array.from(blocks).buffer))
      },
      give_back: ({ args, memory }) => {
        const heap = new SimulatedHeap(memory, args.pointer(0))
        const words = memory.load(Uint32Array, args.pointer(1), 2 * args.uint32(2))
        for (let at = 0; at < words.length; at += 2) heap.free(words[at + 1] * 2 ** 32 + words[at])
      },
    },
  })
  const pool = device.createPool()
  const blocks = pool.allocate(64 * KiB)
  const launch = (name: string, ...args: (DevicePointer | number)[]) =>
    module.kernel(name).launch({ grid: 1, block: 32 }, ...args)
  const addresses = (count: number) => {
    const words = new Uint32Array(blocks.readSync(0, 8 * count).buffer)
    return Array.from({ length: count }, (_, index) => words[2 * index + 1] * 2 ** 32 + words[2 * index])
  }
  return {
    take(arena: DeviceArena, bytes: number, count: number): number[] {
      launch('take', arena, bytes, blocks, count)
      return addresses(count)
    },
    allocate(heap: DeviceHeap, bytes: number, count: number): number[] {
      launch('allocate', heap, bytes, blocks, count)
      return addresses(count)
    },
    free(heap: DeviceHeap, addresses: readonly number[]): void {
      blocks.writeSync(BigUint64Array.from(addresses.map(BigInt)))
      launch('give_back', heap, blocks, addresses.length)
      device.synchronize() // the counters are read beside it
    },
  }
}
