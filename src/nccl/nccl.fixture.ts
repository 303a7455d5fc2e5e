// Two devices of a driver, each a rank of one world, for tests of NCCL's contract. Nothing here knows whether NCCL is
// simulated.

import assert from 'node:assert/strict'
import { setTimeout } from 'node:timers/promises'
import { bfloat16, float16 } from '../core/base/small-floats.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_STREAM_NON_BLOCKING } from '../core/driver/constants.js'
import type { Driver } from '../core/driver/driver.js'
import { NCCL_RESULT, NCCL_TYPES, type NcclType, UNIQUE_ID_BYTES } from './constants.js'
import { Cell, type Nccl } from './nccl.js'

/** A driver with at least two devices, and NCCL on it. */
export interface NcclMachine {
  readonly driver: Driver
  readonly nccl: Nccl
}

const ARRAYS = {
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float32: Float32Array,
  float64: Float64Array,
} as const

/** Numbers as elements of a type. */
export function encode(type: NcclType, values: readonly number[]): Uint8Array {
  const view = (array: ArrayBufferView) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
  if (type === 'float16') return view(float16.encode(values))
  if (type === 'bfloat16') return view(bfloat16.encode(values))
  if (type === 'int64') return view(BigInt64Array.from(values, BigInt))
  if (type === 'uint64') return view(BigUint64Array.from(values, BigInt))
  return view(ARRAYS[type].from(values))
}

/** Elements of a type as numbers. */
export function decode(type: NcclType, bytes: Uint8Array): number[] {
  const { buffer } = bytes.slice()
  if (type === 'float16') return [...float16.decode(new Uint16Array(buffer))]
  if (type === 'bfloat16') return [...bfloat16.decode(new Uint16Array(buffer))]
  if (type === 'int64') return Array.from(new BigInt64Array(buffer), Number)
  if (type === 'uint64') return Array.from(new BigUint64Array(buffer), Number)
  return [...new ARRAYS[type](buffer)]
}

/** An id of NCCL's. */
export function newId(nccl: Nccl): Uint8Array {
  const id = new Uint8Array(UNIQUE_ID_BYTES)
  assert.equal(nccl.ncclGetUniqueId(id), NCCL_RESULT.ncclSuccess)
  return id
}

/** The state by ncclCommGetAsyncError. */
export function stateOf(nccl: Nccl, comm: number): number {
  const state = new Cell()
  assert.equal(nccl.ncclCommGetAsyncError(comm, state), NCCL_RESULT.ncclSuccess)
  return state.value
}

/** Waits until no communicator is in progress; returns their states. A join may write another communicator. */
export async function settled(nccl: Nccl, comms: readonly Cell[]): Promise<number[]> {
  for (;;) {
    const states = comms.map(({ value }) => stateOf(nccl, value))
    if (!states.includes(NCCL_RESULT.ncclInProgress)) return states
    await setTimeout(1)
  }
}

/** One rank: its device, and a communicator, a stream and memory on it. */
export class RankOfTest {
  private cleanups: (() => void)[] = []

  constructor(
    readonly driver: Driver,
    readonly device: number,
    readonly context: number,
    readonly stream: number,
    /** its communicator */
    readonly cell: Cell,
  ) {}

  get comm(): number {
    return this.cell.value
  }

  /** Makes the context of the rank current. */
  enter(): this {
    this.driver.cuCtxSetCurrent(this.context)
    return this
  }

  /** Memory of `mappings` mappings one behind another, each of `bytes` rounded up, that NCCL can register. */
  map(bytes: number, mappings = 1, handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR): number {
    const { driver, device } = this.enter()
    const granule = driver.cuMemGetAllocationGranularity(device)
    const size = Math.ceil(bytes / granule) * granule
    const base = driver.cuMemAddressReserve(size * mappings, 0)
    this.cleanups.push(() => driver.cuMemAddressFree(base, size * mappings))
    for (let ptr = base; ptr < base + size * mappings; ptr += size) {
      const handle = driver.cuMemCreate(size, device, handleTypes)
      driver.cuMemMap(ptr, size, handle)
      driver.cuMemRelease(handle)
      this.cleanups.push(() => driver.cuMemUnmap(ptr, size))
    }
    driver.cuMemSetAccess(base, size * mappings, [device])
    return base
  }

  /** Memory of cuMemAlloc. */
  allocate(bytes: number): number {
    const { driver } = this.enter()
    const ptr = driver.cuMemAlloc(bytes)
    this.cleanups.push(() => driver.cuMemFree(ptr))
    return ptr
  }

