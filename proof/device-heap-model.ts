// A model of the heap of cuda/cuda_mempool.cuh over modelled cells, function by function under the same names. It is
// small enough to enumerate schedules. A group of threads that allocates together is one thread here, which wants
// several blocks. A shadow, invisible to the threads, records the owner of each block. A rule can be broken on
// purpose. The file is long because it follows the heap, to be read beside it.

import assert from 'node:assert/strict'
import { Cells, type Steps } from './device-atomics.js'

export type DeviceRule =
  | 'reserve before searching'
  | 'a set bit is a block in use'
  | 'maps lie outside the superblocks'
  | 'clear the bit before raising the count'
  | 'change tags by adding'
  | 'list by compare-and-swap'
  | 'give back only what is full as a whole'
  | 'look again before leaving'
  | 'look at the bit that a free clears'
  | 'lower the count of the idle'
  | 'look at each superblock before giving up'
  | 'give back what slots keep'
  | 'count batches that are not full'
  | 'raise by the bits that were set'
  // Each fence that keeps an operation without a result from arriving too late.
  | 'a fence before listing a new superblock'
  | 'a fence before filling a slot'
  | 'a fence behind the word of a run'
  | 'a fence before giving back'
  | 'a fence before looking at a word without members'

export interface HeapSize {
  readonly superblocks: number
  /** blocks in a superblock of each class */
  readonly capacities: readonly number[]
  /** a power of two */
  readonly slots: number
  /** slots that a thread looks at before it takes a superblock for itself (1) */
  readonly patience?: number
  /** slots that a thread looks at before it gives up (three more than twice their number) */
  readonly tries?: number
  /** groups of threads that count apart (1) */
  readonly stripes?: number
  /** idle superblocks that are counted together (1) */
  readonly batch?: number
  /** slots keep superblocks without blocks in use, as in a large heap (false) */
  readonly keeps?: boolean
}

export interface Block {
  readonly superblock: number
  /** RUN for a whole superblock */
  readonly sizeClass: number
  readonly index: number
}

interface Grant {
  readonly superblock: number
  readonly ticket: number
  readonly count: number
}

const enum State {
  Idle,
  Small,
  Run,
}

const enum Place {
  Loose,
  Listed,
  Attached,
}

/** bits of a cell: few, so that a small heap has several cells */
const MAP_BITS = 2
const FULL = (1 << MAP_BITS) - 1
const SET_BITS = 2
const EMPTY = -1
const BUSY = -2
const NO_SLOT = -1
const NONE = -1
const RUN = -1
/** stands for the index of a run's only block in the shadow */
const WHOLE = 999
const NOTHING: Grant = { superblock: 0, ticket: 0, count: 0 }

const TAG = 2 ** 16
const BIAS = 2 ** 15
const tagOf = (word: number) => Math.floor(word / TAG)
const freeBlocksOf = (word: number) => (word % TAG) - BIAS
const stateOf = (word: number): State => tagOf(word) >> 10
const placeOf = (word: number): Place => (tagOf(word) >> 8) & 3
const slotOf = (word: number) => (tagOf(word) >> 4) & 15
const classOf = (word: number) => tagOf(word) & 15
const smallTag = (sizeClass: number, place: Place, slot: number) =>
  (State.Small << 10) | (place << 8) | (slot << 4) | sizeClass
const retagged = (word: number, tag: number) => tag * TAG + (word % TAG)

const keyOf = ({ superblock, sizeClass, index }: Block) => superblock * 1000 + (sizeClass === RUN ? WHOLE : index)

export class DeviceHeapModel {
  readonly cells: Cells
  /** the owner of each block, by superblock and index */
  private readonly owners = new Map<number, number>()
  /** requests that were refused because the heap looked full, and not for the number of tries */
  private refusedAsFull = 0
  private readonly mapCells: number
  private readonly setCells: number
  private readonly doubleFreesAt: number
  private readonly mapsAt: number
  /** of the cells with members in each set */
  private readonly countsAt: number
  private readonly idleCountAt: number
  private readonly returnedAt: number
  private readonly slotsAt: number
  private readonly setsAt: number
  private readonly contentsAt: number

