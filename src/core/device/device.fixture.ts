// A kernel and a path that the tests of a device share.

import { registerSimulatedKernel } from '../driver/simulated-kernels.js'

/** Names the socket file of shared memory; the simulated device makes none. */
export const PATH = '/tmp/device-test'
/** Adds 1 to each word; the function below runs it on the simulated device. */
export const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry device_test_increment(.param .u64 words, .param .u32 count) { ret; }`

registerSimulatedKernel('device_test_increment', ({ args, memory }) => {
  const [ptr, count] = [args.pointer(0), args.uint32(1)]
  memory.store(
    ptr,
    memory.load(Int32Array, ptr, count).map(word => word + 1),
  )
})
