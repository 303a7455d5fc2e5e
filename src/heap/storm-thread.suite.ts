// A thread of the storm in shared-heap-storm.test.ts: takes and frees blocks, its own and those of others, until it is
// terminated or told to stop. Each unit that a thread holds has its number on a map, so that an overlap is seen at once.

import { parentPort, workerData } from 'node:worker_threads'
import { Random } from '../base/random.js'
import { Word } from './records.js'
import { SharedHeap, type SharedState } from './shared-heap.js'

export const UNITS = 1 << 14
export const STREAMS = 4
const MOST_HELD = 40
const BOARD = 32

/** What the threads share besides the heap. */
export interface Storm {
  readonly state: SharedState
  /** by unit: the thread that holds it */
  readonly map: Int32Array
  /** blocks for others to free: pairs of a record, or 0 for none or -1 for one that is being written or read, and its tag */
  readonly board: Int32Array
  /** 1: stop; steps taken by all; blocks taken from the board */
  readonly progress: Int32Array
}
export const enum Progress {
  stop,
  steps,
  adopted,
}

export interface Handle {
  readonly record: number
  readonly tag: number
}

export function newStorm(state: SharedState): Storm {
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  return { state, map: words(UNITS), board: words(BOARD * 2), progress: words(4) }
}

/** Puts `to` on the map wherever a block lies, where `from` has to be. */
export function redraw(heap: SharedHeap, map: Int32Array, record: number, from: number, to: number): void {
  const start = heap.records.words[(record << 4) | Word.offset]
  const end = start + heap.records.words[(record << 4) | Word.units]
  for (let unit = start; unit < end; unit++) {
    const was = Atomics.exchange(map, unit, to)
    if (was !== from) throw new Error(`unit ${unit} of record ${record} was held by ${was}, not ${from}`)
  }
}

/** Settles what is freed with stamp 1, which is everything. */
export function settleAll(heap: SharedHeap): void {
  for (let stream = 0; stream < STREAMS; stream++) heap.settle(stream, 1)
}

function run({ state, map, board, progress }: Storm, seed: number): Handle[] {
  const random = new Random(seed)
  const heap = new SharedHeap(state)
  parentPort!.postMessage(heap.worker)
  const held: Handle[] = []
  const release = ({ record, tag }: Handle, holder: number) => {
    redraw(heap, map, record, holder, 0)
    if (!heap.free(record, tag, random.below(STREAMS), 1)) throw new Error('a block of its own cannot be freed')
  }
  while (Atomics.load(progress, Progress.stop) === 0) {
    const dice = random.below(16)
    const cell = 2 * random.below(BOARD)
    if (dice < 8 && held.length < MOST_HELD) {
      const record = heap.allocate(random.logUniform(1, 200), random.below(STREAMS))
      if (record === 0) settleAll(heap)
      else {
        redraw(heap, map, record, 0, heap.worker)
        held.push({ record, tag: heap.lastTag })
      }
    } else if (dice < 12 && held.length > 0) {
      release(held.splice(random.below(held.length), 1)[0], heap.worker)
    } else if (dice < 14 && held.length > 0 && Atomics.compareExchange(board, cell, 0, -1) === 0) {
      const { record, tag } = held.splice(random.below(held.length), 1)[0]
      board[cell + 1] = tag
      Atomics.store(board, cell, record)
    } else {
      const record = Atomics.load(board, cell)
      if (record > 0 && Atomics.compareExchange(board, cell, record, -1) === record) {
        const handle = { record, tag: board[cell + 1] }
        Atomics.store(board, cell, 0)
        const holder = map[heap.records.words[(record << 4) | Word.offset]]
        // False for a block whose holder died, and which was reclaimed.
        if (heap.adopt(record, handle.tag, holder)) {
          redraw(heap, map, record, holder, heap.worker)
          release(handle, heap.worker)
          Atomics.add(progress, Progress.adopted, 1)
        }
      }
    }
    Atomics.add(progress, Progress.steps, 1)
  }
  return held
}

if (workerData?.storm) {
  const { storm, seed } = workerData as { storm: Storm; seed: number }
  parentPort!.postMessage(run(storm, seed))
}