  constructor(
    private readonly size: HeapSize,
    private readonly broken: DeviceRule | null = null,
  ) {
    const { superblocks, capacities, slots, stripes = 1 } = size
    this.mapCells = Math.ceil(Math.max(...capacities) / MAP_BITS)
    this.setCells = Math.ceil(superblocks / SET_BITS)
    this.mapsAt = superblocks
    this.countsAt = this.mapsAt + superblocks * this.mapCells
    this.idleCountAt = this.countsAt + capacities.length + 1
    this.returnedAt = this.idleCountAt + 1
    this.slotsAt = this.returnedAt + stripes
    this.setsAt = this.slotsAt + capacities.length * slots
    // A set is its cells and one cell of summary.
    this.doubleFreesAt = this.setsAt + (capacities.length + 1) * (this.setCells + 1)
    this.contentsAt = this.doubleFreesAt + 1
    this.cells = new Cells(this.contentsAt + superblocks * Math.max(...capacities))
    const { values } = this.cells
    values.fill(BIAS, 0, superblocks)
    values.fill(EMPTY, this.slotsAt, this.setsAt)
    values[this.countsAt + capacities.length] = this.setCells
    values[this.idleCountAt] = superblocks
    for (let index = 0; index < superblocks; index++) {
      values[this.setAt(capacities.length, Math.floor(index / SET_BITS))] |= 1 << (index % SET_BITS)
      values[this.setAt(capacities.length, this.setCells)] |= 1 << Math.floor(index / SET_BITS)
    }
  }

  get doubleFrees(): number {
    return this.cells.values[this.doubleFreesAt]
  }

  /** The running thread, which owns the block, writes to it. */
  write(block: Block, value: number): void {
    this.cells.write(this.contentsOf(block), value)
  }

  read(block: Block): number {
    return this.cells.read(this.contentsOf(block))
  }

  get requestsRefusedAsFull(): number {
    return this.refusedAsFull
  }

  get liveBlocks(): number {
    return this.owners.size
  }

  isTaken(block: Block): boolean {
    return this.owners.has(keyOf(block))
  }

  /** Up to `wanted` blocks; fewer only if no more are found. */
  *allocate(thread: number, sizeClass: number, wanted: number): Steps<Block[]> {
    const blocks: Block[] = []
    for (let turn = 0; turn < 16 && blocks.length < wanted; turn++) {
      const grant = yield* this.obtain(thread, sizeClass, wanted - blocks.length)
      if (grant.count === 0) break
      blocks.push(...(yield* this.claim(thread, sizeClass, grant)))
    }
    return blocks
  }

  /** A whole superblock, which its owner overwrites completely; null if no superblock is idle. */
  *allocateRun(thread: number): Steps<Block | null> {
    let superblock = yield* this.takeRun()
    let gives = true
    for (let tries = 0; superblock === NONE && gives && tries < 2; tries++) {
      gives = yield* this.sweep()
      superblock = yield* this.takeRun()
    }
    if (superblock === NONE) return null
    const block = { superblock, sizeClass: RUN, index: 0 }
    this.owners.set(keyOf(block), thread)
    yield* this.fence('a fence behind the word of a run')
    for (let cell = 0; cell < this.mapCells && this.broken === 'maps lie outside the superblocks'; cell++) {
      yield* this.cells.store(this.mapAt(superblock, cell), (1 << MAP_BITS) - 1)
    }
    return block
  }

  private *takeRun(): Steps<number> {
    const idle = this.size.capacities.length
    if ((yield* this.reserveIdle()) === 0) return NONE
    const superblock = yield* this.find(idle, 0)
    if (superblock === NONE) yield* this.cells.reduceAdd(this.idleCountAt, 1)
    else yield* this.cells.reduceAdd(superblock, (State.Run << 10) * TAG)
    return superblock
  }

