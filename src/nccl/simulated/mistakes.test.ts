// Mistakes that hang, corrupt memory or crash with libnccl. Here each is loud, and says what is wrong.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../core/base/bytes.js'
import { CudaError } from '../../core/base/errors.js'
import { CU_STREAM_CAPTURE_MODE_RELAXED } from '../../core/driver/constants.js'
import { NCCL_OPS, NCCL_TYPES, WINDOW_SYMMETRIC } from '../constants.js'
import { Cell } from '../nccl.js'
import { allReduce, openWorld, register, type SimulatedWorld } from './world.fixture.js'

const BYTES = 2 * MiB
const F32 = NCCL_TYPES.float32.type

/** Registers a window on both ranks. */
async function openWindows({ nccl, world }: SimulatedWorld, bytes = BYTES, mappings = 1): Promise<number[]> {
  const ptrs = world.ranks.map(rank => rank.map(bytes / mappings, mappings))
  await world.group((rank, number) => {
    nccl.ncclCommWindowRegister(rank.enter().comm, ptrs[number], bytes, new Cell(), WINDOW_SYMMETRIC)
  })
  return ptrs
}

/** Each mistake, and a part of its message. */
const MISTAKES: readonly [string, RegExp, (opened: SimulatedWorld) => unknown, number?][] = [
  [
    'a use of registered memory that was unmapped',
    /ncclAllReduce uses 0x\w+, which was unmapped or freed while it was registered/,
    ({ nccl, driver, first }) => {
      const ptr = first.map(BYTES)
      register(nccl, first, ptr, BYTES)
      driver.cuMemUnmap(ptr, BYTES)
      allReduce(nccl, first, ptr)
    },
  ],
  [
    'a use of registered memory that was mapped anew at the same address',
    /unmapped or freed while it was registered/,
    ({ nccl, driver, first }) => {
      const ptr = first.map(BYTES)
      register(nccl, first, ptr, BYTES)
      driver.cuMemUnmap(ptr, BYTES)
      driver.cuMemMap(ptr, BYTES, driver.cuMemCreate(BYTES, first.device, 1))
      driver.cuMemSetAccess(ptr, BYTES, [first.device])
      allReduce(nccl, first, ptr)
    },
  ],
  [
    'a second deregistration',
    /ncclCommDeregister: there is no segment 0x\w+, or it was deregistered before/,
    ({ nccl, first }) => {
      const handle = register(nccl, first, first.map(BYTES), BYTES)
      assert.equal(nccl.ncclCommDeregister(first.comm, handle), 0)
      nccl.ncclCommDeregister(first.comm, handle)
    },
  ],
  [
    'a deregistration after the unmap',
    /ncclCommDeregister: the memory at 0x\w+ was unmapped or freed before its segment/,
    ({ nccl, driver, first }) => {
      const ptr = first.map(BYTES)
      const handle = register(nccl, first, ptr, BYTES)
      driver.cuMemUnmap(ptr, BYTES)
      nccl.ncclCommDeregister(first.comm, handle)
    },
  ],
  [
    'registering memory before the device has access',
    /ncclCommRegister: device 0 has no access to 0x/,
    ({ nccl, driver, first }) => {
      const ptr = driver.cuMemAddressReserve(BYTES, 0)
      driver.cuMemMap(ptr, BYTES, driver.cuMemCreate(BYTES, first.device, 1))
      register(nccl, first, ptr, BYTES)
    },
  ],
  [
    'registering addresses without memory',
    /ncclCommRegister: nothing is mapped in 4194304 bytes from 0x/,
    ({ nccl, first }) => register(nccl, first, first.map(BYTES), 2 * BYTES),
  ],
  [
    'registering memory during a capture',
    /ncclCommRegister in a capture of rank 0 of 2/,
    ({ nccl, driver, first }) => {
      const ptr = first.map(BYTES)
      driver.cuStreamBeginCapture(first.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
      register(nccl, first, ptr, BYTES)
    },
  ],
  [
    'registering a window during a capture',
    /ncclCommWindowRegister in a capture of rank 0 of 2/,
    ({ nccl, driver, first }) => {
      const ptr = first.map(BYTES)
      driver.cuStreamBeginCapture(first.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
      nccl.ncclCommWindowRegister(first.comm, ptr, BYTES, new Cell(), WINDOW_SYMMETRIC)
    },
  ],
  [
    'a window that one rank does not make',
    /call 1 of rank 1 of 2 is ncclAllReduce of 1 float32 by sum, but of rank 0 ncclCommWindowRegister of 2097152 bytes/,
    ({ nccl, first, second }) => {
      nccl.ncclCommWindowRegister(first.comm, first.map(BYTES), BYTES, new Cell(), WINDOW_SYMMETRIC)
      allReduce(nccl, second, second.place('float32', [1]))
    },
  ],
  [
    'windows of different sizes',
    /but of rank 0 ncclCommWindowRegister of 2097152 bytes/,
    ({ nccl, first, second }) => {
      nccl.ncclCommWindowRegister(first.comm, first.map(BYTES), BYTES, new Cell(), WINDOW_SYMMETRIC)
      nccl.ncclCommWindowRegister(second.comm, second.map(2 * BYTES), 2 * BYTES, new Cell(), WINDOW_SYMMETRIC)
    },
  ],
  [
    'a window of memory that cannot be exported',
    /ncclCommWindowRegister hangs: 0x\w+ cannot be exported/,
    ({ nccl, first }) => {
      nccl.ncclCommWindowRegister(first.comm, first.map(BYTES, 1, 0), BYTES, new Cell(), WINDOW_SYMMETRIC)
    },
  ],
  [
    'a second window over the same memory',
    /is in a window already/,
    async opened => {
      const [ptr] = await openWindows(opened)
      opened.nccl.ncclCommWindowRegister(opened.first.comm, ptr, BYTES, new Cell(), WINDOW_SYMMETRIC)
    },
  ],
  [
    'different offsets in a window',
    /by sum at offset 4096 of window 0 and offset 4096 of window 0, but of rank 0 .* at offset 0 of window 0/,
    async opened => {
      const ptrs = await openWindows(opened)
      await opened.world.group((rank, number) => allReduce(opened.nccl, rank, ptrs[number] + 4096 * number))
    },
  ],
  [
    'a window over several mappings in 2.28',
    /ncclCommWindowRegister of 2 mappings from 0x\w+ kills the context in NCCL 2.28/,
    opened => openWindows(opened, 2 * BYTES, 2),
  ],
  [
    'a use of registered memory behind its first mapping, before 2.29',
    /registered memory of several mappings: before NCCL 2.29 other ranks reach only the first/,
    ({ nccl, first }) => {
      const ptr = first.map(BYTES, 2)
      register(nccl, first, ptr, 2 * BYTES)
      allReduce(nccl, first, ptr + BYTES)
    },
  ],
  [
    'different counts',
    /call 1 of rank 1 of 2 is ncclAllReduce of 2 float32 by sum, but of rank 0 ncclAllReduce of 1 float32 by sum/,
    ({ nccl, first, second }) => {
      allReduce(nccl, first, first.place('float32', [1]))
      allReduce(nccl, second, second.place('float32', [1, 2]), 2)
    },
  ],
  [
    'different types',
    /is ncclBroadcast of 1 int32 from rank 0, but of rank 0 ncclBroadcast of 1 float32 from rank 0/,
    ({ nccl, first, second }) => {
      for (const [rank, type] of [[first, 'float32'] as const, [second, 'int32'] as const]) {
        const ptr = rank.place(type, [1])
        nccl.ncclBroadcast(ptr, ptr, 1, NCCL_TYPES[type].type, 0, rank.comm, rank.stream)
      }
    },
  ],
  [
    'different orders in a group',
    /the ranks call NCCL in different orders/,
    ({ nccl, world }) =>
      world.group(({ comm, stream, allocate }, number) => {
        const ptr = allocate.call(world.ranks[number], 64)
        const calls = [
          () => nccl.ncclAllReduce(ptr, ptr, 1, F32, NCCL_OPS.max, comm, stream),
          () => nccl.ncclAllGather(ptr + 4 * number, ptr, 1, F32, comm, stream),
        ]
        for (const call of number === 0 ? calls : calls.reverse()) call()
      }),
  ],
  [
    'a use of a destroyed communicator',
    /ncclAllReduce: the communicator was destroyed or aborted before/,
    async ({ nccl, world, first }) => {
      const ptr = first.place('float32', [1])
      await world.close()
      allReduce(nccl, first, ptr)
    },
  ],
  [
    'a function that the version lacks',
    /NCCL 2.28.9 lacks ncclCommSuspend, which came with 2.29.7/,
    ({ nccl, first }) => nccl.ncclCommSuspend(first.comm, 1),
  ],
]

for (const [name, message, make] of MISTAKES) {
  test(`${name} is a mistake`, async () => {
    const opened = await openWorld()
    await assert.rejects(async () => await make(opened), { name: 'NcclMistake', message })
  })
}

test('a mistake ends all use of the library', async () => {
  const { nccl, first } = await openWorld()
  assert.throws(() => nccl.ncclCommDeregister(first.comm, 12), { name: 'NcclMistake' })
  assert.throws(() => nccl.ncclCommAbort(first.comm), { name: 'NcclMistake', message: /there is no segment 0xc/ })
})

test('a host wait for a rank of the same thread that has not called is an error', async () => {
  const { nccl, driver, world, first } = await openWorld()
  const ptr = first.place('float32', [1])
  allReduce(nccl, first, ptr)
  await world.settle()
  assert.throws(() => driver.cuStreamSynchronize(first.enter().stream), {
    name: 'EndlessWait',
    message:
      /rank 0 of 2 waits in ncclAllReduce of 1 float32 by sum for rank 1, which this thread drives, too, and which has/,
  })
  assert.equal(nccl.ncclCommAbort(first.comm), 0)
  assert.deepEqual(first.read(ptr, 'float32', 1), [1])
})

test('a message of another size than its receive ends the context of the receiver', async () => {
  const { nccl, driver, world, first, second } = await openWorld()
  const source = first.place('float32', [1])
  const target = second.place('float32', [1, 2])
  const exchanged = world.group(({ comm, stream }, number) => {
    if (number === 0) nccl.ncclSend(source, 1, F32, 1, comm, stream)
    else nccl.ncclRecv(target, 2, F32, 0, comm, stream)
  })
  const message = /rank 1 of 2 receives a message of 2 float32 from rank 0, which sends 1 float32/
  await assert.rejects(exchanged, { name: 'NcclMistake', message })
  assert.throws(
    () => driver.cuStreamSynchronize(second.enter().stream),
    (error: unknown) => error instanceof CudaError && message.test(error.message),
  )
})

test('a launch of a graph whose registered memory was unmapped ends its context', async () => {
  const { nccl, driver, world, first, second } = await openWorld({}, { progress: 'seeded' })
  const ptr = first.map(BYTES)
  const other = second.map(BYTES)
  const executables = await captured(opened => allReduce(nccl, opened, opened === first ? ptr : other), world)
  register(nccl, first, ptr, BYTES)
  driver.cuMemUnmap(ptr, BYTES)
  for (const [number, rank] of world.ranks.entries()) {
    driver.cuCtxSetCurrent(rank.context)
    driver.cuGraphLaunch(executables[number], rank.stream)
  }
  assert.throws(() => driver.cuStreamSynchronize(first.enter().stream), /was unmapped or freed while it was registered/)
})

/** Captures what each rank calls in one group; returns the executable graphs. */
async function captured(
  call: (rank: SimulatedWorld['first']) => unknown,
  world: SimulatedWorld['world'],
): Promise<number[]> {
  const { driver } = world
  for (const rank of world.ranks) driver.cuStreamBeginCapture(rank.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
  await world.group(call)
  return world.ranks.map(rank => driver.cuGraphInstantiate(driver.cuStreamEndCapture(rank.enter().stream)))
}
