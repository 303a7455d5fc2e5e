// All-reduces of two GPUs in one thread, by turns in one process: through Communicator, and through NCCL called bare on
// the same communicators and on a second pair, made by NCCL's defaults; the host's time for a call; plain
// memory, registered memory and symmetric arenas; allocations of registered pools. Run: node dist/bench/nccl.js
// [--device 0,1] [--smoke] [--save DIR]. On the simulated device it only shows that it runs: its times mean nothing.

import { formatBytes, KiB, MiB } from '../src/core/base/bytes.js'
import { registerSimulatedKernel } from '../src/core/driver/simulated-kernels.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { Communicator } from '../src/nccl/communicator.js'
import { NCCL_OPS, NCCL_RESULT, NCCL_TYPES, UNIQUE_ID_BYTES, versionText } from '../src/nccl/constants.js'
import { Cell, type Nccl } from '../src/nccl/nccl.js'
import { openNcclLibrary } from '../src/nccl/nccl-library.js'
import { headline, machineOf, median, save } from './machine.js'
import { benchmark, devicePairOf, optionsOf } from './options.js'

const program = benchmark('all-reduces of two GPUs, through communicators and through NCCL called bare').option(
  '--device <which>',
  "two GPUs' numbers such as 0,1, auto or simulated; default CUDA_MEMPOOL_DEVICE",
)
const values = optionsOf(program)
const devices = devicePairOf(program)
if (devices === null) {
  console.log('this needs two GPUs')
  process.exit()
}
const BATCHES = values.smoke ? 2 : 15
const SIZES = values.smoke ? [8 * KiB] : [8 * KiB, 64 * KiB, 256 * KiB, 1 * MiB, 4 * MiB, 16 * MiB, 64 * MiB, 256 * MiB]
const WAY_SIZES = values.smoke ? [8 * KiB] : [8 * KiB, 256 * KiB, 4 * MiB, 64 * MiB]
const HOST_BYTES = 8 * KiB
/** Few enough that no call waits for room in the queues of the GPUs. */
const HOST_GROUPS = values.smoke ? 2 : 100
const HOST_BATCHES = values.smoke ? 2 : 50
const ALLOCATION_BYTES = 4 * KiB
const ALLOCATIONS = values.smoke ? 10 : 20_000
/** Bytes of a buffer: 0.747 as a float32, whose double is exact. */
const FILL = 0x3f
const FLOAT = new Float32Array(Uint8Array.of(FILL, FILL, FILL, FILL).buffer)[0]

/** Calls of one batch: many small ones, few large ones. */
const callsOf = (bytes: number) => (values.smoke ? 2 : Math.max(10, Math.min(100, Math.floor((256 * MiB) / bytes))))
/** How long the GPUs are kept busy while the host submits a batch: more than the host needs. */
const busyNs = (calls: number) => (values.smoke ? 1000 : 500_000 + 100_000 * calls)