  /** Frees a block, for the thread that frees `blocks`, which share a cell of the map, at once. */
  *free(...blocks: readonly Block[]): Steps<void> {
    const { superblock, sizeClass, index } = blocks[0]
    const word = yield* this.cells.load(superblock)
    yield* this.fence('a fence before giving back')
    // Only the first block of a superblock has an address that is valid in every class.
    if (stateOf(word) !== State.Small || (classOf(word) !== sizeClass && index !== 0)) {
      if (stateOf(word) !== State.Run || index !== 0) yield* this.cells.reduceAdd(this.doubleFreesAt, blocks.length)
      else yield* this.freeRun(superblock, word)
      return
    }
    if (this.broken === 'clear the bit before raising the count') yield* this.raise(superblock, blocks.length)
    const map = this.mapAt(superblock, Math.floor(index / MAP_BITS))
    const bits = blocks.reduce((mask, block) => mask | (1 << (block.index % MAP_BITS)), 0)
    // The thread that clears the bits gives the blocks away in that step.
    yield
    const before = this.cells.exchange(map, present => present & ~bits) & bits
    let freed = 0
    for (let bit = 0; bit < MAP_BITS; bit++) {
      if (((before >> bit) & 1) === 0) continue
      this.owners.delete(superblock * 1000 + index - (index % MAP_BITS) + bit)
      freed++
    }
    if (this.broken === 'look at the bit that a free clears') freed = blocks.length
    if (freed < blocks.length) yield* this.cells.reduceAdd(this.doubleFreesAt, blocks.length - freed)
    if (this.broken === 'raise by the bits that were set' && freed !== 0) freed = blocks.length
    if (freed === 0 || this.broken === 'clear the bit before raising the count') return
    yield* this.raise(superblock, freed)
  }

  /** Whether blocks of different threads of a group are freed by one operation. */
  static shareCell(one: Block, other: Block): boolean {
    if (one.sizeClass === RUN || other.sizeClass === RUN || one.superblock !== other.superblock) return false
    return Math.floor(one.index / MAP_BITS) === Math.floor(other.index / MAP_BITS)
  }

  private *freeRun(superblock: number, word: number): Steps<void> {
    let now = word
    while (stateOf(now) === State.Run) {
      yield
      const next = retagged(now, 0)
      const seen = this.cells.exchange(superblock, current => (current === now ? next : current))
      if (seen === now) {
        assert.ok(this.owners.delete(superblock * 1000 + WHOLE))
        yield* this.insert(this.size.capacities.length, superblock)
        return yield* this.cells.reduceAdd(this.idleCountAt, 1)
      }
      now = seen
    }
    yield* this.cells.reduceAdd(this.doubleFreesAt, 1)
  }

