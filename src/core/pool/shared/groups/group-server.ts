// The graph groups of a pool that threads share, in its pool server: it has their memory, since it alone calls the
// driver for memory. A thread that captures asks it for each block. So no thread shares a heap, and a capture that its
// thread does not end is ended here.

import { PoolError } from '../../../base/errors.js'
import { keyOfSlot, slotOfKey } from '../../../heap/key.js'
import { RecordTable, State } from '../../../heap/records.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Clocks } from '../../../order/clocks.js'
import { MOST_WORKERS, type ThreadRegistry } from '../../../threads/thread-registry.js'
import type { GraphGroups } from '../../caching/captures/graph-groups.js'
import { closedGroup, secondCapture } from '../../caching/captures/group-errors.js'
import type { GroupMemory } from '../../caching/captures/group-memory.js'
import { GroupOrder } from '../../caching/captures/group-order.js'
import type { CentralHeap } from '../../caching/central/central-heap.js'
import type { Waiting } from '../../caching/central/parts.js'
import { Count } from '../shared-report.js'
import { COUNT_LINE } from '../shared-state.js'
import {
  type CapturedUse,
  GROUP_CALLS,
  type GroupName,
  type GroupQuestion,
  type ReserveAnswer,
  type TakeAnswer,
  type TakeQuestion,
} from './group-question.js'
import { type GroupTable, MOST_GROUPS } from './group-table.js'
import type { Stretch } from './poisoned-order.js'

/** The most idle stretches in an answer, which has 16 KiB of text. */
const STRETCHES_AT_A_TIME = 256

/** The parts of the shared state that groups use. */
interface GroupState {
  readonly groupTable: GroupTable
  readonly registry: ThreadRegistry
  readonly thread: number
  readonly counts: Float64Array
}

interface ServedGroup extends GroupName {
  readonly memory: GroupMemory
  readonly records: RecordTable
  /** by graph that is being captured, can be launched or has live blocks: the thread that has captured it */
  readonly makers: Map<number, number>
}

export class GroupServer {
  /** by place */
  private readonly served: (ServedGroup | undefined)[] = []
  /** the number of the latest group */
  private latest = 0

  constructor(
    private readonly state: GroupState,
    private readonly clocks: Clocks,
    private readonly central: CentralHeap,
  ) {}

  *reply(question: GroupQuestion, asker: number): Waiting<unknown> {
    if (question.ask === 'groupCreate') return this.create(question)
    const group = this.groupOf(question)
    const { memory } = group
    switch (question.ask) {
      case 'groupBegin':
        return this.begin(group, asker, question.call)
      case 'groupCheck':
        return yield* memory.checkHeld()
      case 'groupEnd':
        return this.end(group, question.graph, question.hasGraph)
      case 'groupTake':
        return yield* this.take(group, question)
      case 'groupFree':
        return this.free(group, question.record, question.after)
      case 'groupReserve':
        return { isDone: memory.reserve(question.bytes), isFull: memory.isFull } satisfies ReserveAnswer
      case 'groupTrim':
        return memory.giveBack()
      case 'groupFigures':
        return memory.figures()
      case 'groupIdle':
        return this.idle(group, question.after)
      case 'groupClose':
        return this.close(group)
    }
  }

  /** A thread has ended, or leaves: its capture ends, and its graphs can no longer be launched. */
  bury(thread: number): void {
    for (const group of this.served) group?.memory.order.bury(thread)
    for (const group of this.open()) {
      const { memory, makers } = group
      for (const [graph, maker] of makers) {
        if (maker !== thread) continue
        // Captured work never runs, so nothing uses what an unfinished capture has taken.
        if (graph === memory.capturing) for (const record of memory.heldBy(graph)) this.free(group, record, null)
        this.end(group, graph, false)
      }
    }
  }

  /** The number and the bytes of the live blocks of a thread. */
  heldBy(thread: number): { buffers: number; bytes: number } {
    const { counts } = this.state
    const line = thread * COUNT_LINE
    return { buffers: counts[line + Count.groupBuffers], bytes: counts[line + Count.groupBytes] }
  }

