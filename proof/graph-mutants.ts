// Rules of captures and graphs: the source of their memory, its reuse, and its return. Rules of graphs that share
// memory: the order of their launches, whose memory a capture may take, and the validity of outputs.

import { Clocks } from '../src/core/order/clocks.js'
import type { SharingGraph } from '../src/core/order/graph-memory.js'
import type { Stream } from '../src/core/order/stream.js'
import type { VectorTime } from '../src/core/order/vector-clocks.js'
import { CaptureArena } from '../src/core/pool/caching/captures/capture-arena.js'
import { GraphArenas } from '../src/core/pool/caching/captures/graph-arenas.js'
import { GraphGroup } from '../src/core/pool/caching/captures/graph-group.js'
import { GraphGroups } from '../src/core/pool/caching/captures/graph-groups.js'
import { OutputAllocation } from '../src/core/pool/caching/captures/graph-output.js'
import { GroupArena } from '../src/core/pool/caching/captures/group-arena.js'
import type { GroupCaptures } from '../src/core/pool/caching/captures/group-captures.js'
import { GroupMemory } from '../src/core/pool/caching/captures/group-memory.js'
import { At, GroupOrder } from '../src/core/pool/caching/captures/group-order.js'
import { CentralHeap } from '../src/core/pool/caching/central/central-heap.js'
import type { Use } from '../src/core/pool/caching/central/deferred.js'
import { replace, replacePrivate } from './replace-method.js'

/** the programs that notice broken rules of groups */
const kinds = ['groups'] as const
const nothing = (): void => {}

