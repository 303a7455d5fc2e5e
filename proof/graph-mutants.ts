// Rules of captures and graphs: the source of their memory, its reuse, and its return.

import type { Stream } from '../src/core/order/stream.js'
import { CaptureArena } from '../src/core/pool/caching/captures/capture-arena.js'
import { GraphArenas } from '../src/core/pool/caching/captures/graph-arenas.js'
import { CentralHeap } from '../src/core/pool/caching/central/central-heap.js'
import type { Use } from '../src/core/pool/caching/central/deferred.js'
import { replace, replacePrivate } from './replace-method.js'

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
}

/** Smaller blocks are in another heap. */
const LARGE_UNITS = 2 ** 12
