// What the shipped kernels of cuda/control.cu do on the simulated device.

import { registerSimulatedKernel } from '../driver/simulated/kernels.js'
import { DEVICE_HEAP, DEVICE_POOL } from './device-layout.js'
import { SimulatedArena, SimulatedHeap } from './simulated-memory.js'

registerSimulatedKernel('bump_initialise', ({ args, memory }) => {
  memory.fill(args.pointer(0), DEVICE_POOL.byteLength, 0)
  const arena = new SimulatedArena(memory, args.pointer(0))
  arena.setU64(DEVICE_POOL.base, args.pointer(1))
  arena.setU64(DEVICE_POOL.limit, args.pointer(2))
  arena.setU64(DEVICE_POOL.reserved, args.pointer(3))
})

registerSimulatedKernel('bump_reset', ({ args, memory }) => {
  const arena = new SimulatedArena(memory, args.pointer(0))
  arena.setU64(DEVICE_POOL.peak, Math.max(arena.u64(DEVICE_POOL.peak), arena.u64(DEVICE_POOL.offset)))
  arena.setU64(DEVICE_POOL.failures, 0)
  arena.setU64(DEVICE_POOL.offset, 0)
})

registerSimulatedKernel('bump_grow', ({ args, memory }) => {
  const arena = new SimulatedArena(memory, args.pointer(0))
  arena.setU64(DEVICE_POOL.limit, Math.max(arena.u64(DEVICE_POOL.limit), args.pointer(1)))
})

registerSimulatedKernel('heap_initialise', ({ args, memory }) => {
  const heap = new SimulatedHeap(memory, args.pointer(0))
  heap.setU64(DEVICE_HEAP.base, args.pointer(1))
  heap.setU32(DEVICE_HEAP.reserved, args.uint32(2))
  heap.setU32(DEVICE_HEAP.limit, args.uint32(3))
  heap.setU32(DEVICE_HEAP.slotMask, args.uint32(4))
  heap.clear(args.uint32(2), args.uint32(3))
})

registerSimulatedKernel('heap_reset', ({ args, memory }) => {
  const heap = new SimulatedHeap(memory, args.pointer(0))
  heap.clear(heap.u32(DEVICE_HEAP.reserved), heap.u32(DEVICE_HEAP.limit))
})

registerSimulatedKernel('heap_grow', ({ args, memory }) => {
  new SimulatedHeap(memory, args.pointer(0)).extend(args.uint32(1))
})
