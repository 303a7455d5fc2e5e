// Rules of memory: the notes of a free, the data that a merge keeps, the checks of a grant.

import { Double, type RecordTable, State, Word } from '../src/core/heap/records.js'
import { SegregatedFit } from '../src/core/heap/segregated-fit.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { GranuleLastUses } from '../src/core/pool/backing/pieces/last-uses.js'
import { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { CrossStreamReuse } from '../src/core/pool/caching/central/cross-stream.js'
import { Deferred, type Use } from '../src/core/pool/caching/central/deferred.js'
import { StreamCaches } from '../src/core/pool/caching/stream-caches.js'
import { replace, replacePrivate } from './replace-method.js'

/** An order in which all work of each stream comes before every other stream. */
const ALL_KNOWN = new Float64Array(MOST_STREAMS * MOST_STREAMS).fill(Infinity)

export const MEMORY_MUTANTS = {
  'inserted waits cover the stamp': {
    broken: 'a stream is made to wait for the oldest mark, whether it covers the free or not',
    break: () =>
      replace(
        CrossStreamReuse.prototype,
        'waitFor',
        original =>
          function (this: CrossStreamReuse, slot: number, other: number, stamp: number): void {
            original.call(this, slot, other, Math.min(stamp, this['clocks'].completed[other] + 1))
          },
      ),
  },
  'a free is stamped': {
    broken: 'a freed block may be used by any stream at once',
    break: () =>
      replace(
        CachingPool.prototype,
        'releaseBlock',
        original =>
          function (this: CachingPool, block, given, stream): void {
            const marked = this['marked']
            const unstamped = new Float64Array(MOST_STREAMS).fill(-1)
            Object.assign(this, { marked: unstamped })
            original.call(this, block, given, stream)
            Object.assign(this, { marked })
          },
      ),
  },
  'a free is stamped with the mark to come': {
    broken: 'a free is stamped with the last mark of its stream, which was placed before',
    break: () =>
      replace(
        CachingPool.prototype,
        'releaseBlock',
        original =>
          function (this: CachingPool, block, given, stream): void {
            const marked = this['marked']
            Object.assign(this, { marked: marked.map(stamp => stamp - 1) })
            original.call(this, block, given, stream)
            Object.assign(this, { marked })
          },
      ),
  },
  'announced uses are waited for': {
    broken: 'recordUse does nothing',
    break: () => replace(Deferred.prototype, 'announce', () => () => {}),
  },
  'announced uses last until the free': {
    broken: 'an announced use is covered by the last mark before the free',
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'usesOf',
        original =>
          function (this: Deferred, record: number): Use[] {
            const uses = Reflect.apply(original, this, [record]) as Use[]
            return uses.map(use => ({ ...use, stamp: Math.min(use.stamp, use.clocks.marked[use.slot]) }))
          },
      ),
  },
  'a settled deferred block has a new stamp': {
    broken: 'a block that other streams used keeps the stamp of its free, though its stream waited for them later',
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'stampNow',
        () =>
          function (this: Deferred, block: { stamp: number }): number {
            return block.stamp
          },
      ),
  },
  'work of another device is waited for': {
    broken: 'an announced use by a stream of another device counts as complete',
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'isSeen',
        original =>
          function (this: Deferred, use: Use): boolean {
            return use.clocks !== this['clocks'] || (Reflect.apply(original, this, [use]) as boolean)
          },
      ),
  },
  'transitivity through merges': {
    broken: 'a block that depends on nothing frees its neighbour from its dependency',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'free',
        original =>
          function (this: SegregatedFit, record: number, key: number, stamp: number): number {
            const block = original.call(this, record, key, stamp)
            if (key === 0 && this.records.words[(block << 4) | Word.key] !== 0) {
              this['remove'](block)
              this.records.words[(block << 4) | Word.key] = 0
              this['insert'](block)
            }
            return block
          },
      ),
  },
  'a merge keeps the later stamp': {
    broken: 'of two neighbours freed on one stream the earlier stamp counts',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'free',
        original =>
          function (this: SegregatedFit, record: number, key: number, stamp: number): number {
            const { words, doubles } = this.records
            let earliest = stamp
            for (const next of [words[(record << 4) | Word.previous], words[(record << 4) | Word.next]]) {
              if (next === 0 || this.records.state(next) !== State.free || words[(next << 4) | Word.key] !== key)
                continue
              earliest = Math.min(earliest, doubles[(next << 3) | Double.stamp])
            }
            const block = original.call(this, record, key, stamp)
            if (key !== 0) doubles[(block << 3) | Double.stamp] = earliest
            return block
          },
      ),
  },
  'a part keeps the dependency': {
    broken: 'a part cut off a block depends on nothing',
    break: () =>
      replacePrivate(
        SegregatedFit.prototype,
        'putBack',
        original =>
          function (this: SegregatedFit, record: number, absent: boolean): void {
            if (!absent) this.records.words[(record << 4) | Word.key] = 0
            Reflect.apply(original, this, [record, absent])
          },
      ),
  },
  'a block settles when its stamp is complete': {
    broken: 'a block settles when a mark that covers it was placed',
    break: () =>
      replace(
        SegregatedFit.prototype,
        'settle',
        original =>
          function (this: SegregatedFit, key: number): number {
            return original.call(this, key, Infinity)
          },
      ),
  },
  'stamps of blocks that others cache are compared': {
    broken: 'a block that another stream caches is taken whatever it waits for',
    break: () =>
      replace(
        CrossStreamReuse.prototype,
        'takeCached',
        () =>
          function (this: CrossStreamReuse, units: number, slot: number): number {
            return this['caches'].takeAdmitted(slot, units, new Float64Array(MOST_STREAMS + 1).fill(Infinity))
          },
      ),
  },
  'stamps of blocks from the last giving stream are compared': {
    broken: 'the next block of the stream that gave one before is taken whatever it waits for',
    break: () =>
      replacePrivate(
        StreamCaches.prototype,
        'takeGiven',
        original =>
          function (this: StreamCaches, index: number, units: number, _known: Float64Array, seen: Float64Array) {
            return Reflect.apply(original, this, [index, units, ALL_KNOWN, seen])
          },
      ),
  },
  'a granule remembers its last use': {
    broken: 'memory is unmapped though its last use is not known to be complete',
    break: () => replace(GranuleLastUses.prototype, 'isSettled', () => () => true),
  },
  'a granule of several streams belongs to none of them': {
    broken: 'of a granule that several streams used only the last free counts',
    break: () =>
      replace(
        GranuleLastUses.prototype,
        'noteFree',
        original =>
          function (this: GranuleLastUses, records: RecordTable, record: number, key: number, stamp: number): void {
            this.keys.fill(0)
            original.call(this, records, record, key, stamp)
          },
      ),
  },
}
