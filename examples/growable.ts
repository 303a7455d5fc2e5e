// A buffer that grows in place from 1 MiB to 100 MiB. A kernel numbers its words before it grows. Afterwards they are
// still there at the same address, and the kernel numbers the new words. Another kernel counts wrong words. Then most
// memory is given back, and the rest is verified once more.
// In a clone: npm run build && node dist/examples/growable.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'
import { registerSimulatedKernel } from 'cuda-mempool/simulated'

// One thread for each word: its index is global, from `first` to before `end`.
const begin = `
  .reg .pred %outside, %same;
  .reg .b32 %block, %threads, %thread, %index, %end, %value;
  .reg .b64 %data, %offset, %counter;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %threads, %thread;
  ld.param.u32 %value, [first];
  add.u32 %index, %index, %value;
  ld.param.u32 %end, [end];
  setp.ge.u32 %outside, %index, %end;
  @%outside ret;
  ld.param.u64 %data, [data];
  cvta.to.global.u64 %data, %data;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %data, %data, %offset;`

const PTX = `
.version 6.4
.target sm_52
.address_size 64
.visible .entry number_words(.param .u64 data, .param .u32 first, .param .u32 end)
{${begin}
  st.global.u32 [%data], %index;
  ret;
}
.visible .entry count_wrong_words(.param .u64 data, .param .u32 first, .param .u32 end, .param .u64 counter)
{${begin}
  ld.global.u32 %value, [%data];
  setp.eq.u32 %same, %value, %index;
  @%same ret;
  ld.param.u64 %counter, [counter];
  cvta.to.global.u64 %counter, %counter;
  red.global.add.u32 [%counter], 1;
  ret;
}
`

// These functions replace the kernels on the simulated device, which does not run PTX.
registerSimulatedKernel('number_words', ({ args, memory }) => {
  const [data, first, end] = [args.pointer(0), args.uint32(1), args.uint32(2)]
  memory.store(
    data + first * 4,
    new Uint32Array(end - first).map((_, index) => first + index),
  )
})
registerSimulatedKernel('count_wrong_words', ({ args, memory }) => {
  const [data, first, end, counter] = [args.pointer(0), args.uint32(1), args.uint32(2), args.pointer(3)]
  const wrong = memory.load(Uint32Array, data + first * 4, end - first).filter((word, index) => word !== first + index)
  const [before = 0] = memory.load(Uint32Array, counter, 1)
  memory.store(counter, new Uint32Array([before + wrong.length]))
})

using device = openDevice('auto')
using stream = device.createStream()
using module = device.loadModule(PTX)
const [numberWords, countWrongWords] = [module.kernel('number_words'), module.kernel('count_wrong_words')]
using wrong = device.createPool().allocateArray(Uint32Array, 1, stream)
wrong.fill(0)

using buffer = device.createGrowableBuffer({ bytes: 1 * MiB, capacityBytes: 1024 * MiB, stream })
using head = buffer.array(Uint32Array) // stays valid while the buffer grows
const { ptr } = buffer

/** Runs a kernel over the words from `first` on, with one thread for each. */
function launch(kernel: typeof numberWords, first: number, ...more: (typeof wrong)[]) {
  const end = buffer.byteLength / 4
  kernel.launch({ grid: Math.ceil((end - first) / 256), block: 256, stream }, buffer, first, end, ...more)
}

launch(numberWords, 0)
launch(countWrongWords, 0, wrong)
for (const bytes of [2 * MiB, 10 * MiB, 100 * MiB]) {
  const first = buffer.byteLength / 4
  buffer.grow(bytes) // while the kernels above may still run
  launch(numberWords, first)
  launch(countWrongWords, 0, wrong)
  console.log(`${formatBytes(bytes)} at ${buffer.ptr === ptr ? 'the same address' : 'another address'}`)
}
buffer.shrink(1 * MiB) // the kernels may still run here, too: the memory goes back when they are done
await buffer.settled()
launch(countWrongWords, 0, wrong)

const [count] = await wrong.read()
const [last] = await head.subarray(-1).read()
console.log(`${device.name}: ${count} words were wrong, the last of the first MiB is ${last}`)
console.log(`${formatBytes(buffer.mappedBytes)} of ${formatBytes(buffer.capacityBytes)} reserved are still mapped`)
if (count !== 0 || buffer.ptr !== ptr) process.exitCode = 1