  /** Asserts, with no thread at work, that all tables agree and that no block is lost. */
  check(): void {
    const { superblocks, capacities, slots, stripes = 1, batch = 1 } = this.size
    const { values } = this.cells
    let idle = 0
    for (let superblock = 0; superblock < superblocks; superblock++) {
      const word = values[superblock]
      const live = [...this.owners.keys()].filter(key => Math.floor(key / 1000) === superblock).length
      const within = capacities.map((_, sizeClass) => this.has(sizeClass, superblock))
      const isIdle = this.has(capacities.length, superblock)
      if (stateOf(word) === State.Run) {
        assert.equal(freeBlocksOf(word), 0, `the count of run ${superblock} is wrong`)
        assert.ok(!isIdle && !within.includes(true) && live === 1 && this.owners.has(superblock * 1000 + WHOLE))
        continue
      }
      for (let index = 0; index < this.mapCells * MAP_BITS && this.keepsMaps; index++) {
        const set = (values[this.mapAt(superblock, Math.floor(index / MAP_BITS))] >> (index % MAP_BITS)) & 1
        assert.equal(set === 1, this.owners.has(superblock * 1000 + index), `bit ${index} of ${superblock} is wrong`)
      }
      if (stateOf(word) === State.Idle) {
        assert.equal(word, BIAS, `the word of idle superblock ${superblock} should be as at the start`)
        assert.ok(isIdle && !within.includes(true) && live === 0, `superblock ${superblock} is nowhere`)
        idle++
        continue
      }
      const sizeClass = classOf(word)
      assert.equal(freeBlocksOf(word), capacities[sizeClass] - live, `the count of superblock ${superblock} is wrong`)
      const isKept = live > 0 || placeOf(word) === Place.Attached
      assert.ok(isKept, `superblock ${superblock} is empty and was not given back`)
      assert.ok(
        !isIdle && within.every((listed, index) => listed === (placeOf(word) === Place.Listed && index === sizeClass)),
      )
      const held = Array.from({ length: slots }, (_, slot) => values[this.slotAt(sizeClass, slot)])
      assert.equal(held.filter(each => each === superblock).length, placeOf(word) === Place.Attached ? 1 : 0)
      if (placeOf(word) === Place.Loose)
        assert.ok(freeBlocksOf(word) <= 0, `nobody finds room in superblock ${superblock}`)
    }
    for (let index = 0; index <= capacities.length; index++) {
      const members = values.subarray(this.setAt(index, 0), this.setAt(index, this.setCells))
      const present = members.filter(bits => bits !== 0).length
      assert.equal(values[this.countsAt + index], present, `the count of set ${index} is wrong`)
      for (let cell = 0; cell < this.setCells; cell++) {
        const summary = (values[this.setAt(index, this.setCells)] >> cell) & 1
        assert.ok(values[this.setAt(index, cell)] === 0 || summary === 1, `set ${index} hides members`)
      }
    }
    const returned = values.subarray(this.returnedAt, this.returnedAt + stripes)
    const waiting = returned.reduce((sum, count) => sum + (count % batch), 0)
    assert.equal(values[this.idleCountAt] + waiting, idle, 'the count of idle superblocks is wrong')
    assert.ok(idle + Math.ceil(this.owners.size / Math.max(...capacities)) <= superblocks)
    for (let at = this.slotsAt; at < this.setsAt; at++) {
      const superblock = values[at]
      assert.notEqual(superblock, BUSY, 'a slot stays busy')
      if (superblock !== EMPTY) assert.equal(placeOf(values[superblock]), Place.Attached)
    }
  }

  private *obtain(thread: number, sizeClass: number, wanted: number): Steps<Grant> {
    const { slots, patience = 1, tries: most = 2 * slots + 3 } = this.size
    let passed = 0
    for (let tries = 0; tries < most; tries++) {
      let slot = (thread + tries) % slots
      const cell = this.slotAt(sizeClass, slot)
      const current = yield* this.cells.load(cell)
      if (current === BUSY) {
        if (tries < patience || !(yield* this.mayRefill(sizeClass))) continue
        slot = NO_SLOT
      } else {
        if (current !== EMPTY && (tries === 0 || freeBlocksOf(yield* this.cells.load(current)) > 0)) {
          const grant = yield* this.reserve(current, sizeClass, wanted)
          if (grant.count > 0) return grant
        }
        if (passed !== 0 || !(yield* this.mayRefill(sizeClass))) {
          if (++passed < slots) continue
          if (!(yield* this.sweep()) && !(yield* this.hasRoom(sizeClass))) {
            this.refusedAsFull++
            break
          }
          passed = 0
          continue
        }
        if ((yield* this.cells.compareAndSwap(cell, current, BUSY)) !== current) continue
        if (current !== EMPTY) yield* this.place(current, retagged(BIAS, smallTag(sizeClass, Place.Attached, slot)))
      }
      const grant = yield* this.refill(sizeClass, slot, wanted)
      if (slot !== NO_SLOT) {
        yield* this.fence('a fence before filling a slot')
        yield* this.cells.store(cell, grant.count === 0 ? EMPTY : grant.superblock)
      }
      if (grant.count > 0) return grant
    }
    return NOTHING
  }

  /** A fence, unless it is left out to see what happens. */
  private *fence(rule?: DeviceRule): Steps<void> {
    if (rule === undefined || rule !== this.broken) yield* this.cells.fence()
  }

