// Stream caches over records without memory. The file is long because all cases share one stand-in for the records.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../../base/random.js'
import { RecordTable, State, Word } from '../../heap/records.js'
import { CLASSES, classFloorUnits, classOf, MAX_UNITS } from '../../heap/size-classes.js'
import { MOST_STREAMS } from '../../order/clocks.js'
import type { Block, BlockOwner } from './block.js'
import { classUnits, StreamCaches } from './stream-caches.js'

const NUMBERS = 20_001
/** The blocks of these tests make no calls on their pool. */
const NO_POOL = {} as BlockOwner

/** Stream caches over records that are numbered from 0 and get their units when they are put. */
class NumberedCache {
  private readonly records = new RecordTable()
  private readonly cache: StreamCaches

  constructor(mostUnits: number) {
    while (this.records.used <= this.records.first + NUMBERS) this.records.acquire()
    this.cache = new StreamCaches(this.records, mostUnits, NO_POOL)
    this.cache.limitLarge(mostUnits)
  }

  limitLarge(units: number): void {
    this.cache.limitLarge(units)
  }

  put(slot: number, units: number, number: number): boolean {
    const record = this.records.first + number
    this.records.words[(record << 4) | Word.units] = units
    this.records.words[(record << 4) | Word.sizeClass] = classOf(units)
    this.cache.meet(slot)
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
    assert.ok(kept >= 2 && kept <= 16, `${kept} blocks`)
    assert.equal(put(wide, 0, 9, 99), true, 'another class has room')
    const got = new Set(Array.from({ length: kept }, () => take(wide, 0, 8)))
    assert.deepEqual(got, new Set(Array.from({ length: kept }, (_, index) => index + 1)))
  })

  it('bounds large blocks apart from small ones, at 8 MiB for each stream or more', () => {
    const cache = newCache(50_000)
    cache.limitLarge(1)
    for (const slot of [0, 1]) {
      assert.equal(put(cache, slot, 32_768 - 4096, 1 + slot), true)
      assert.equal(put(cache, slot, 4097, 3 + slot), false)
      assert.equal(put(cache, slot, 4096, 5 + slot), true)
      assert.equal(put(cache, slot, 4000, 7 + slot), true, 'small ones have room of their own')
    }
    cache.limitLarge(40_000)
    assert.equal(put(cache, 0, 7233, 9), false)
    assert.equal(put(cache, 0, 7232, 9), true)
    assert.deepEqual([cache.cachedUnits(0), cache.cachedUnits(1)], [44_000, 36_768])
  })

  it('serves a large size only with a block of exactly that size', () => {
    const cache = newCache(2 ** 20)
    put(cache, 0, 5000, 1)
    for (const units of [4096, 4999, 5001]) assert.equal(take(cache, 0, units), 0, `${units} units`)
    assert.equal(take(cache, 0, 5000), 1)
  })

  it('has as much room as before when a block was taken out of the middle', () => {
    const cache = newCache(1_000_000)
    const sizes = [4096, 4100, 4104, 4108] // of one class; a request gets the block of its exact size
    for (const units of sizes) assert.equal(put(cache, 0, units, units), true)
    assert.equal(put(cache, 0, 4112, 4112), false)
    for (const units of [...sizes, ...sizes]) {
      assert.equal(take(cache, 0, units), units)
      assert.equal(put(cache, 0, units, units), true)
      assert.equal(put(cache, 0, 4112, 4112), false)
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

  describe('makes room where many blocks are cached', () => {
    const SLOT = 2
    const KINDS = { cached: SLOT, elsewhere: SLOT + 1, live: SLOT, free: SLOT, idle: -1 }

    /**
     * Neighbouring blocks, and a cache that has those of `kind` cached or elsewhere; more are cached far away, as
     * many large ones as `others` says and as many small ones as `smallOthers`.
     */
    function row(
      blocks: readonly (readonly [kind: keyof typeof KINDS, units: number])[],
      others: number,
      smallOthers = 0,
    ) {
      const records = new RecordTable()
      const cache = new StreamCaches(records, 2 ** 30, NO_POOL)
      cache.limitLarge(2 ** 30)
      const add = (kind: keyof typeof KINDS, units: number) => {
        const record = records.acquire()
        const base = record << 4
        records.words.fill(0, base + 1, base + 16)
        records.words[base | Word.units] = units
        records.words[base | Word.sizeClass] = classOf(units)
        records.words[base | Word.key] = KINDS[kind] + 1
        records.setState(record, State.free)
        if (kind === 'free' || kind === 'idle') return record
        cache.meet(KINDS[kind])
        cache.handOut(KINDS[kind], record)
        const block = cache.blockOf(record)
        cache.assign(block, KINDS[kind])
        block.state = State.live
        if (kind === 'live') return record
        assert.equal(cache.put(block), true)
        block.state = State.cached
        return record
      }
      const chain = blocks.map(([kind, units]) => add(kind, units))
      for (const [index, record] of chain.entries()) {
        records.words[(record << 4) | Word.previous] = chain[index - 1] ?? 0
        records.words[(record << 4) | Word.next] = chain[index + 1] ?? 0
      }
      for (let other = 0; other < others; other++) add('cached', Math.round(5000 * 1.07 ** (other >> 2)))
      for (let other = 0; other < smallOthers; other++) add('cached', 16 + (other >> 4))
      const before = cache.cachedUnits(SLOT)
      const room = (units: number) => {
        const [first, end] = units < 4096 ? [0, classOf(4096)] : [classOf(4096), CLASSES]
        const places = cache.eviction.takeRoom(SLOT, units, first, end).map(record => chain.indexOf(record))
        return places.sort((a, b) => a - b)
      }
      const take = (units: number) => cache.takeAny(SLOT, units)?.units ?? 0
      return { room, take, gone: () => before - cache.cachedUnits(SLOT), left: () => [...cache.entries(SLOT)].length }
    }

    it('by the smallest of the larger blocks', () => {
      const { room, gone, left } = row(
        [
          ['cached', 90_000],
          ['live', 1],
          ['cached', 70_000],
        ],
        70,
      )
      assert.deepEqual([room(50_000), gone(), left()], [[2], 70_000, 71])
      assert.deepEqual([room(50_000), room(50_000)], [[0], []])
    })

    it('by as few cached or free neighbours as are enough', () => {
      const cached = ['cached', 40_000] as const
      const { room, gone } = row([cached, ['free', 10_000], cached, ['idle', 5_000], cached], 70)
      assert.deepEqual([room(84_000), gone()], [[2, 4], 80_000])
      assert.deepEqual([room(50_000), gone()], [[0], 120_000])
    })

    it('never across a live block, another stream’s block or the end of a range', () => {
      const cached = ['cached', 40_000] as const
      const { room, gone } = row([cached, ['live', 9], cached, ['elsewhere', 9000], cached], 70)
      assert.deepEqual([room(60_000), gone()], [[], 0])
    })

    it('at the shortest run that is long enough', () => {
      const cached = ['cached', 40_000] as const
      const { room } = row([cached, ['free', 30_000], ['live', 9], cached, ['free', 21_000]], 70)
      assert.deepEqual(room(60_000), [3])
    })

    it('at the only run that is long enough, wherever it lies', () => {
      const smallest = [
        ['cached', 4100],
        ['free', 60_000],
      ] as const
      assert.deepEqual(row(smallest, 70).room(62_000), [0])
    })

    it('first by small blocks that are up to three classes larger, once room was short with many cached', () => {
      const blocks = apart([3072, 3200, 3968])
      const { room, take, gone } = row(blocks, 0, 256)
      assert.equal(take(2816), 0)
      assert.deepEqual(room(3990), [])
      assert.deepEqual([2304, 2560, 2816, 2816, 2816].map(take), [0, 0, 3072, 3200, 0])
      assert.equal(gone(), 6272)
      const few = row(blocks, 0, 252)
      few.room(3990)
      assert.equal(few.take(2816), 0)
    })

    const apart = (units: readonly number[]) => units.flatMap(each => [['cached', each] as const, ['live', 1] as const])

    it('by small blocks that are larger, until room is short with fewer cached', () => {
      for (const units of [3072, 3200]) {
        const { room, take } = row(apart([units]), 0, 255)
        assert.equal(take(2816), 0)
        assert.deepEqual([room(3900), take(2816)], [[], units])
      }
      const { room, take, gone } = row(apart([3072, 3200]), 0, 255)
      room(3900)
      assert.deepEqual([take(2816), take(16)], [3072, 16])
      room(3900)
      assert.deepEqual([take(2816), gone()], [0, 3088])
    })

    it('never by large blocks that are larger', () => {
      const { room, take } = row(apart([45_001, 49_000, 51_000]), 70)
      assert.deepEqual(room(80_000), [])
      assert.deepEqual([take(45_000), take(49_000)], [0, 49_000])
    })

    it('not by small blocks that are larger where many large ones are cached', () => {
      const { room, take } = row(apart([3072, 3200]), 70)
      room(3900)
      room(80_000)
      assert.equal(take(2816), 0)
    })

    it('leaves a few to be given back together', () => {
      assert.deepEqual(row([['cached', 90_000]], 62).room(50_000), [])
      assert.deepEqual(row([['cached', 90_000]], 63).room(50_000), [0])
    })
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
    for (const slot of [0, 1, 2]) cache.meet(slot)
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
      cache.meet(slot)
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
    const cache = new StreamCaches(records, 2 ** 31, NO_POOL, undefined, undefined, false) // no peak forbids a take
    const known = new Float64Array(MOST_STREAMS ** 2).fill(Infinity)
    for (const units of sizes.filter((size, index) => size < 5000 || index % 97 === 0)) {
      const blockUnits = classUnits(units)
      const sizeClass = classOf(blockUnits)
      const record = records.acquire()
      records.words[(record << 4) | Word.units] = blockUnits
      records.words[(record << 4) | Word.sizeClass] = sizeClass
      cache.meet(0)
      cache.handOut(0, record)
      const block = cache.blockOf(record)
      block.mark = 0
      assert.ok(cache.put(block), `${units} units`)
      cache['stackOf'](1, sizeClass).giver = cache['stackOf'](0, sizeClass)
      assert.equal(cache.takeElsewhere(1, units, known, known), block, `${units} units`)
    }
  })
})