  /** The same of all threads. */
  heldByAll(): { buffers: number; bytes: number } {
    const sum = { buffers: 0, bytes: 0 }
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      const { buffers, bytes } = this.heldBy(thread)
      sum.buffers += buffers
      sum.bytes += bytes
    }
    return sum
  }

  /** Takes the live blocks of a thread back, each after the work of its stream so far, or after that of all streams. */
  giveBack(thread: number, afterAll: boolean): void {
    const { clocks } = this
    for (const group of this.open()) {
      const held = recordsOf(group, thread)
      if (held.length === 0) continue
      const own = new Set(held.map(record => slotOfKey(group.records.keyOf(record))))
      for (let slot = 0; slot < clocks.slotLimit; slot++) {
        const stamp = clocks.coveringSoon(slot)
        const isUser = afterAll || own.has(slot)
        if (isUser && stamp > clocks.completed[slot]) group.memory.order.add({ clocks, slot, stamp })
      }
      for (const record of held) this.free(group, record, null)
    }
  }

  private create({ config }: GroupQuestion & { ask: 'groupCreate' }): GroupName {
    const { state, clocks, served, groups } = this
    if (this.freePlace === MOST_GROUPS) groups.giveBack() // closed ones whose launches are complete by now
    const place = this.freePlace
    if (place === MOST_GROUPS) {
      throw new PoolError(`createGraphGroup: the pool has ${MOST_GROUPS} graph groups, which is the limit; close one`)
    }
    const order = new GroupOrder(clocks, {
      refuses: config.refuses,
      poison: null, // this thread launches nothing
      ...state.groupTable.memoryOf(place, state),
    })
    const records = new RecordTable()
    const memory = groups.open(config, order, records)
    const group = ++this.latest
    served[place] = { place, group, memory, records, makers: new Map() }
    state.groupTable.open(place, group)
    return { place, group }
  }

  /** The first place without a group that has memory. */
  private get freePlace(): number {
    let place = 0
    while (this.served[place]?.memory.isGone === false) place++
    return place
  }

  private begin({ memory, makers }: ServedGroup, asker: number, call: string): number {
    if (memory.closed) throw closedGroup(call)
    if (memory.capturing > 0) throw secondCapture(call)
    const graph = memory.begin()
    makers.set(graph, asker)
    return graph
  }

  /** A group is closed also if the driver refuses to take its memory back, which goes later then. */
  private close({ memory, place }: ServedGroup): void {
    try {
      memory.close()
    } finally {
      if (memory.closed) this.state.groupTable.close(place)
    }
  }

  private end(group: ServedGroup, graph: number, hasGraph: boolean): void {
    group.memory.end(graph, hasGraph)
    this.state.groupTable.noteCapture(group.place)
    forgetMaker(group, graph)
  }

  private *take(group: ServedGroup, question: TakeQuestion): Waiting<TakeAnswer> {
    const { memory, records } = group
    const { known, slot } = question
    const admission = new Float64Array(this.clocks.slotLimit + 1)
    for (let index = 0; index < known.length; index += 2) admission[keyOfSlot(known[index])] = known[index + 1]
    admission[0] = Infinity
    admission[keyOfSlot(slot)] = Infinity
    const record = yield* memory.take({ ...question, admission })
    if (record === 0) return { block: null, isFull: memory.isFull }
    records.setKey(record, keyOfSlot(slot))
    records.setState(record, State.live)
    this.count(group, record, 1)
    return { block: { record, address: this.addressOf(records, record) }, isFull: false }
  }

  private free(group: ServedGroup, record: number, after: CapturedUse | null): void {
    const { memory } = group
    const graph = memory.graphOf(record)
    this.count(group, record, -1)
    if (after === null) memory.free(record)
    else memory.freeAfter(record, keyOfSlot(after.slot), after.stamp)
    forgetMaker(group, graph)
  }

  /** Counts a block for the thread that has taken it, or no longer. */
  private count({ memory, makers, records }: ServedGroup, record: number, change: 1 | -1): void {
    const line = makers.get(memory.graphOf(record))! * COUNT_LINE
    this.state.counts[line + Count.groupBuffers] += change
    this.state.counts[line + Count.groupBytes] += change * records.unitsOf(record) * UNIT_BYTES
  }

  private idle({ memory, records }: ServedGroup, after: number): Stretch[] {
    const stretches: Stretch[] = []
    for (const record of memory.idle()) {
      const ptr = this.addressOf(records, record)
      if (ptr > after) stretches.push([ptr, records.unitsOf(record) * UNIT_BYTES])
    }
    return stretches.sort(([a], [b]) => a - b).slice(0, STRETCHES_AT_A_TIME)
  }

  private addressOf(records: RecordTable, record: number): number {
    return this.central.backing.bases[records.rangeOf(record)] + records.offsetOf(record) * UNIT_BYTES
  }

  private groupOf(question: Exclude<GroupQuestion, { ask: 'groupCreate' }>): ServedGroup {
    const found = this.open().find(({ group }) => group === question.group)
    if (found === undefined) throw closedGroup(GROUP_CALLS[question.ask])
    return found
  }

  /** The groups that are open, or closed and still have memory. */
  private open(): ServedGroup[] {
    return this.served.filter(group => group?.memory.isGone === false) as ServedGroup[]
  }

  private get groups(): GraphGroups {
    return this.central.arenas.groups
  }
}

function recordsOf({ makers, memory }: ServedGroup, thread: number): number[] {
  return [...makers].flatMap(([graph, maker]) => (maker === thread ? memory.heldBy(graph) : []))
}

function forgetMaker({ makers, memory }: ServedGroup, graph: number): void {
  if (!memory.isOpen(graph) && memory.heldBy(graph).length === 0) makers.delete(graph)
}
