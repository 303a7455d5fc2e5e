import { assert } from '../core/base/assert.js'
import { BITMAP_BYTES, bytesOfClass, CLASSES, DEVICE_HEAP, heapStats, SUPERBLOCK_BYTES } from './device-layout.js'
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
  const members = new Array<number>(CLASSES + 1).fill(0)
  let [blocks, bytes] = [0, 0]
  let runEnd = 0
  for (let superblock = 0; superblock < limit; superblock++) {
    const word = superblockWord(u32(tables.wordAt(superblock)), u32(tables.wordAt(superblock) + 4))
    const bitmap = copy.subarray(copy.length - (superblock + 1) * BITMAP_BYTES).subarray(0, BITMAP_BYTES)
    const { taken, end } = bitsOf(bitmap)
    const sets = Array.from({ length: CLASSES + 1 }, (_, set) => set).filter(set => isIn(set, superblock))
    for (const set of sets) {
      members[set]++
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
    assert(view.getInt32(tables.countAt(set), true) === members[set], 'the number of a set is how many it has')
  }
  const { liveBlocks, liveBytes } = heapStats(copy)
  assert(liveBlocks === blocks, 'allocations less frees are the blocks in use')
  assert(liveBytes === bytes, 'live bytes are those of the blocks in use')
}

/** The number of set bits, and the index behind the last of them. */
function bitsOf(bitmap: Uint8Array): { taken: number; end: number } {
  let [taken, end] = [0, 0]
  for (let at = 0; at < bitmap.length; at++) {
    if (bitmap[at] !== 0) end = 8 * at + 32 - Math.clz32(bitmap[at])
    for (let bits = bitmap[at]; bits !== 0; bits &= bits - 1) taken++
  }
  return { taken, end }
}
