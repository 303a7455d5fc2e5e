// The key of a free block names the stream that used it last: the stream's slot + 1. Key 0 means that the block waits
// for no work. Hot code writes the same sums inline.

export function keyOfSlot(slot: number): number {
  return slot + 1
}

/** The slot of the stream that a key names; the key is not 0. */
export function slotOfKey(key: number): number {
  return key - 1
}