  private *mayRefill(sizeClass: number): Steps<boolean> {
    if ((yield* this.cells.load(this.countsAt + sizeClass)) > 0) return true
    return (yield* this.cells.load(this.idleCountAt)) > 0
  }

  private *hasRoom(sizeClass: number): Steps<boolean> {
    if (this.broken === 'look at each superblock before giving up') return false
    for (let superblock = 0; superblock < this.size.superblocks; superblock++) {
      const word = yield* this.cells.load(superblock)
      if (stateOf(word) === State.Idle) return true
      if (stateOf(word) !== State.Small) continue
      if (this.isFull(word) || (classOf(word) === sizeClass && freeBlocksOf(word) > 0)) return true
    }
    return false
  }

  private *reserve(superblock: number, sizeClass: number, wanted: number): Steps<Grant> {
    const lowered = this.broken === 'reserve before searching' ? 0 : wanted
    const before = yield* this.cells.add(superblock, -lowered)
    const fits = stateOf(before) === State.Small && classOf(before) === sizeClass
    const grant = yield* this.settleGrant(superblock, sizeClass, fits ? freeBlocksOf(before) : 0, wanted)
    if (lowered === 0) yield* this.cells.add(superblock, -grant.count)
    return grant
  }

  private *settleGrant(superblock: number, sizeClass: number, present: number, wanted: number): Steps<Grant> {
    const count = Math.max(0, Math.min(present, wanted))
    if (count < wanted && this.broken !== 'reserve before searching') yield* this.raise(superblock, wanted - count)
    return { superblock, ticket: count === 0 ? 0 : this.size.capacities[sizeClass] - present, count }
  }

  private *refill(sizeClass: number, slot: number, wanted: number): Steps<Grant> {
    const { superblocks } = this.size
    const left = slot === NO_SLOT ? 0 : yield* this.cells.load(this.idleCountAt)
    const tag = slot === NO_SLOT ? smallTag(sizeClass, Place.Listed, 0) : smallTag(sizeClass, Place.Attached, slot)
    if (left <= superblocks / 2) {
      const grant = yield* this.refillWithListed(sizeClass, slot, tag, wanted)
      return grant.count > 0 ? grant : yield* this.refillWithIdle(sizeClass, slot, tag, wanted)
    }
    const grant = yield* this.refillWithIdle(sizeClass, slot, tag, wanted)
    return grant.count > 0 ? grant : yield* this.refillWithListed(sizeClass, slot, tag, wanted)
  }

  private *refillWithListed(sizeClass: number, slot: number, tag: number, wanted: number): Steps<Grant> {
    const listed = smallTag(sizeClass, Place.Listed, 0)
    for (let tries = 0; tries < 4; tries++) {
      if ((yield* this.cells.load(this.countsAt + sizeClass)) <= 0) break
      const found = yield* this.find(sizeClass, 0)
      if (found === NONE) break
      const before = yield* this.cells.add(found, (tag - listed) * TAG - wanted)
      const lowered = this.broken === 'reserve before searching' ? wanted : 0
      if (lowered > 0) yield* this.cells.add(found, lowered - Math.max(0, Math.min(lowered, freeBlocksOf(before))))
      const grant = yield* this.settleGrant(found, sizeClass, freeBlocksOf(before), wanted)
      if (grant.count === 0 || slot === NO_SLOT) yield* this.place(found, retagged(BIAS, tag))
      if (grant.count > 0) return grant
    }
    return NOTHING
  }

