// A thread allocates and frees with its own stacks. A second thread takes blocks away like the pool server, and a
// third allocates those blocks from the heap.

import { assert } from '../../../src/core/base/assert.js'
import { Double, Word } from '../../../src/core/heap/records.js'
import { CLASSES } from '../../../src/core/heap/size-classes.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import type { TransferredBuffer } from '../../../src/core/pool/transferred-buffer.js'
import { type Cast, pause, type Scenario } from '../stage.js'
import { BYTES, checkAll, servedPool } from './shared-pool.js'

const BLOCKS = 4

function front(isFenced: boolean): Cast {
  const made = servedPool(2 * BLOCKS, { isFenced })
  const { pool, held, take, give } = made
  const other = made.attach(false, () => made.server.serve())
  const state = made.newState()
  const { words, doubles } = state.records
  const clocks = pool.clocks
  /** on their way from the third thread to the first one */
  const sent: TransferredBuffer[] = []
  /** written and read around a message, which is seen after all that was stored before it */
  const messages = new Int32Array(new SharedArrayBuffer(4))
  /** by record: the stamp of the last free */
  const stamps = new Map<number, number>()
  let working = 3
  let drained = 0
  const free = (buffer: DeviceBuffer) => {
    give(buffer)
    stamps.set(buffer.record, clocks.marked[0] + 1)
    buffer.free()
  }
  for (const [index, buffer] of held.entries()) {
    take(buffer, 0) // every other block stays where it is, so that none is merged
    if (index % 2 === 0) free(buffer)
  }
  const hit = () => {
    for (let turn = 0; turn < 5; turn++) {
      const one = sent.shift()
      if (one !== undefined) Atomics.load(messages, 0)
      const buffer = one === undefined ? pool.allocate(BYTES) : pool.adopt(one)
      take(buffer, 1)
      clocks.marked[0]++
      free(buffer)
    }
    working--
  }
  const drain = () => {
    for (let turn = 0; turn < 2; turn++) {
      state.locked(() => {
        for (const record of state.caches.drainAll(0, CLASSES)) {
          const stamp = doubles[(record << 3) | Double.stamp]
          assert(stamp === stamps.get(record), 'a cached block says which work it waits for')
          state.memory.giveToHeap(record, words[(record << 4) | Word.key] - 1, stamp)
          drained++
        }
      })
      pause()
    }
    working--
  }
  const miss = () => {
    while (drained === 0 && working === 3) pause()
    for (let turn = 0; turn < 3; turn++) {
      const buffer = other.allocate(BYTES)
      take(buffer, 2)
      if (turn === 0) {
        give(buffer)
        const transferred = buffer.transfer()
        Atomics.add(messages, 0, 1)
        sent.push(transferred)
      } else held.push(buffer)
    }
    working--
  }
  const end = () => {
    assert(working === 0, 'every thread comes to its end')
    for (const one of sent) pool.adopt(one).free()
    for (const buffer of held) if (!buffer.freed) buffer.free()
    state.registry.forget(state.thread)
    other.close()
    checkAll(made)
  }
  return { threads: [hit, drain, miss], end }
}

export const scenarios: Record<string, Scenario> = {
  'what a thread has the pool server does not take': { isLarge: true, begin: () => front(false) },
  'what a thread has the pool server does not take, where threads make barriers': {
    isLarge: true,
    begin: () => front(true),
  },
}