  /** Memory of cuMemAlloc with these elements. */
  place(type: NcclType, values: readonly number[]): number {
    const ptr = this.allocate(Math.max(1, values.length * NCCL_TYPES[type].bytes))
    this.write(ptr, type, values)
    return ptr
  }

  write(ptr: number, type: NcclType, values: readonly number[]): void {
    this.enter().driver.cuMemcpyHtoD(ptr, encode(type, values))
    this.driver.cuCtxSynchronize()
  }

  /** The elements, once all work of the stream is complete. */
  read(ptr: number, type: NcclType, count: number): number[] {
    const { driver } = this.enter()
    driver.cuStreamSynchronize(this.stream)
    const bytes = new Uint8Array(count * NCCL_TYPES[type].bytes)
    driver.cuMemcpyDtoH(bytes, ptr)
    return decode(type, bytes)
  }

  /** Gives back all memory, and the stream. */
  release(): void {
    this.enter()
    for (const cleanup of this.cleanups.reverse()) cleanup()
    this.cleanups = []
    this.driver.cuStreamDestroy(this.stream)
    this.driver.cuDevicePrimaryCtxRelease(this.device)
  }
}

/** A world of ranks on the first devices of a machine. */
export class WorldOfTest {
  private constructor(
    readonly driver: Driver,
    readonly nccl: Nccl,
    readonly ranks: readonly RankOfTest[],
  ) {}

  /** Joins `count` ranks. */
  static async join({ driver, nccl }: NcclMachine, count = 2): Promise<WorldOfTest> {
    const world = WorldOfTest.begin({ driver, nccl }, count)
    assert.deepEqual(await world.settle(), Array(count).fill(NCCL_RESULT.ncclSuccess))
    return world
  }

  /** The same without waiting. `deviceOf` has the device of each rank. */
  static begin(
    { driver, nccl }: NcclMachine,
    count = 2,
    deviceOf: (rank: number) => number = rank => rank,
  ): WorldOfTest {
    const id = newId(nccl)
    assert.equal(nccl.ncclGroupStart(), NCCL_RESULT.ncclSuccess)
    const ranks = Array.from({ length: count }, (_, rank) => {
      const device = driver.cuDeviceGet(deviceOf(rank))
      const context = driver.cuDevicePrimaryCtxRetain(device)
      driver.cuCtxSetCurrent(context)
      const comm = new Cell()
      nccl.ncclCommInitRankConfig(comm, count, id, rank)
      return new RankOfTest(driver, device, context, driver.cuStreamCreate(CU_STREAM_NON_BLOCKING), comm)
    })
    nccl.ncclGroupEnd()
    return new WorldOfTest(driver, nccl, ranks)
  }

  settle(): Promise<number[]> {
    return settled(
      this.nccl,
      this.ranks.map(({ cell }) => cell),
    )
  }

  /** Makes calls of all ranks in one group, and waits until NCCL has submitted them. */
  async group(call: (rank: RankOfTest, number: number) => void): Promise<void> {
    assert.equal(this.nccl.ncclGroupStart(), NCCL_RESULT.ncclSuccess)
    for (const [number, rank] of this.ranks.entries()) call(rank, number)
    const result = this.nccl.ncclGroupEnd()
    assert.ok(result === NCCL_RESULT.ncclSuccess || result === NCCL_RESULT.ncclInProgress, this.why(result))
    assert.deepEqual(await this.settle(), Array(this.ranks.length).fill(NCCL_RESULT.ncclSuccess))
  }

  /** For messages: a result in words. */
  why(result: number): string {
    return `${this.nccl.ncclGetErrorString(result)}: ${this.nccl.ncclGetLastError(this.ranks[0].comm)}`
  }

  /** Ends all communicators, and gives back all memory. */
  async close(): Promise<void> {
    this.nccl.ncclGroupStart()
    for (const { comm } of this.ranks) this.nccl.ncclCommFinalize(comm)
    this.nccl.ncclGroupEnd()
    assert.deepEqual(await this.settle(), Array(this.ranks.length).fill(NCCL_RESULT.ncclSuccess))
    for (const rank of this.ranks) {
      assert.equal(this.nccl.ncclCommDestroy(rank.enter().comm), NCCL_RESULT.ncclSuccess)
      rank.release()
    }
  }

  /** Aborts all communicators, and gives back all memory. */
  abort(): void {
    for (const rank of this.ranks) {
      assert.equal(this.nccl.ncclCommAbort(rank.enter().comm), NCCL_RESULT.ncclSuccess)
    }
    for (const rank of this.ranks) rank.release()
  }
}
