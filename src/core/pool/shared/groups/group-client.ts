// The memory of a graph group, as one thread of a shared pool sees it: the pool server has it (group-server.ts).

import type { Capture } from '../../../order/capture.js'
import type { Clocks } from '../../../order/clocks.js'
import type { Holding } from '../../../order/holding.js'
import type { SharedGraphGroup } from '../../caching/captures/group-captures.js'
import { GroupOrder } from '../../caching/captures/group-order.js'
import type { BlockUse, GroupFigures, GroupStore } from '../../caching/captures/group-store.js'
import type { ServerClient } from '../server-client.js'
import type { CapturedUse, GroupQuestion, ReserveAnswer, TakeAnswer, TakenBlock } from './group-question.js'
import type { GroupTable } from './group-table.js'
import { PoisonedOrder, type Stretch } from './poisoned-order.js'

/** The pool of a group, in this thread. */
export interface PoolOfGroup {
  readonly clocks: Clocks
  readonly closed: boolean
  /** Throws PoolError in the name of `call` for a closed pool. */
  checkOpen(call: string): void
}

/** The parts of the shared state that a group uses. */
type ThreadState = Parameters<GroupTable['memoryOf']>[1] & { readonly groupTable: GroupTable }

export class GroupClient implements GroupStore {
  readonly order: GroupOrder
  isFull = false
  private readonly table: GroupTable

  constructor(
    readonly pool: PoolOfGroup,
    private readonly server: ServerClient,
    state: ThreadState,
    private readonly shared: SharedGraphGroup,
  ) {
    const { refuses, poison, place } = shared
    this.table = state.groupTable
    const memory = { refuses, ...this.table.memoryOf(place, state) }
    const scratch = { captures: () => this.table.capturesOf(place), idle: () => this.idle() }
    this.order = poison
      ? new PoisonedOrder(pool.clocks, memory, scratch)
      : new GroupOrder(pool.clocks, { ...memory, poison: null })
  }

  get lost(): boolean {
    return this.pool.closed
  }

  get closed(): boolean {
    return !this.table.isOpen(this.shared.place, this.shared.group)
  }

  begin(call: string): number {
    return this.server.ask({ ask: 'groupBegin', group: this.shared.group, call }) as number
  }

  checkEnd(): void {
    this.server.ask({ ask: 'groupCheck', group: this.shared.group })
  }

  end(graph: number, hasGraph: boolean): void {
    this.isFull = false
    this.tell({ ask: 'groupEnd', group: this.shared.group, graph, hasGraph })
  }

  /** A block for work that is captured on the stream of a slot; null without memory. */
  take(capture: Capture, units: number, alignUnits: number, slot: number, use: BlockUse): TakenBlock | null {
    const stamp = capture.marked[slot] + 1
    const known = knownBy(capture, slot)
    const { group } = this.shared
    const answer = this.server.ask({
      ask: 'groupTake',
      group,
      units,
      alignUnits,
      slot,
      stamp,
      known,
      use,
    }) as TakeAnswer
    this.isFull = answer.isFull
    return answer.block
  }

  /** Takes a block back, which the capture may use again after some of its work; for null, later captures alone. */
  free(record: number, after: CapturedUse | null): void {
    this.tell({ ask: 'groupFree', group: this.shared.group, record, after })
  }

  reserve(bytes: number): boolean {
    const answer = this.server.ask({ ask: 'groupReserve', group: this.shared.group, bytes }) as ReserveAnswer
    this.isFull = answer.isFull
    return answer.isDone
  }

  giveBack(): number {
    return this.server.ask({ ask: 'groupTrim', group: this.shared.group }) as number
  }

  close(): void {
    this.server.ask({ ask: 'groupClose', group: this.shared.group })
  }

  figures(): GroupFigures {
    if (this.lost || this.closed) return NOTHING
    return this.server.ask({ ask: 'groupFigures', group: this.shared.group }) as GroupFigures
  }

  /** The graph of a capture cannot be launched without the memory, which this thread's pool has. */
  holdingOf(capture: Capture): Holding {
    const { pool } = this
    return {
      get lost() {
        return pool.closed
      },
      asleep: false,
      release: () => {
        if (!pool.closed) this.end(capture.number, false)
      },
    }
  }

  /** Whether the call that asked last was cut short before it had its answer. */
  get mayStillBeHeard(): boolean {
    return this.server.mayStillBeHeard
  }

  /** Asks for a step that gives something back: nothing is to do once the pool server has ended. */
  private tell(question: GroupQuestion): void {
    try {
      this.server.ask(question)
    } catch (error) {
      if (!this.server.isLost) throw error
    }
  }

  private idle(): Stretch[] {
    const found: Stretch[] = []
    let more: Stretch[]
    do {
      const after = found.at(-1)?.[0] ?? -1
      more = this.server.ask({ ask: 'groupIdle', group: this.shared.group, after }) as Stretch[]
      found.push(...more)
    } while (more.length > 0)
    return found
  }
}

const NOTHING: GroupFigures = { scratchBytes: 0, ownBytes: 0, pinnedBytes: 0, graphs: 0 }

/** The slots whose captured work comes before the next work of a slot, each with the latest stamp that does. */
function knownBy({ known, stride, slotLimit }: Capture, slot: number): number[] {
  const pairs: number[] = []
  for (let earlier = 0; earlier < slotLimit; earlier++) {
    const stamp = known[slot * stride + earlier]
    if (stamp > 0) pairs.push(earlier, stamp)
  }
  return pairs
}
