import { assert } from '../core/base/assert.js'
import {
  BATCH,
  BITMAP_BYTES,
  bytesOfClass,
  CLASSES,
  DEVICE_HEAP,
  LARGE,
  STRIPE,
  STRIPES,
  SUPERBLOCK_BYTES,
} from './device-layout.js'
import { heapStats } from './heap-stats.js'
import { capacityOfClass, HeapTables, IDLE_SET, Place, State, superblockWord } from './heap-tables.js'

/**
 * Asserts that the tables of a DeviceHeap, the bitmaps of its superblocks and its counters agree, while no kernel
 * uses the heap. `copy` has everything before superblock 0: the structure, the tables and the bitmaps.
 */
export function checkHeap(copy: Uint8Array): void {
  const view = new DataView(copy.buffer, copy.byteOffset, copy.byteLength)
  const u32 = (at: number) => view.getUint32(at, true)
  const limit = u32(DEVICE_HEAP.limit)
  const tables = new HeapTables(u32(DEVICE_HEAP.reserved))
  const isIn = (set: number, superblock: number) =>
    ((u32(tables.bitsAt(set, superblock)) >>> (superblock % 32)) & 1) === 1
  const words = Array.from({ length: CLASSES + 1 }, () => new Set<number>())
  let idle = 0
  let [blocks, bytes] = [0, 0]
  let runEnd = 0
  for (let superblock = 0; superblock < limit; superblock++) {
    const wordAt = HeapTables.wordAt(superblock)
    const word = superblockWord(u32(wordAt), u32(wordAt + 4))
    const { taken, end } = bitsOf(copy, superblock)
    const sets = Array.from({ length: CLASSES + 1 }, (_, set) => set).filter(set => isIn(set, superblock))
    for (const set of sets) {
      words[set].add(Math.floor(superblock / 64))
      if (set === IDLE_SET) idle++
      const summary = u32(tables.summaryAt(set, superblock)) >>> (Math.floor(superblock / 64) % 32)
      assert((summary & 1) === 1, 'the summary of a set has a bit for each word with members')
    }
    assert(word.state === State.Small || taken === 0, 'only blocks have a bit in the bitmap')
    if (superblock < runEnd) {
      assert(word.state === State.Idle && sets.length === 0, 'only the first superblock of a run says what it is')
    } else if (word.state === State.Run) {
      runEnd = superblock + word.length
      assert(sets.length === 0 && runEnd <= limit, 'a run is in no set')
      blocks++
      bytes += word.length * SUPERBLOCK_BYTES
    } else if (word.state === State.Idle) {
      assert(sets.length === 1 && sets[0] === IDLE_SET, 'an unused superblock is among the idle ones')
      assert(word.freeBlocks === 0, 'an idle superblock has no blocks')
    } else {
      const capacity = capacityOfClass(word.sizeClass)
      assert(end <= capacity, 'no bit is set beyond the last block')
      assert(word.freeBlocks === capacity - taken, 'the blocks that are not free are those whose bits are set')
      assert(taken > 0 || word.place === Place.Attached, 'a superblock without blocks in use is idle, but in a slot')
      const listed = word.place === Place.Listed
      assert(
        sets.length === (listed ? 1 : 0) && (!listed || sets[0] === word.sizeClass),
        'a set has what is listed in it',
      )
      assert(word.place !== Place.Loose || word.freeBlocks === 0, 'what has room can be found')
      blocks += taken
      bytes += taken * bytesOfClass(word.sizeClass)
    }
  }
  for (let set = 0; set <= CLASSES; set++) {
    assert(
      view.getInt32(tables.countAt(set), true) === words[set].size,
      'the number of a set is its words with members',
    )
  }
  assert(idleCount(view) === idle, 'the number of idle superblocks is how many there are')
  const { allocations, liveBlocks, liveBytes } = heapStats(copy)
  assert(liveBlocks === blocks && liveBytes === bytes, 'live blocks are those whose bits are set')
  assert(allocations >= blocks, 'no more blocks are in use than were allocated')
}

/** The idle superblocks: those of full batches, and the others that each stripe counted. */
function idleCount(view: DataView): number {
  let count = view.getInt32(DEVICE_HEAP.idleCount, true)
  if (view.getUint32(DEVICE_HEAP.reserved, true) < LARGE) return count
  for (let stripe = 0; stripe < STRIPES; stripe++) {
    count += view.getUint32(DEVICE_HEAP.stripes + stripe * STRIPE.byteLength + STRIPE.returned, true) % BATCH
  }
  return count
}

/** The number of set bits in a superblock's bitmap, and the index behind the last of them. */
function bitsOf(copy: Uint8Array, superblock: number): { taken: number; end: number } {
  let [taken, end] = [0, 0]
  for (let index = 0; index < BITMAP_BYTES; index++) {
    const byte = copy[HeapTables.mapByteAt(superblock, index, copy.length)]
    if (byte === 0) continue
    end = 8 * index + 32 - Math.clz32(byte)
    for (let bits = byte; bits !== 0; bits &= bits - 1) taken++
  }
  return { taken, end }
}
