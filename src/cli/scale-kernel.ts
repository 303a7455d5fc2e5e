// The demo's kernel: multiplies each of `count` floats by `factor`, one thread for each float. The function below
// replaces it on the simulated device, which does not run PTX.

import { registerSimulatedKernel, threadCount } from '../core/driver/simulated-kernels.js'

export const SCALE_PTX = `
.version 6.4
.target sm_52
.address_size 64

.visible .entry scale(.param .u64 data, .param .f32 factor, .param .u32 count)
{
  .reg .pred %outside;
  .reg .f32 %factor, %value;
  .reg .b32 %block, %threads, %thread, %index, %count;
  .reg .b64 %data, %offset, %address;

  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %threads, %thread;
  ld.param.u32 %count, [count];
  setp.ge.u32 %outside, %index, %count;
  @%outside ret;

  ld.param.u64 %data, [data];
  ld.param.f32 %factor, [factor];
  cvta.to.global.u64 %data, %data;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %address, %data, %offset;
  ld.global.f32 %value, [%address];
  mul.f32 %value, %value, %factor;
  st.global.f32 [%address], %value;
  ret;
}
`

registerSimulatedKernel('scale', ({ shape, args, memory }) => {
  const [data, factor] = [args.pointer(0), args.float32(1)]
  const values = memory.load(Float32Array, data, Math.min(args.uint32(2), threadCount(shape)))
  memory.store(
    data,
    values.map(value => value * factor),
  )
})
