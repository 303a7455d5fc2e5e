// A pool in debug mode finds three mistakes: a kernel that writes one word too many, a use of freed memory, and work on
// a stream that does not wait for the allocation. See docs/debugging.md, and leaks.ts for buffers that are never freed.
// In a clone: npm run build && node dist/examples/debug.js

import { DebugError, openDevice } from 'cuda-mempool'
import { registerSimulatedKernel, threadCount } from 'cuda-mempool/simulated'

/** One thread for each word: writes the number of the thread. */
const PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry count_up(.param .u64 words)
{
  .reg .b32 %thread;
  .reg .b64 %words, %at;
  ld.param.u64 %words, [words];
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %at, %thread, 4;
  add.u64 %at, %words, %at;
  st.u32 [%at], %thread;
  ret;
}
`
registerSimulatedKernel('count_up', ({ shape, args, memory }) => {
  memory.store(
    args.pointer(0),
    Uint32Array.from({ length: threadCount(shape) }, (_, thread) => thread),
  )
})

using device = openDevice('auto')
using pool = device.createPool({ debug: true })
using stream = device.createStream()
using other = device.createStream()
using module = device.loadModule(PTX)
const countUp = module.kernel('count_up')

/** Prints the fault that the pool finds, without the folders of this program. */
function attempt(mistake: () => void): void {
  try {
    mistake()
    console.log('nothing was found')
  } catch (error) {
    if (!(error instanceof DebugError)) throw error
    console.log(`${error.fault}: ${error.message.replace(/\w+:\/\/\S*\//g, '')}\n`)
  }
}

const words = pool.allocateArray(Uint32Array, 100, stream)
countUp.launch({ grid: 1, block: 101, stream }, words)
attempt(() => words.free())
words.free() // a fault is reported once

attempt(() => words.fill(0))

using late = pool.allocate(400, stream)
attempt(() => countUp.launch({ grid: 1, block: 100, stream: other }, late))