  private *refillWithIdle(sizeClass: number, slot: number, tag: number, wanted: number): Steps<Grant> {
    const { superblocks, capacities } = this.size
    const left = yield* this.reserveIdle()
    if (left === 0) return NOTHING
    const found = yield* this.find(capacities.length, superblocks - left)
    if (found === NONE) {
      yield* this.cells.reduceAdd(this.idleCountAt, 1)
      return NOTHING
    }
    const count = Math.min(wanted, capacities[sizeClass])
    if (!this.keepsMaps) yield* this.clearBitmap(found, capacities[sizeClass])
    const lists = slot === NO_SLOT && count < capacities[sizeClass]
    const change =
      (slot !== NO_SLOT || lists ? tag : smallTag(sizeClass, Place.Loose, 0)) * TAG + capacities[sizeClass] - count
    if (this.broken === 'change tags by adding') yield* this.cells.store(found, BIAS + change)
    else yield* this.cells.reduceAdd(found, change)
    if (slot === NO_SLOT) {
      yield* this.fence('a fence before listing a new superblock')
      if (lists) yield* this.insert(sizeClass, found)
    }
    return { superblock: found, ticket: 0, count }
  }

  /** Whether the map of a superblock that has no blocks is clear all the time, as it should be. */
  private get keepsMaps(): boolean {
    return this.broken !== 'a set bit is a block in use' && this.broken !== 'maps lie outside the superblocks'
  }

  /** If maps are not kept clear: clears the map of a superblock that gets a class. */
  private *clearBitmap(superblock: number, capacity: number): Steps<void> {
    for (let cell = 0; cell * MAP_BITS < capacity; cell++) {
      const beyond = this.broken === 'a set bit is a block in use' ? ~this.placesOf(cell, capacity) : 0
      yield* this.cells.store(this.mapAt(superblock, cell), beyond & FULL)
    }
  }

  /** The bits of a map's cell that stand for blocks. */
  private placesOf(cell: number, capacity: number): number {
    const left = capacity - cell * MAP_BITS
    return left >= MAP_BITS ? FULL : (1 << left) - 1
  }

  /** Takes the promised blocks: those that the grant suggests, by one step for each cell, and others for the rest. */
  private *claim(thread: number, sizeClass: number, { superblock, ticket, count }: Grant): Steps<Block[]> {
    const blocks: Block[] = []
    for (let index = ticket; index < ticket + count; ) {
      const cell = Math.floor(index / MAP_BITS)
      const end = Math.min(ticket + count, (cell + 1) * MAP_BITS)
      const bits = ((1 << (end - index)) - 1) << (index % MAP_BITS)
      yield
      const before = this.cells.exchange(this.mapAt(superblock, cell), present => present | bits)
      for (; index < end; index++) {
        if (((before >> (index % MAP_BITS)) & 1) === 0) blocks.push(this.own(thread, { superblock, sizeClass, index }))
      }
    }
    while (blocks.length < count) blocks.push(yield* this.findBlock(thread, sizeClass, superblock))
    return blocks
  }

  private own(thread: number, block: Block): Block {
    assert.ok(!this.owners.has(keyOf(block)), 'a block was handed out twice')
    this.owners.set(keyOf(block), thread)
    return block
  }

  private *findBlock(thread: number, sizeClass: number, superblock: number): Steps<Block> {
    const capacity = this.size.capacities[sizeClass]
    const mapCells = Math.ceil(capacity / MAP_BITS)
    const free = (cell: number, taken: number) =>
      ~taken & (this.broken === 'a set bit is a block in use' ? FULL : this.placesOf(cell, capacity))
    let [cell, clear] = [0, 0]
    for (let tries = 0; tries < 64; tries++) {
      for (let step = 0; clear === 0 && step < mapCells; step++) {
        cell = (cell + 1) % mapCells
        clear = free(cell, yield* this.cells.load(this.mapAt(superblock, cell)))
      }
      if (clear === 0) continue
      const bit = 31 - Math.clz32(clear)
      yield
      const taken = this.cells.exchange(this.mapAt(superblock, cell), bits => bits | (1 << bit))
      if (((taken >> bit) & 1) === 0) return this.own(thread, { superblock, sizeClass, index: cell * MAP_BITS + bit })
      clear = free(cell, taken)
    }
    throw new assert.AssertionError({ message: 'a promised block was not found' })
  }

