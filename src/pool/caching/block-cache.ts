/**
 * The cache of blocks in front of a pool's heaps, as what stands behind it sees it: blocks freed on a stream, kept whole
 * for that stream. There are two siblings: `StreamCaches` of one thread, and `ThreadCaches` of several.
 */
export interface BlockCache {
  /** stream slots that have or had blocks are below this */
  readonly slotLimit: number
  /** units that are live now, and the most that were, as far as that was looked at */
  readonly liveUnits: number
  readonly peakUnits: number
  /** If true, the cache is drained before the pool grows; if false, only when it cannot grow. */
  readonly isWorthDraining: boolean
  /** Whether nothing is cached; false where that cannot be told. */
  readonly isEmpty: boolean
  /** A stream slot that has blocks from now on. */
  meet(slot: number): void
  /** A heap has handed out a block for the stream; how many bytes of it are asked for is yet to be noted. */
  handOut(slot: number, record: number): void
  /** A block is about to go back to a heap, or to wait for that. */
  handBack(record: number): void
  /** Units cached for one stream. */
  cachedUnits(slot: number): number
  /** Takes out a block of a class above `sizeClass` and below `end`, the smallest there is; 0 for none. */
  takeLarger(slot: number, sizeClass: number, end: number): number
  /** Takes out a block of at least `units` in their class that waits for at most `stamp`; 0 for none. For other streams than its own. */
  takeOlder(slot: number, units: number, stamp: number): number
  /** Whether a stream caches so many blocks in the classes from `first` to before `end` that a request had better not cost them all. */
  cachesMany(slot: number, first: number, end: number): boolean
  /**
   * Where a stream caches many blocks in the classes from `first` to before `end`: takes out one with room for `units`, or a few that
   * make room with their free neighbours once they are back in their heap; returns them, none where that cannot be.
   */
  takeRoom(slot: number, units: number, first: number, end: number): readonly number[]
  /** Takes out what one stream caches in the classes from `first` to before `end`; returns the blocks. */
  drain(slot: number, first: number, end: number): number[]
}
