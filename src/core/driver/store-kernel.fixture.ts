// A kernel for the contract tests, as PTX and as a function that this import registers in its thread.

import { registerSimulatedKernel } from './simulated-kernels.js'

/** Every thread writes `value`. */
export const STORE_PTX = `
.version 6.3
.target sm_52
.address_size 64
.visible .entry driver_suite_store(.param .u64 target, .param .u32 value)
{
  .reg .b32 %value;
  .reg .b64 %target;
  ld.param.u64 %target, [target];
  ld.param.u32 %value, [value];
  st.u32 [%target], %value;
  ret;
}
`
registerSimulatedKernel('driver_suite_store', ({ args, memory }) =>
  memory.store(args.pointer(0), new Uint32Array([args.uint32(1)])),
)
