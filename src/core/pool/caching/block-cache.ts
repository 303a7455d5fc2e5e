import type { Admission } from '../../heap/free-run.js'

/**
 * The cache of blocks in front of a pool's heaps, as the code behind it sees it. It keeps blocks that were freed on a
 * stream whole for that stream. Two classes implement it: `StreamCaches` for one thread, and `ThreadCaches` for
 * several.
 */
export interface BlockCache {
  /** stream slots that have or had blocks are below this */
  readonly slotLimit: number
  /** If true, the cache is drained before the pool grows; if false, only when it cannot grow. */
  readonly isWorthDraining: boolean
  /** Whether no block is cached; missing where other threads cache blocks at any time. */
  readonly isEmpty?: boolean
  /** The most units that were in use, once a request of `units` is served, too. */
  mostUsedUnits(units: number): number
  /**
   * Sets whether only small blocks are cached; true if that is new. Missing where threads have caches of their own.
   */
  setTight?(isTight: boolean): boolean
  /** A stream slot has blocks from now on. */
  includeSlot(slot: number): void
  /** A heap has handed out a block for the stream; the bytes that the user asked for are not known yet. */
  handOut(slot: number, record: number): void
  /** A block is about to go back to a heap, or to wait for that. */
  handBack(record: number): void
  /** Units cached for one stream. */
  cachedUnits(slot: number): number
  /**
   * Takes out a block that another stream caches: of at least `units`, in their class, with an admitted stamp; or
   * returns 0.
   */
  takeAdmitted(slot: number, units: number, admission: Admission): number
  /** Takes out all cached blocks in the classes from `first` to before `end`; their records name the streams. */
  drainAll(first: number, end: number): number[]
}
