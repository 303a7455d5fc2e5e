// A thread of the storm in shared-pool.storm.test.ts. It allocates, uses and frees buffers, its own and other
// threads', on its own streams and on borrowed ones, until it is terminated or gets the signal to stop. Some of its
// calls are cut short. A map has the number of the holder for each 256 bytes, so that an overlap is noticed at once.

import { parentPort, workerData } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import type { SharedStream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'
import { cutShort } from './storm-cuts.fixture.js'
import { newPosts, StormStreams, unlessEnded } from './storm-streams.fixture.js'

export const POOL_BYTES = 32 * MiB
const UNIT_BYTES = 256
/** The span of the pool's address ranges in units, from the lowest address. */
const MAP_UNITS = 1 << 22
const MOST_HELD = 40
const BOARD = 32

/** The memory that the threads share besides the pool. */
export interface Storm {
  readonly pool: SharedPoolDescriptor
  /** by 256 bytes: the thread that holds them */
  readonly map: Int32Array
  /** the address of the map's start */
  readonly base: number
  /** buffers that any thread may free, three words each: record (0: none, -1: being written or read), tag, bytes */
  readonly board: Int32Array
  /** 1: stop; steps taken by all; buffers taken from the board; calls cut short */
  readonly progress: Int32Array
  /** the posts on which threads lend their streams */
  readonly posts: Int32Array
  readonly gate: SharedStream
}
export const enum Progress {
  stop,
  steps,
  adopted,
  cuts,
}

export function newStorm(pool: SharedPoolDescriptor, lowest: number, gate: SharedStream): Storm {
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  const base = lowest - (MAP_UNITS / 2) * UNIT_BYTES
  return { pool, base, map: words(MAP_UNITS), board: words(BOARD * 3), progress: words(4), posts: newPosts(), gate }
}

/** Writes `to` on the map for all units of a buffer, and asserts that `from` was there. */
function redraw({ map, base }: Storm, ptr: number, bytes: number, from: number, to: number): void {
  const start = (ptr - base) / UNIT_BYTES
  const end = start + Math.ceil(bytes / UNIT_BYTES)
  if (start < 0 || end > map.length) throw new Error(`address ${ptr} is not on the map`)
  for (let unit = start; unit < end; unit++) {
    const was = Atomics.exchange(map, unit, to)
    if (was !== from) throw new Error(`unit ${unit} was held by ${was}, not ${from}`)
  }
}

class StormThread {
  private readonly random: Random
  private readonly pool: SharedPool
  private readonly streams: StormStreams
  readonly held: DeviceBuffer[] = []

  constructor(
    private readonly storm: Storm,
    seed: number,
  ) {
    this.random = new Random(seed)
    const device = attachDevice(storm.pool.device)
    this.pool = attachPool(storm.pool) as SharedPool
    parentPort!.postMessage(this.pool.thread)
    this.streams = new StormStreams(device, storm.posts, storm.gate, this.random)
  }

  step(): void {
    const { random, held } = this
    const dice = random.below(40)
    if (dice < 16 && held.length < MOST_HELD) this.take()
    else if (dice < 22 && held.length > 0) this.release(this.pick())
    else if (dice < 26 && held.length > 0) this.handOver()
    else if (dice < 31) this.adopt(dice === 30)
    else if (dice < 34) this.use(held[random.below(held.length)])
    else if (dice < 37) this.streams.step()
    else if (random.below(8) === 0) this.beCutShort()
  }

  private take(): void {
    const { random, pool, streams } = this
    const bytes = random.below(64) === 0 ? random.logUniform(1 * MiB, 2 * MiB) : random.logUniform(256, 50 * KiB)
    const buffer = unlessEnded(() => pool.tryAllocate(bytes, streams.any()))
    if (buffer === null) return
    redraw(this.storm, buffer.ptr, bytes, 0, pool.thread)
    this.held.push(buffer)
  }

  private pick(): DeviceBuffer {
    return this.held.splice(this.random.below(this.held.length), 1)[0]
  }

  private release(buffer: DeviceBuffer): void {
    const { random, pool, streams } = this
    const { ptr } = buffer
    redraw(this.storm, ptr, buffer.byteLength, pool.thread, 0)
    const dice = random.below(8)
    if (dice < 2) buffer.free(streams.any())
    else if (dice === 2) pool.deallocate(ptr)
    else if (dice === 3) pool.deallocate(ptr, streams.any())
    else buffer.free()
  }

  private handOver(): void {
    const { random, pool, storm } = this
    const { board } = storm
    const cell = 3 * random.below(BOARD)
    if (Atomics.compareExchange(board, cell, 0, -1) !== 0) return
    const buffer = this.pick()
    redraw(storm, buffer.ptr, buffer.byteLength, pool.thread, -1)
    const { record, tag } = buffer.transfer()
    board[cell + 1] = tag
    Atomics.store(board, cell, record)
  }

  /** Takes over buffers of other threads: frees some at once, and passes the rest on later. */
  private adopt(all: boolean): void {
    const { random, pool, storm, held } = this
    const { map, base, progress } = storm
    const found = [0, 1, 2].flatMap(() => takeFrom(storm, 3 * random.below(BOARD)))
    for (const buffer of all ? pool.adoptAll(found) : found.map(one => pool.adopt(one))) {
      const holder = map[(buffer.ptr - base) / UNIT_BYTES]
      redraw(storm, buffer.ptr, buffer.byteLength, holder, pool.thread)
      if (held.length < MOST_HELD && random.below(2) === 0) held.push(buffer)
      else this.release(buffer)
      Atomics.add(progress, Progress.adopted, 1)
    }
  }

  private use(buffer: DeviceBuffer | undefined): void {
    if (buffer === undefined) return
    unlessEnded(() => buffer.fill(1, 0, 16))
    if (this.random.below(2) === 0) unlessEnded(() => buffer.recordUse(this.streams.any()))
  }

  /** Makes calls that are cut short. Then frees buffers that are live but not held: such calls left them. */
  private beCutShort(): void {
    const { pool, random, streams, storm, held } = this
    const some: DeviceBuffer[] = []
    cutShort(() => {
      const buffer = unlessEnded(() => pool.tryAllocate(random.logUniform(256, 50 * KiB), streams.any()))
      if (buffer !== null) some.push(buffer)
      if (random.below(8) === 0) unlessEnded(() => buffer?.recordUse(streams.any()))
      if (random.below(8) === 0) unlessEnded(() => buffer?.fill(1, 0, 16))
      if (some.length > random.below(8)) some.shift()!.free()
      if (random.below(64) === 0) pool.processDeferred()
    }, random)
    pool.processDeferred() // its first question gives back the memory of an allocation that was cut short
    const known = new Set(held.map(buffer => buffer.ptr))
    for (const { thread, ptr, byteLength } of pool.live()) {
      if (thread !== pool.thread || known.has(ptr)) continue
      redraw(storm, ptr, byteLength, 0, pool.thread)
      redraw(storm, ptr, byteLength, pool.thread, 0)
      pool.deallocate(ptr)
    }
    Atomics.add(storm.progress, Progress.cuts, 1)
  }
}

/** The buffer in a cell of the board, as a list of one or none. */
function takeFrom({ board, pool }: Storm, cell: number): TransferredBuffer[] {
  const record = Atomics.load(board, cell)
  if (record <= 0 || Atomics.compareExchange(board, cell, record, -1) !== record) return []
  const tag = board[cell + 1]
  Atomics.store(board, cell, 0)
  return [{ pool: pool.number, record, tag }]
}

if (workerData?.storm) {
  const { storm, seed } = workerData as { storm: Storm; seed: number }
  const { progress } = storm
  const thread = new StormThread(storm, seed)
  while (Atomics.load(progress, Progress.stop) === 0) {
    thread.step()
    Atomics.add(progress, Progress.steps, 1)
  }
  parentPort!.postMessage(thread.held.length)
}
