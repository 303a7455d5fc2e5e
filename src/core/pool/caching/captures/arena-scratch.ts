// An arena as scratch of a graph group. What a capture allocates there is dropped at its end. So each capture begins at
// the height that the stack had when the group was made, and all graphs use the same memory. The group's order keeps
// their launches apart (group-order.ts). Until the group is closed, the arena serves its captures alone.

import { WrongTypeError } from '../../../base/argument-errors.js'
import { describe } from '../../../base/bytes.js'
import { PoolError } from '../../../base/errors.js'
import type { Capture, CaptureMember } from '../../../order/capture.js'
import type { Clocks } from '../../../order/clocks.js'
import type { Holding } from '../../../order/holding.js'
import type { Stream } from '../../../order/stream.js'
import { Pool } from '../../pool.js'
import type { Use } from '../central/deferred.js'
import type { GroupCaptures } from './group-captures.js'

/** The memory of an arena above its present height. */
export interface LentMemory {
  /** the number of the last entry below it */
  readonly entry: number
  /** its address */
  readonly ptr: number
  /** the work that has used it */
  readonly uses: readonly Use[]
}

/** An arena of one thread: an `ArenaPool`. */
export interface ScratchArena {
  /** the present height of its stack, to rewind to */
  mark(): object
  /**
   * Throws PoolError, in the name of `call`, if it cannot be lent to a group of the device now.
   * @internal
   */
  checkLendable(call: string, clocks: Clocks): void
  /**
   * Serves captures of the group alone from now on.
   * @internal
   */
  lend(scratch: ArenaScratch): LentMemory
  /**
   * Drops the entries above `entry`, which a capture has made; returns the bytes from there on that it used.
   * @internal
   */
  dropCaptured(entry: number): number
}

/** Throws TypeError or PoolError for anything but an arena of one thread that can be lent now. */
export function checkScratchArena(call: string, arena: ScratchArena, clocks: Clocks): void {
  if (!(arena instanceof Pool)) {
    throw new WrongTypeError(`${call}: arena must be an arena of createArenaPool, not ${describe(arena)}`)
  }
  if (arena.checkLendable === undefined) {
    throw new PoolError(`${call}: arena must be an arena of one thread; pass one of createArenaPool`)
  }
  arena.checkLendable(call, clocks)
}

export class ArenaScratch implements CaptureMember {
  /** true once the arena is closed, or an ordinary one again */
  lost = false
  /** the numbers of the captures and open graphs that have memory of it */
  private readonly graphs = new Set<number>()
  /** the memory that graphs of the group write */
  readonly ptr: number
  bytes = 0
  private readonly entry: number

  /** The arena must be lendable. */
  constructor(
    private readonly arena: ScratchArena,
    readonly group: GroupCaptures,
  ) {
    const { entry, ptr, uses } = arena.lend(this)
    this.entry = entry
    this.ptr = ptr
    for (const use of uses) group.order.add(use)
  }

  /** Whether the group is closed: no graph uses the arena any more, except in launches under way. */
  get isOver(): boolean {
    const { closed, lost } = this.group.store
    return closed || lost
  }

  /** The latest launch of the group, which comes after all others; null for none. */
  get launch(): Use | null {
    return this.group.order.launch
  }

  /** Whether the group captures a stream. */
  captures({ capture }: Pick<Stream, 'capture'>): boolean {
    return capture !== null && capture.group === this.group
  }

  /** Whether a graph uses the arena, which then has the memory. */
  isUsedBy(graph: number): boolean {
    return this.graphs.has(graph)
  }

  /** A capture of the group is about to get memory. */
  serve(capture: Capture): void {
    if (capture.members.has(this)) return
    capture.members.add(this)
    capture.holdings.add(this.holdingOf(capture.number))
    this.graphs.add(capture.number)
  }

  checkEnd(): void {}

  end(): void {
    if (!this.lost) this.bytes = Math.max(this.bytes, this.arena.dropCaptured(this.entry))
  }

  /** Stands in a graph for the arena. */
  private holdingOf(graph: number): Holding {
    const scratch = this
    return {
      get lost() {
        return scratch.lost
      },
      asleep: false, // a region that sleeps is known to the graph by its pool
      release: () => this.graphs.delete(graph),
    }
  }
}
