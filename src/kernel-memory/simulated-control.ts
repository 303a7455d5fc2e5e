// The shipped kernels of cuda/control.cu, as functions for the simulated device.

import { registerSimulatedKernel } from '../core/driver/simulated-kernels.js'
import { DEVICE_HEAP, DEVICE_POOL } from './device-layout.js'
import { Fields, SimulatedHeap } from './simulated-memory.js'

registerSimulatedKernel('bump_initialise', ({ args, memory }) => {
  memory.fill(args.pointer(0), DEVICE_POOL.byteLength, 0)
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.base, args.pointer(1))
  fields.setU64(DEVICE_POOL.limit, args.pointer(2))
  fields.setU64(DEVICE_POOL.reserved, args.pointer(3))
})

registerSimulatedKernel('bump_reset', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.peak, Math.max(fields.u64(DEVICE_POOL.peak), fields.u64(DEVICE_POOL.offset)))
  fields.setU64(DEVICE_POOL.failures, 0)
  fields.setU64(DEVICE_POOL.offset, 0)
})

registerSimulatedKernel('bump_grow', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.limit, Math.max(fields.u64(DEVICE_POOL.limit), args.pointer(1)))
})

registerSimulatedKernel('heap_initialise', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_HEAP.base, args.pointer(1))
  fields.setU32(DEVICE_HEAP.reserved, args.uint32(2))
  fields.setU32(DEVICE_HEAP.limit, args.uint32(3))
  fields.setU32(DEVICE_HEAP.claimed, args.uint32(3))
  fields.setU32(DEVICE_HEAP.slotMask, args.uint32(4))
  new SimulatedHeap(memory, args.pointer(0)).clear()
})

registerSimulatedKernel('heap_reset', ({ args, memory }) => {
  new SimulatedHeap(memory, args.pointer(0)).clear()
})

registerSimulatedKernel('heap_grow', ({ args, memory }) => {
  new SimulatedHeap(memory, args.pointer(0)).extend(args.uint32(1))
})
