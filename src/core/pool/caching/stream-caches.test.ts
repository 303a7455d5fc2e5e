// Stream caches over records without memory. The file is long because all cases share one stand-in for the records.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../../base/random.js'
import { RecordTable, Word } from '../../heap/records.js'
import { CLASSES, classFloorUnits, classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import { MOST_STREAMS } from '../../order/clocks.js'
import { SMALL_UNITS } from '../backing/backing.js'
import { policy } from '../policy.js'
import type { Block, BlockOwner } from './block.js'
import { classUnits, StreamCaches } from './stream-caches.js'

const NUMBERS = 20_001
const EXACT_UNITS = policy.exactBytes / UNIT_BYTES
/** The blocks of these tests make no calls on their pool. */
const NO_POOL = {} as BlockOwner

/** Stream caches over records that are numbered from 0 and get their units when they are put. */
class NumberedCache {
  private readonly records = new RecordTable()
  private readonly cache: StreamCaches

  constructor(mostUnits: number) {
    while (this.records.used <= this.records.first + NUMBERS) this.records.acquire()
    this.cache = new StreamCaches(this.records, mostUnits, NO_POOL)
  }

  setTight(isTight: boolean): boolean {
    return this.cache.setTight(isTight)
  }

  put(slot: number, units: number, number: number): boolean {
    const record = this.records.first + number
    this.records.words[(record << 4) | Word.units] = units
    this.records.words[(record << 4) | Word.sizeClass] = classOf(units)
    this.cache.includeSlot(slot)
    this.cache.handOut(slot, record)
    return this.cache.put(this.cache.blockOf(record))
  }

  /** 0 for none */
  take(slot: number, units: number): number {
    const block = takeFirst(this.cache, slot, units) ?? this.cache.takeAny(slot, classUnits(units))
    return block === null ? 0 : this.numberOf(block.record)
  }

  takeLarger(slot: number, units: number, end: number): number {
    return this.numberOf(this.cache.takeLarger(slot, classOf(units), end))
  }

  cachedUnits(slot: number): number {
    return this.cache.cachedUnits(slot)
  }

  entries(slot: number) {
    return this.cache.entries(slot).map(({ units, record }) => ({ units, record: this.numberOf(record) }))
  }

  drain(slot: number, first?: number, end?: number): number[] {
    return this.cache.drain(slot, first, end).map(record => this.numberOf(record))
  }

  private numberOf(record: number): number {
    return record === 0 ? 0 : record - this.records.first
  }
}

/** As an allocation does first. */
function takeFirst(cache: StreamCaches, slot: number, units: number): Block | null {
  const stack = cache.stackFor(slot, units)
  const block = stack.top
  return cache.take(stack, units) ? block : null
}

const newCache = (mostUnits: number) => new NumberedCache(mostUnits)
const put = (cache: NumberedCache, slot: number, units: number, number: number) => cache.put(slot, units, number)
const take = (cache: NumberedCache, slot: number, units: number) => cache.take(slot, units)

describe('stream caches', () => {
  it('returns each block once, to its own stream only', () => {
    const cache = newCache(1000)
    assert.equal(take(cache, 5, 40), 0)
    assert.equal(put(cache, 5, 40, 77), true)
    for (const other of [0, 4, 6, MOST_STREAMS - 1]) assert.equal(take(cache, other, 40), 0)
    assert.equal(cache.cachedUnits(5), 40)
    assert.equal(take(cache, 5, 40), 77)
    assert.equal(take(cache, 5, 40), 0)
    assert.equal(cache.cachedUnits(5), 0)
  })

  it('never returns a smaller block, or one that wastes more than an eighth or one unit', () => {
    const cache = newCache(1000)
    for (let stored = 1; stored <= 600; stored = classUnits(stored + 1)) {
      for (let asked = 1; asked <= 600; asked += 1 + (asked >> 5)) {
        cache.drain(0)
        put(cache, 0, stored, 9)
        if (take(cache, 0, asked) === 0) continue
        assert.ok(stored >= asked && stored - asked <= Math.max(1, asked / 8), `${stored} for ${asked}`)
      }
    }
  })

  it('is bounded in bytes for each stream, and in blocks for each class', () => {
    const cache = newCache(100)
    assert.equal(put(cache, 0, 60, 1), true)
    assert.equal(put(cache, 0, 41, 2), false)
    assert.equal(put(cache, 1, 100, 3), true)
    assert.equal(put(cache, 0, 40, 4), true)
    assert.equal(put(cache, 0, 1, 5), false)
    assert.deepEqual([cache.cachedUnits(0), cache.cachedUnits(1)], [100, 100])
    const wide = newCache(1_000_000)
    let kept = 0
    while (put(wide, 0, 8, kept + 1)) kept++
    assert.equal(kept, policy.places)
    assert.equal(put(wide, 0, 9, 99), true, 'another class has room')
    const got = new Set(Array.from({ length: kept }, () => take(wide, 0, 8)))
    assert.deepEqual(got, new Set(Array.from({ length: kept }, (_, index) => index + 1)))
  })

  it('keeps only small blocks while the pool is tight, and blocks of all sizes once it is loose again', () => {
    const cache = newCache(2 ** 20)
    const kept = (number: number) => {
      const sizes = [1, SMALL_UNITS - 1, SMALL_UNITS, EXACT_UNITS, 100_000]
      return sizes.filter((units, index) => put(cache, 0, units, number + index))
    }
    assert.equal(kept(1).length, 5)
    assert.equal(cache.setTight(true), true)
    assert.equal(cache.setTight(true), false, 'it was tight')
    assert.deepEqual(kept(11), [1, SMALL_UNITS - 1])
    assert.equal(put(cache, 1, SMALL_UNITS, 21), false, 'the class is new')
    assert.equal(take(cache, 0, EXACT_UNITS), 4, 'what was cached before is not lost')
    assert.equal(cache.setTight(false), true)
    assert.equal(kept(31).length, 5)
  })

  it('serves a large size only with a block of exactly that size', () => {
    const cache = newCache(2 ** 20)
    put(cache, 0, 5000, 1)
    for (const units of [4096, 4999, 5001]) assert.equal(take(cache, 0, units), 0, `${units} units`)
    assert.equal(take(cache, 0, 5000), 1)
  })

  it('has as much room as before when a block was taken out of the middle', () => {
    const cache = newCache(1_000_000)
    // Of one class; a request gets the block of its exact size.
    const sizes = Array.from({ length: policy.places }, (_, index) => EXACT_UNITS + index)
    const further = EXACT_UNITS + policy.places
    assert.equal(classOf(further), classOf(EXACT_UNITS))
    for (const units of sizes) assert.equal(put(cache, 0, units, units), true)
    assert.equal(put(cache, 0, further, further), false)
    for (const units of [...sizes, ...sizes]) {
      assert.equal(take(cache, 0, units), units)
      assert.equal(put(cache, 0, units, units), true)
      assert.equal(put(cache, 0, further, further), false)
    }
  })

  it('drain and entries know every block once', () => {
    const cache = newCache(2 ** 30)
    const sizes = [1, 2, 15, 16, 17, 4095, 4096, 100_000, 2 ** 22, 2 ** 28]
    for (const [index, units] of sizes.entries()) assert.equal(put(cache, 63, units, index + 1), true)
    put(cache, 0, 5, 1000)
    const entries = [...cache.entries(63)]
    assert.deepEqual(
      entries.map(({ record, units }) => [units, record]),
      sizes.map((units, index) => [units, index + 1]),
    )
    assert.deepEqual([...cache.entries(7)], [])
    assert.deepEqual(
      cache.drain(63),
      sizes.map((_, index) => index + 1),
    )
    assert.deepEqual([cache.cachedUnits(63), cache.cachedUnits(0)], [0, 5])
    assert.deepEqual([...cache.entries(63), ...cache.drain(63)], [])
    for (const units of sizes) assert.equal(take(cache, 63, units), 0)
    assert.deepEqual(cache.drain(0), [1000])
  })

  it('takes the smallest block of a larger class, below an end', () => {
    const cache = newCache(2 ** 20)
    for (const [index, units] of [100, 3000, 9000].entries()) put(cache, 2, units, index + 1)
    assert.equal(cache.takeLarger(2, 100, CLASSES), 2, 'not one of the class itself')
    assert.equal(cache.cachedUnits(2), 9100)
    assert.equal(cache.takeLarger(2, 100, classOf(9000)), 0)
    assert.equal(cache.takeLarger(1, 100, CLASSES), 0)
    assert.equal(cache.takeLarger(2, 100, CLASSES), 3)
  })

  it('drains only the given classes', () => {
    const cache = newCache(2 ** 20)
    for (const [index, units] of [100, 3000, 9000].entries()) put(cache, 2, units, index + 1)
    assert.deepEqual(cache.drain(2, classOf(3000), classOf(9000)), [2])
    assert.equal(cache.cachedUnits(2), 9100)
  })

  it('serves the largest class of the last stream', () => {
    const cache = newCache(2 ** 31 - 1)
    assert.equal(classOf(2 ** 31 - 1), CLASSES - 1)
    assert.equal(put(cache, MOST_STREAMS - 1, 2 ** 31 - 2, 4), true)
    assert.equal(take(cache, MOST_STREAMS - 1, 2 ** 31 - 1), 0)
    assert.equal(take(cache, MOST_STREAMS - 1, 2 ** 31 - 2), 4)
    assert.equal(cache.cachedUnits(MOST_STREAMS - 1), 0)
  })

  it('knows the most units that were live at a time, over all streams', () => {
    const records = new RecordTable()
    const cache = new StreamCaches(records, 3000, NO_POOL)
    const random = new Random(5)
    const held: Block[] = []
    let live = 0
    let peak = 0
    for (const slot of [0, 1, 2]) cache.includeSlot(slot)
    for (let step = 0; step < 20_000; step++) {
      const slot = random.below(3)
      // Rising, then falling, so that new peaks come in between.
      if (held.length === 0 || random.below(100) < (step % 2000 < 1000 ? 52 : 48)) {
        const units = classUnits(random.logUniform(1, 200))
        let block = takeFirst(cache, slot, units) ?? cache.takeAny(slot, units)
        if (block === null) {
          const record = records.acquire()
          records.words[(record << 4) | Word.units] = units
          records.words[(record << 4) | Word.sizeClass] = classOf(units)
          cache.handOut(slot, record)
          block = cache.blockOf(record)
        }
        held.push(block)
        live += block.units
      } else {
        const [block] = held.splice(random.below(held.length), 1)
        live -= block.units
        cache.assign(block, slot)
        if (!cache.put(block)) {
          cache.handBack(block.record)
          records.release(block.record)
        }
      }
      if (random.below(500) === 0) {
        for (const record of cache.drain(slot)) records.release(record)
      }
      peak = Math.max(peak, live)
      assert.deepEqual([cache.liveUnits, cache.peakUnits], [live, peak], `step ${step}`)
      if (random.below(1000) !== 0) continue
      cache.resetPeak()
      peak = live
    }
    assert.ok(peak > 0)
  })

  it('gives another stream only blocks known to come before, whichever stream gave the last block', () => {
    const records = new RecordTable()
    const cache = new StreamCaches(records, 1000, NO_POOL)
    const known = new Float64Array(MOST_STREAMS * MOST_STREAMS)
    const seen = new Float64Array(MOST_STREAMS)
    const taken = () => cache.takeElsewhere(1, 8, known, seen)
    const cached = (slot: number, stamp: number) => {
      const record = records.acquire()
      records.words[(record << 4) | Word.units] = 8
      records.words[(record << 4) | Word.sizeClass] = classOf(8)
      cache.includeSlot(slot)
      cache.handOut(slot, record)
      const block = cache.blockOf(record)
      assert.equal(cache.put(block), true)
      block.mark = stamp - 1
      return block
    }
    const first = cached(3, 5)
    assert.equal(taken(), null)
    known[MOST_STREAMS + 3] = 5
    assert.equal(taken(), first)
    assert.equal(cache.put(first), true, 'it is of the stream that took it')
    assert.deepEqual([takeFirst(cache, 3, 8), takeFirst(cache, 1, 8)], [null, first])
    const [late, other] = [cached(3, 6), cached(2, 3)]
    assert.equal(taken(), null)
    seen[2] = 3
    assert.equal(taken(), other)
    seen[3] = 6
    assert.equal(taken(), late)
    assert.equal(taken(), null)
    const older = cached(2, 7)
    assert.equal(cache.takeOlder(2, 8, 6), 0)
    assert.equal(cache.takeOlder(2, 8, 7), older.record)
    assert.deepEqual(
      [1, 2, 3].map(slot => cache.cachedUnits(slot)),
      [0, 0, 0],
    )
  })

  it('agrees with a simple model', () => {
    const cache = newCache(5000)
    const random = new Random(11)
    const model = new Map<number, { slot: number; units: number }>()
    for (let step = 1; step <= 20_000; step++) {
      const slot = random.below(3)
      const units = classUnits(random.logUniform(1, 2000))
      if (random.below(2) === 0) {
        if (put(cache, slot, units, step)) model.set(step, { slot, units })
      } else {
        const record = take(cache, slot, units)
        const block = model.get(record)
        if (record !== 0) assert.ok(block !== undefined && block.slot === slot && block.units >= units)
        else
          assert.ok(
            ![...model.values()].some(kept => kept.slot === slot && kept.units === units),
            'an exact one was there',
          )
        model.delete(record)
      }
      for (const each of [0, 1, 2]) {
        const kept = [...model.values()].filter(block => block.slot === each)
        const units = kept.reduce((sum, block) => sum + block.units, 0)
        if (step % 100 === 0) assert.equal(cache.cachedUnits(each), units)
        assert.ok(cache.cachedUnits(each) <= 5000)
      }
    }
    const drained = [0, 1, 2].flatMap(slot => cache.drain(slot))
    assert.deepEqual(new Set(drained), new Set(model.keys()))
  })
})

describe('class arithmetic that is written out on the cached path', () => {
  /** Sizes of every class, and both sides of where classes and powers of two begin. */
  const sizes = [
    ...Array.from({ length: 2 ** 16 }, (_, index) => index + 1),
    ...Array.from({ length: CLASSES }, (_, sizeClass) => classFloorUnits(sizeClass))
      .flatMap(floor => [floor - 1, floor, floor + 1])
      .filter(units => units > 2 ** 16 && units < MAX_UNITS / 2),
  ]

  it('finds the stack of the class that size-classes.ts names', () => {
    const cache = new StreamCaches(new RecordTable(), 1, NO_POOL)
    for (let sizeClass = 1; sizeClass < CLASSES; sizeClass++) cache['stackOf'](1, sizeClass)
    for (const units of sizes) {
      const expected = classOf(classUnits(units))
      assert.equal(cache.stackFor(1, units).sizeClass, expected, `${units} units`)
    }
  })

  it('finds the block of another stream that fits', () => {
    const records = new RecordTable()
    const cache = new StreamCaches(records, 2 ** 31, NO_POOL, false) // no peak forbids a take
    const known = new Float64Array(MOST_STREAMS ** 2).fill(Infinity)
    for (const units of sizes.filter((size, index) => size < 5000 || index % 97 === 0)) {
      const blockUnits = classUnits(units)
      const sizeClass = classOf(blockUnits)
      const record = records.acquire()
      records.words[(record << 4) | Word.units] = blockUnits
      records.words[(record << 4) | Word.sizeClass] = sizeClass
      cache.includeSlot(0)
      cache.handOut(0, record)
      const block = cache.blockOf(record)
      block.mark = 0
      assert.ok(cache.put(block), `${units} units`)
      cache['stackOf'](1, sizeClass).giver = cache['stackOf'](0, sizeClass)
      assert.equal(cache.takeElsewhere(1, blockUnits, known, known), block, `${units} units`)
    }
  })
})