  private *raise(superblock: number, count: number): Steps<void> {
    const before = yield* this.cells.add(superblock, count)
    const now = before + count
    if (stateOf(now) !== State.Small || freeBlocksOf(now) <= 0) return
    if (placeOf(now) === Place.Listed) yield* this.giveBackListed(superblock, now)
    else if (placeOf(now) === Place.Loose && (freeBlocksOf(before) <= 0 || this.isFull(now))) {
      yield* this.place(superblock, now)
    } else if (placeOf(now) === Place.Attached && this.isFull(now) && !this.size.keeps) {
      yield* this.giveBackAttached(classOf(now), slotOf(now))
    }
  }

  private isFull(word: number): boolean {
    return freeBlocksOf(word) === this.size.capacities[classOf(word)]
  }

  private *giveBackListed(superblock: number, seen: number): Steps<void> {
    let now = seen
    while (stateOf(now) === State.Small && placeOf(now) === Place.Listed && this.isFull(now)) {
      if (!(yield* this.remove(classOf(now), superblock))) return
      if ((yield* this.giveBackFull(superblock, now)) === now) return yield* this.release(superblock)
      yield* this.insert(classOf(now), superblock)
      if (this.broken === 'look again before leaving') return
      now = yield* this.cells.load(superblock)
    }
  }

  private *giveBackFull(superblock: number, now: number): Steps<number> {
    if (this.broken !== 'give back only what is full as a whole') {
      return yield* this.cells.compareAndSwap(superblock, now, BIAS)
    }
    yield* this.cells.store(superblock, BIAS)
    return now
  }

  private *place(superblock: number, guess: number): Steps<void> {
    let now = guess
    const [tag, sizeClass] = [tagOf(guess), classOf(guess)]
    for (;;) {
      const room = freeBlocksOf(now) > 0
      const next = this.isFull(now) ? BIAS : retagged(now, smallTag(sizeClass, room ? Place.Listed : Place.Loose, 0))
      if (this.broken === 'list by compare-and-swap' && placeOf(now) === Place.Loose) {
        yield* this.cells.store(superblock, next)
      } else {
        const current = yield* this.cells.compareAndSwap(superblock, now, next)
        if (current !== now) {
          if (tagOf(current) !== tag) return
          now = current
          continue
        }
      }
      if (next === BIAS) return yield* this.release(superblock)
      if (!room) return
      yield* this.insert(sizeClass, superblock)
      if (this.broken === 'look again before leaving') return
      return yield* this.giveBackListed(superblock, yield* this.cells.load(superblock))
    }
  }

  private *reserveIdle(): Steps<number> {
    if (this.broken === 'lower the count of the idle') return yield* this.cells.load(this.idleCountAt)
    const before = yield* this.cells.add(this.idleCountAt, -1)
    if (before >= 1) return before
    yield* this.cells.reduceAdd(this.idleCountAt, 1)
    return 0
  }

  private *release(superblock: number): Steps<void> {
    const { capacities, stripes = 1, batch = 1 } = this.size
    yield* this.insert(capacities.length, superblock)
    const returned = (yield* this.cells.add(this.returnedAt + (superblock % stripes), 1)) + 1
    if (returned % batch === 0) yield* this.cells.reduceAdd(this.idleCountAt, batch)
  }

  /** Looks at the slots of all classes. */
  private *sweep(): Steps<boolean> {
    const { capacities, slots, stripes = 1, batch = 1 } = this.size
    let any = false
    for (let stripe = 0; stripe < stripes && this.broken !== 'count batches that are not full'; stripe++) {
      const seen = yield* this.cells.load(this.returnedAt + stripe)
      const left = seen % batch
      if (left === 0) continue
      any = true
      if ((yield* this.cells.compareAndSwap(this.returnedAt + stripe, seen, seen - left)) !== seen) continue
      yield* this.cells.reduceAdd(this.idleCountAt, left)
    }
    for (let at = 0; at < capacities.length * slots && this.broken !== 'give back what slots keep'; at++) {
      if (yield* this.giveBackAttached(Math.floor(at / slots), at % slots)) any = true
    }
    return any
  }