const SPIN = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry bench_spin(.param .u64 ns)
{
  .reg .pred %again;
  .reg .b64 %ns, %begin, %passed;
  ld.param.u64 %ns, [ns];
  mov.u64 %begin, %globaltimer;
spin:
  mov.u64 %passed, %globaltimer;
  sub.u64 %passed, %passed, %begin;
  setp.lt.u64 %again, %passed, %ns;
  @%again bra spin;
  ret;
}
`
registerSimulatedKernel('bench_spin', () => {})

/** The memory that both ranks send and receive. */
interface Memory {
  readonly send: readonly DeviceBuffer[]
  readonly receive: readonly DeviceBuffer[]
}

/** One way to make an all-reduce of both ranks. */
interface Subject {
  readonly name: string
  readonly memory: Memory
  allReduce(memory: Memory): void
}

const ranks = devices.map(device => ({
  device,
  stream: device.createStream(),
  spin: device.loadModule(SPIN).kernel('bench_spin'),
  start: device.createEvent({ timing: true }),
  end: device.createEvent({ timing: true }),
}))
const comms = await Communicator.joinAll(devices)
const { nccl } = comms[0]

/** One communicator for each rank, and NCCL. */
interface Bare {
  readonly name: string
  readonly nccl: Nccl
  readonly handles: readonly number[]
}

const bares: Bare[] = [{ name: 'NCCL bare', nccl, handles: comms.map(({ handle }) => handle) }]
if (!devices[0].simulated) bares.push(defaultPair())

/** Communicators as NCCL makes them by default, without this package. */
function defaultPair(): Bare {
  const { functions } = openNcclLibrary()
  const [id, cells] = [new Uint8Array(UNIQUE_ID_BYTES), ranks.map(() => new Cell())]
  check(nccl, nccl.ncclGetUniqueId(id))
  check(nccl, nccl.ncclGroupStart())
  for (const [rank, cell] of cells.entries()) {
    ranks[rank].device.context.activate()
    check(nccl, functions.ncclCommInitRankConfig(cell.words, ranks.length, { internal: id }, rank, null))
  }
  check(nccl, nccl.ncclGroupEnd())
  return { name: 'NCCL bare, on communicators of its own', nccl, handles: cells.map(cell => cell.value) }
}

function check({ ncclGetErrorString }: Nccl, result: number): void {
  if (result !== NCCL_RESULT.ncclSuccess) throw new Error(`NCCL bare: ${ncclGetErrorString(result)}`)
}

const ours = ({ send, receive }: Memory) =>
  Communicator.group(() => {
    for (const [rank, comm] of comms.entries()) {
      comm.allReduce(send[rank], receive[rank], { op: 'sum', type: 'float32', stream: ranks[rank].stream })
    }
  })

/** The same calls without the package. */
function bareAllReduce({ nccl, handles }: Bare) {
  const { type, bytes } = NCCL_TYPES.float32
  const state = new Cell()
  /** The simulated NCCL may be in progress. */
  const settled = () => {
    for (const handle of handles) {
      do nccl.ncclCommGetAsyncError(handle, state)
      while (state.value === NCCL_RESULT.ncclInProgress)
      if (state.value !== NCCL_RESULT.ncclSuccess) return state.value
    }
    return NCCL_RESULT.ncclSuccess
  }
  return ({ send, receive }: Memory) => {
    let result = nccl.ncclGroupStart()
    for (let rank = 0; rank < handles.length; rank++) {
      const { ptr, byteLength } = send[rank]
      const [count, { handle }] = [byteLength / bytes, ranks[rank].stream]
      result ||= nccl.ncclAllReduce(ptr, receive[rank].ptr, count, type, NCCL_OPS.sum, handles[rank], handle)
    }
    result ||= nccl.ncclGroupEnd()
    check(nccl, result === NCCL_RESULT.ncclInProgress ? settled() : result)
  }
}

function memoryOf(bytes: number, allocate: (rank: number, bytes: number) => DeviceBuffer): Memory {
  const both = () =>
    ranks.map((_, rank) => {
      const buffer = allocate(rank, bytes)
      buffer.fill(FILL)
      return buffer
    })
  return { send: both(), receive: both() }
}

function fromPools(pools: readonly CachingPool[]) {
  return (rank: number, bytes: number) => pools[rank].allocate(bytes, ranks[rank].stream)
}

function free({ send, receive }: Memory): void {
  for (const buffer of [...send, ...receive]) buffer.free()
}

function synchronize(): void {
  for (const { stream } of ranks) stream.synchronize()
}

interface Times {
  readonly deviceUs: number
  readonly wallUs: number
}

/** Microseconds of an all-reduce: by events of the first GPU, which is busy while the host submits, and in all. */
function batch({ memory, allReduce }: Subject, calls: number): Times {
  synchronize()
  for (const { stream, spin, start } of ranks) {
    spin.launch({ grid: 1, block: 1, stream }, busyNs(calls))
    start.record(stream)
  }
  for (let call = 0; call < calls; call++) allReduce(memory)
  for (const { stream, end } of ranks) end.record(stream)
  synchronize()
  const deviceUs = (ranks[0].end.elapsedSince(ranks[0].start) * 1000) / calls
  const before = performance.now()
  for (let call = 0; call < calls; call++) allReduce(memory)
  synchronize()
  return { deviceUs, wallUs: ((performance.now() - before) * 1000) / calls }
}

/** Calls `measure` for the subjects by turns: forwards, then backwards. The first turn warms up and is left out. */
function byTurns<S, T>(turns: number, subjects: readonly S[], measure: (subject: S) => T): T[][] {
  const measured = subjects.map((): T[] => [])
  const forwards = [...subjects.entries()]
  for (let turn = 0; turn <= turns; turn++) {
    for (const [index, subject] of turn % 2 === 0 ? forwards : [...forwards].reverse()) {
      const result = measure(subject)
      if (turn > 0) measured[index].push(result)
    }
  }
  return measured
}

/** Medians of the subjects. The first one connects the ranks. */
function compare(bytes: number, subjects: readonly Subject[]) {
  const calls = callsOf(bytes)
  const times = byTurns(BATCHES, subjects, subject => batch(subject, calls))
  const rows = subjects.map(({ name, memory }, index) => {
    const [first] = new Float32Array(memory.receive[1].readSync(bytes - 4).buffer)
    if (first !== FLOAT * comms.length) throw new Error(`${name}, ${bytes} bytes: the sum is ${first}`)
    const medianOf = (of: (each: Times) => number) => Number(median(times[index].map(of)).toFixed(3))
    return { name, deviceUs: medianOf(each => each.deviceUs), wallUs: medianOf(each => each.wallUs) }
  })
  return { bytes, calls, rows }
}

/** Through Communicator and bare, over the same memory, which no communicator has registered. */
function beside(pools: readonly CachingPool[]) {
  return SIZES.map(bytes => {
    const memory = memoryOf(bytes, fromPools(pools))
    const others = bares.map(bare => ({ name: bare.name, memory, allReduce: bareAllReduce(bare) }))
    const result = compare(bytes, [{ name: 'Communicator', memory, allReduce: ours }, ...others])
    free(memory)
    const [mine, ...theirs] = result.rows
    return {
      ...result,
      deviceRatios: theirs.map(({ deviceUs }) => mine.deviceUs / deviceUs),
      wallRatios: theirs.map(({ wallUs }) => mine.wallUs / wallUs),
    }
  })
}

/** Microseconds of the host for one of the two calls of a group, while the streams run. */
function hostCost(pools: readonly CachingPool[]) {
  const memory = memoryOf(HOST_BYTES, fromPools(pools))
  const times = byTurns(HOST_BATCHES, [ours, ...bares.map(bareAllReduce)], allReduce => {
    allReduce(memory)
    const before = performance.now()
    for (let group = 0; group < HOST_GROUPS; group++) allReduce(memory)
    const us = ((performance.now() - before) * 1000) / (HOST_GROUPS * comms.length)
    synchronize()
    return us
  })
  free(memory)
  const [communicatorUs, ...bareUs] = times.map(each => Number(median(each).toFixed(3)))
  return { communicatorUs, bareUs, beyondUs: bareUs.map(each => Number((communicatorUs - each).toFixed(3))) }
}

/** The same all-reduces over memory that NCCL does not know, that it has registered, and in its windows. */
async function ways(plain: readonly CachingPool[], registered: readonly CachingPool[]) {
  const bytes = 4 * (WAY_SIZES.reduce((sum, each) => sum + each, 0) + MiB)
  const arenas = await Promise.all(comms.map(comm => comm.createSymmetricArena({ bytes })))
  const rows = WAY_SIZES.map(size => {
    const memories = [
      ['plain', memoryOf(size, fromPools(plain))],
      ['registered', memoryOf(size, fromPools(registered))],
      ['symmetric arena', memoryOf(size, (rank, length) => arenas[rank].allocate(length, ranks[rank].stream))],
    ] as const
    const result = compare(
      size,
      memories.map(([name, memory]) => ({ name, memory, allReduce: ours })),
    )
    for (const [, memory] of memories) free(memory)
    const [first, , last] = result.rows
    return { ...result, arenaTimesPlain: [last.deviceUs / first.deviceUs] }
  })
  for (const arena of arenas) arena.close()
  return rows
}

/** Nanoseconds of an allocation and a free from the cache, of a pool that is registered and of one that is not. */
function allocationCost(plain: CachingPool, registered: CachingPool) {
  const times = byTurns(BATCHES, [registered, plain], pool => {
    const before = performance.now()
    for (let each = 0; each < ALLOCATIONS; each++) pool.allocate(ALLOCATION_BYTES, ranks[0].stream).free()
    return ((performance.now() - before) * 1e6) / ALLOCATIONS
  })
  const [registeredNs, plainNs] = times.map(each => Number(median(each).toFixed(1)))
  return { bytes: ALLOCATION_BYTES, registeredNs, plainNs }
}

const poolsOf = () => ranks.map(({ device }) => device.createPool({ backing: 'registrable' }))
const [plain, registered] = [poolsOf(), poolsOf()]
for (const [rank, comm] of comms.entries()) comm.register(registered[rank])
const calls = beside(plain)
const host = hostCost(plain)
const memories = await ways(plain, registered)
const allocation = allocationCost(plain[0], registered[0])

const machine = { ...machineOf(devices[0]), nccl: versionText(nccl.version) }
console.log(headline(machine, 'its times mean nothing'), `NCCL ${machine.nccl}`)
console.log(`medians of ${BATCHES} batches, µs an all-reduce: on the device, and in all`)
for (const { bytes, rows, ...ratios } of [...calls, ...memories]) {
  const shown = rows.map(({ name, deviceUs, wallUs }) => `${name} ${deviceUs.toFixed(1)}, ${wallUs.toFixed(1)}`)
  const last = Object.entries(ratios).flatMap(([name, each]) =>
    typeof each === 'number' ? [] : `${name} ${each.map(ratio => ratio.toFixed(3)).join(', ')}`,
  )
  console.log(`  ${formatBytes(bytes).padEnd(9)}${[...shown, ...last].join('; ')}`)
}
const named = (us: readonly number[]) => us.map((each, index) => `${bares[index].name} ${each}`).join(', ')
console.log(`host, µs a call: ${host.communicatorUs}; ${named(host.bareUs)}; beyond ${named(host.beyondUs)}`)
console.log(`allocate and free, ns: ${allocation.registeredNs} registered, ${allocation.plainNs} not`)
const parameters = { batches: BATCHES, hostBatches: HOST_BATCHES, hostGroups: HOST_GROUPS, allocations: ALLOCATIONS }
const result = { machine, parameters, calls, host, memories, allocation }
save(values.save, machine.simulated ? 'simulated-nccl' : 'h200-nccl', result)
for (const { nccl, handles } of bares.slice(1)) for (const handle of handles) nccl.ncclCommAbort(handle)
await Promise.all(comms.map(comm => comm.close()))
for (const device of devices) device.close()