export const GRAPH_MUTANTS = {
  'capture isolation': {
    broken: 'captured work gets memory that other work may still use',
    break: () =>
      replace(
        CentralHeap.prototype,
        'takeIdle',
        original =>
          function (this: CentralHeap, units: number): number {
            for (let key = 1; key < this.large.keyLimit; key++) {
              const record = this.large.allocate(Math.max(units, LARGE_UNITS), 1, key)
              if (record !== 0) return record
            }
            return original.call(this, units)
          },
      ),
  },
  'captured memory is used again along captured edges': {
    broken: 'memory freed in a capture may be used by any captured stream at once',
    break: () =>
      replacePrivate(
        CaptureArena.prototype,
        'admissionFor',
        () =>
          function (this: CaptureArena): Float64Array {
            return new Float64Array(this.capture.slotLimit + 1).fill(Infinity)
          },
      ),
  },
  'a graph keeps its memory': {
    broken: 'memory that is freed after the capture goes back while the graph can be launched',
    break: () =>
      replace(
        CaptureArena.prototype,
        'free',
        original =>
          function (this: CaptureArena, record: number, uses: readonly Use[]): void {
            original.call(this, record, uses)
            if (this.capture.ended) this['giveBackIdle'](this['later'])
          },
      ),
  },
  'the memory of a graph waits for its launches': {
    broken: 'the memory of a closed graph is used again at once',
    break: () =>
      replace(
        CaptureArena.prototype,
        'release',
        original =>
          function (this: CaptureArena): void {
            original.call(this, [])
          },
      ),
  },
  'each launch of a graph counts': {
    broken: 'the memory of a closed graph waits for the first stream that it was launched on',
    break: () =>
      replace(
        CaptureArena.prototype,
        'release',
        original =>
          function (this: CaptureArena, streams: readonly Stream[]): void {
            original.call(this, streams.slice(0, 1))
          },
      ),
  },
  'a buffer freed on a captured stream waits for the graph': {
    broken: 'a buffer freed on a captured stream is used again when the work before the capture has completed',
    break: () =>
      replace(
        CaptureArena.prototype,
        'keep',
        () =>
          function (this: CaptureArena, record: number, uses: readonly Use[]): void {
            this.borrowed.delete(record)
            this['source'].takeBack(record, uses)
          },
      ),
  },
  'a use by captured work waits for the graph': {
    broken: 'recordUse of a captured stream does nothing',
    break: () =>
      replace(
        GraphArenas.prototype,
        'announceUse',
        original =>
          function (this: GraphArenas, record: number, stream: Stream): void {
            if (stream.capture === null) original.call(this, record, stream)
          },
      ),
  },
  'work before a capture is waited for': {
    broken: 'recordUse of a captured stream leaves out the work that was submitted before the capture',
    break: () =>
      replace(
        GraphArenas.prototype,
        'announceUse',
        original =>
          function (this: GraphArenas, record: number, stream: Stream): void {
            if (stream.capture === null) original.call(this, record, stream)
            else this['lend'](record, stream.capture)
          },
      ),
  },
  'a launch waits for the launch before': {
    broken: 'launches of a group wait for nothing',
    kinds,
    break: () => replacePrivate(GroupOrder.prototype, 'order', () => nothing),
  },
  'a wait covers the launch': {
    broken: 'a launch waits for the oldest mark of the stream before',
    kinds,
    break: () =>
      replacePrivate(
        GroupOrder.prototype,
        'useAt',
        () =>
          function (this: GroupOrder, slot: number): object {
            return { clocks: this['clocks'], slot, stamp: 1 }
          },
      ),
  },
  'a wait of a launch is noted once it is made': {
    broken: 'a launch notes its order first, which stays although the driver refuses the wait',
    kinds,
    break: () =>
      replace(
        Clocks.prototype,
        'delay',
        original =>
          function (this: Clocks, later: number, event: number, vectorTime: VectorTime): void {
            this.follow(later, vectorTime)
            original.call(this, later, event, vectorTime)
          },
      ),
  },
  'older launches are forgotten after the waits': {
    broken: 'what a launch waits for is forgotten first: a wait that the driver refuses loses it',
    kinds,
    break: () =>
      replacePrivate(
        GroupOrder.prototype,
        'begin',
        original =>
          function (this: GroupOrder, ...args: never[]): void {
            try {
              Reflect.apply(original, this, args)
            } catch (error) {
              this['state'].fill(0, At.launchSlot, At.isSpread)
              this['state'][At.count] = 0
              throw error
            }
          },
      ),
  },
  'each use of the memory counts': {
    broken: 'a launch waits for the launch before alone',
    kinds,
    break: () =>
      replacePrivate(
        GroupOrder.prototype,
        'begin',
        original =>
          function (this: GroupOrder, ...args: never[]): void {
            this['state'][At.count] = 0
            Reflect.apply(original, this, args)
          },
      ),
  },
  'a use of an output is waited for': {
    broken: 'the next launch overwrites an output that is still used',
    kinds,
    break: () => replacePrivate(GroupOrder.prototype, 'addUse', () => nothing),
  },
  'a use of an output waits for the launch': {
    broken: 'work on other streams uses an output before it is there',
    kinds,
    break: () => replacePrivate(GroupOrder.prototype, 'followLaunch', () => nothing),
  },
  'an overwritten output is refused': {
    broken: 'an output is valid after launches of other graphs',
    kinds,
    break: () => replacePrivate(OutputAllocation.prototype, 'checkValid', () => nothing),
  },
  'a refused launch makes no output valid': {
    broken: 'the output of a graph is valid although the driver has refused its launch',
    kinds,
    break: () =>
      replacePrivate(
        GroupOrder.prototype,
        'begin',
        original =>
          function (this: GroupOrder, call: string, graph: SharingGraph, ...args: unknown[]): void {
            Reflect.apply(original, this, [call, graph, ...args])
            this['state'][At.latest] = graph.number
          },
      ),
  },
  'an output lives no longer than its scratch': {
    broken: 'an output is valid although its memory was given back',
    kinds,
    break: () => replace(GroupOrder.prototype, 'loseContents', () => nothing),
  },
  'a block that stays held is taken': {
    broken: 'a buffer that is held when its capture ends serves the next capture',
    kinds,
    break: () =>
      replace(
        GroupMemory.prototype,
        'end',
        original =>
          function (this: GroupMemory, graph: number, hasGraph: boolean): void {
            original.call(this, graph, hasGraph)
            for (const record of this.heldBy(graph)) if (!this.isOutput(record)) this['scratch']!.free(record, 0, 0)
          },
      ),
  },
  'a block that stays held is where no other graph writes': {
    broken: 'a buffer that is held when its capture ends may lie in the scratch of earlier graphs',
    kinds,
    break: () => replace(GroupMemory.prototype, 'checkEnd', () => nothing),
  },
  'a freed output stays until its graph is closed': {
    broken: 'a freed output serves another graph while its own can be launched',
    kinds,
    break: () => replace(GroupMemory.prototype, 'isOpen', () => () => false),
  },
  'an output is granted after all work': {
    broken: 'an output gets memory that launches of closed graphs may still write',
    kinds,
    break: () => replace(GroupOrder.prototype, 'finish', () => function* () {}),
  },
  'a launch waits for work on freed memory': {
    broken: 'the next launch does not wait for work on a block that was freed after its capture',
    kinds,
    break: () => replace(GroupArena.prototype, 'noteUses', () => nothing),
  },
  'scratch outlives a graph': {
    broken: 'the close of a graph gives scratch back that other graphs use',
    kinds,
    break: () =>
      replace(
        GroupArena.prototype,
        'release',
        original =>
          function (this: GroupArena, streams: readonly Stream[]): void {
            original.call(this, streams)
            if (!this.lost) for (const heap of this['memory'].heaps) heap.trim()
          },
      ),
  },
  'scratch outlives the last launch': {
    broken: 'memory is given back once all graphs are closed, while their launches run',
    kinds,
    break: () => replace(GroupOrder.prototype, 'isComplete', () => () => true),
  },
  'a group has one capture at a time': {
    broken: 'a second capture of a group gets what the first may free',
    kinds,
    break: () =>
      replacePrivate(
        GraphGroup.prototype,
        'check',
        original =>
          function (this: GraphGroup, ...args: unknown[]): void {
            const { captures } = this as unknown as { captures: GroupCaptures }
            const { capture } = captures
            captures.capture = null
            try {
              Reflect.apply(original, this, args)
            } finally {
              captures.capture = capture
            }
          },
      ),
  },
  'a capture settles at its end alone': {
    broken: 'scratch that a capture has freed serves its other streams at once',
    kinds,
    break: () =>
      replace(
        GroupMemory.prototype,
        'freeAfter',
        original =>
          function (this: GroupMemory, record: number): void {
            original.call(this, record, 0, 0)
          },
      ),
  },
  'poison spares what is held': {
    broken: 'poison fills outputs of their own and held buffers, too',
    kinds,
    break: () =>
      replace(
        GroupMemory.prototype,
        'idle',
        original =>
          function* (this: GroupMemory) {
            yield* original.call(this)
            yield* this.taken()
          },
      ),
  },
  'outputs and held buffers sleep': {
    broken: 'a pool that sleeps keeps no contents of its groups',
    kinds,
    break: () => replace(GraphGroups.prototype, 'takenInRanges', () => () => []),
  },
}

/** Smaller blocks are in another heap. */
const LARGE_UNITS = 2 ** 12