  private *giveBackAttached(sizeClass: number, slot: number): Steps<boolean> {
    const cell = this.slotAt(sizeClass, slot)
    const current = yield* this.cells.load(cell)
    if (current === BUSY || current === EMPTY) return current === BUSY
    if (!this.isFull(yield* this.cells.load(current))) return false
    if ((yield* this.cells.compareAndSwap(cell, current, BUSY)) !== current) return true
    const full = retagged(BIAS + this.size.capacities[sizeClass], smallTag(sizeClass, Place.Attached, slot))
    const gives = (yield* this.giveBackFull(current, full)) === full
    yield* this.cells.store(cell, gives ? EMPTY : current)
    if (gives) yield* this.release(current)
    return true
  }

  // The sets of superblocks: one for each class, and the idle ones as the last.

  private *insert(set: number, superblock: number): Steps<void> {
    const cell = Math.floor(superblock / SET_BITS)
    const before = yield* this.cells.or(this.setAt(set, cell), 1 << (superblock % SET_BITS))
    if (before !== 0) return
    yield* this.cells.reduce(this.setAt(set, this.setCells), bits => bits | (1 << cell))
    yield* this.fence()
    yield* this.cells.reduceAdd(this.countsAt + set, 1)
  }

  private *remove(set: number, superblock: number): Steps<boolean> {
    const bit = 1 << (superblock % SET_BITS)
    return ((yield* this.removeBit(set, Math.floor(superblock / SET_BITS), bit)) & bit) !== 0
  }

  private *find(set: number, start: number): Steps<number> {
    let [cell, index] = [Math.floor(start / SET_BITS) % this.setCells, start % SET_BITS]
    for (let tries = 0; tries < 8; tries++) {
      const bit = 1 << index
      let members = yield* this.removeBit(set, cell, bit)
      if ((members & bit) !== 0) return cell * SET_BITS + index
      for (let looks = 0; members === 0 && looks < 8; looks++) {
        if ((yield* this.cells.load(this.countsAt + set)) <= 0) break
        const summary = yield* this.cells.load(this.setAt(set, this.setCells))
        if (summary === 0) break
        do cell = (cell + 1) % this.setCells
        while (((summary >> cell) & 1) === 0)
        members = yield* this.cells.load(this.setAt(set, cell))
        if (members === 0) yield* this.tidy(set, cell)
      }
      if (members === 0) break
      index = 31 - Math.clz32(members)
    }
    return NONE
  }

  private *removeBit(set: number, cell: number, bit: number): Steps<number> {
    const before = yield* this.cells.and(this.setAt(set, cell), ~bit)
    if ((before & bit) !== 0 && (before & ~bit) === 0) {
      yield* this.cells.reduceAdd(this.countsAt + set, -1)
      yield* this.tidy(set, cell)
    }
    return before
  }

  private *tidy(set: number, cell: number): Steps<void> {
    const summary = this.setAt(set, this.setCells)
    yield* this.cells.reduce(summary, bits => bits & ~(1 << cell))
    yield* this.fence('a fence before looking at a word without members')
    if ((yield* this.cells.load(this.setAt(set, cell))) === 0) return
    yield* this.cells.reduce(summary, bits => bits | (1 << cell))
  }

  private has(set: number, superblock: number): boolean {
    const cell = this.cells.values[this.setAt(set, Math.floor(superblock / SET_BITS))]
    return ((cell >> (superblock % SET_BITS)) & 1) === 1
  }

  private setAt(set: number, cell: number): number {
    return this.setsAt + set * (this.setCells + 1) + cell
  }

  private slotAt(sizeClass: number, slot: number): number {
    return this.slotsAt + sizeClass * this.size.slots + slot
  }

  private contentsOf({ superblock, index }: Block): number {
    return this.contentsAt + superblock * Math.max(...this.size.capacities) + index
  }

  private mapAt(superblock: number, cell: number): number {
    return this.mapsAt + superblock * this.mapCells + cell
  }
}
