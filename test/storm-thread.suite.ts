// A thread of the storm in shared-pool-storm.test.ts: takes and frees buffers, its own and those of others, until it is
// terminated or told to stop. Each 256 bytes that a thread holds have its number on a map, so that an overlap is seen at once.

import { parentPort, workerData } from 'node:worker_threads'
import { KiB, MiB } from '../src/base/bytes.js'
import { Random } from '../src/base/random.js'
import { attachDevice, attachPool, type SharedPoolDescriptor } from '../src/device.js'
import type { DeviceBuffer } from '../src/pool/buffer.js'
import type { TransferredBuffer } from '../src/pool/transferred.js'

export const POOL_BYTES = 32 * MiB
const UNIT_BYTES = 256
/** The pool's ranges of addresses lie within so many units of the lowest one. */
const MAP_UNITS = 1 << 22
const MOST_HELD = 40
const BOARD = 32

/** What the threads share besides the pool. */
export interface Storm {
  readonly pool: SharedPoolDescriptor
  /** by 256 bytes: the thread that holds them */
  readonly map: Int32Array
  /** the address of the map's start */
  readonly base: number
  /** buffers for others to free: a record, or 0 for none or -1 for one that is being written or read; its tag; its bytes */
  readonly board: Int32Array
  /** 1: stop; steps taken by all; buffers taken from the board */
  readonly progress: Int32Array
}
export const enum Progress {
  stop,
  steps,
  adopted,
}

export function newStorm(pool: SharedPoolDescriptor, lowest: number): Storm {
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  const base = lowest - (MAP_UNITS / 2) * UNIT_BYTES
  return { pool, base, map: words(MAP_UNITS), board: words(BOARD * 3), progress: words(4) }
}

/** Puts `to` on the map wherever a buffer lies, where `from` has to be. */
export function redraw({ map, base }: Storm, ptr: number, bytes: number, from: number, to: number): void {
  const start = (ptr - base) / UNIT_BYTES
  const end = start + Math.ceil(bytes / UNIT_BYTES)
  if (start < 0 || end > map.length) throw new Error(`address ${ptr} is not on the map`)
  for (let unit = start; unit < end; unit++) {
    const was = Atomics.exchange(map, unit, to)
    if (was !== from) throw new Error(`unit ${unit} was held by ${was}, not ${from}`)
  }
}

function run(storm: Storm, seed: number): number {
  const { board, progress, map, base } = storm
  const random = new Random(seed)
  const device = attachDevice(storm.pool.device)
  const pool = attachPool(storm.pool)
  parentPort!.postMessage(pool.thread)
  const streams = [device.defaultStream, device.createStream()]
  const held: DeviceBuffer[] = []
  const release = (buffer: DeviceBuffer, holder: number) => {
    redraw(storm, buffer.ptr, buffer.byteLength, holder, 0)
    if (random.below(4) === 0) buffer.free(streams[random.below(2)])
    else buffer.free()
  }
  while (Atomics.load(progress, Progress.stop) === 0) {
    const dice = random.below(16)
    const cell = 3 * random.below(BOARD)
    if (dice < 8 && held.length < MOST_HELD) {
      const bytes = random.below(64) === 0 ? random.logUniform(1 * MiB, 2 * MiB) : random.logUniform(256, 50 * KiB)
      const buffer = pool.tryAllocate(bytes, streams[random.below(2)])
      if (buffer !== null) {
        redraw(storm, buffer.ptr, bytes, 0, pool.thread)
        held.push(buffer)
      }
    } else if (dice < 12 && held.length > 0) {
      release(held.splice(random.below(held.length), 1)[0], pool.thread)
    } else if (dice < 14 && held.length > 0 && Atomics.compareExchange(board, cell, 0, -1) === 0) {
      const buffer = held.splice(random.below(held.length), 1)[0]
      redraw(storm, buffer.ptr, buffer.byteLength, pool.thread, -1)
      const { record, tag } = buffer.transfer()
      board[cell + 1] = tag
      Atomics.store(board, cell, record)
    } else {
      const found = [cell, 3 * random.below(BOARD), 3 * random.below(BOARD)].flatMap(each => takeFrom(storm, each))
      for (const buffer of dice === 15 ? pool.adoptAll(found) : found.map(one => pool.adopt(one))) {
        const holder = map[(buffer.ptr - base) / UNIT_BYTES]
        redraw(storm, buffer.ptr, buffer.byteLength, holder, pool.thread)
        release(buffer, pool.thread)
        Atomics.add(progress, Progress.adopted, 1)
      }
    }
    Atomics.add(progress, Progress.steps, 1)
  }
  return held.length
}

/** What lies in a cell of the board, as a list of one or none. */
function takeFrom({ board, pool }: Storm, cell: number): TransferredBuffer[] {
  const record = Atomics.load(board, cell)
  if (record <= 0 || Atomics.compareExchange(board, cell, record, -1) !== record) return []
  const tag = board[cell + 1]
  Atomics.store(board, cell, 0)
  return [{ pool: pool.number, record, tag }]
}

if (workerData?.storm) {
  const { storm, seed } = workerData as { storm: Storm; seed: number }
  parentPort!.postMessage(run(storm, seed))
}
