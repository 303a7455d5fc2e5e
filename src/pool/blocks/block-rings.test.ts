import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../base/random.js'
import { BlockRings, Tag } from './block-rings.js'
import { type FixedBlock, type FixedBlockOwner, type Ring, State } from './fixed-block.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['HEAP_FUZZ_STEPS'] ?? 20_000)
const KEYS = 4

/** A pool without methods: the rings never call it. */
const server = { blockBytes: 4096 } as FixedBlockOwner

interface Handle {
  readonly allocation: FixedBlock
  readonly tag: number
  readonly block: number
  readonly slack: number
  shared: boolean
}

/** Takes the newest block of a ring, as the pool does: at once if possible, or else after `offer`. */
function takeNewest(blocks: BlockRings, ring: Ring, slack = 0): FixedBlock | null {
  ring.dropTaken()
  if (ring.newest.tag >= Tag.spent && !blocks.offer(ring)) return null
  const block = ring.newest
  blocks.take(block, (block.tag + (Tag.generation + State.live)) | 0, slack)
  return block
}

/** Blocks beside a plain list of their states; keeps every handle ever made. */
class Shadowed {
  readonly blocks = new BlockRings(server)
  readonly held: Handle[] = []
  readonly everyHandle: Handle[] = []
  readonly deferred: Handle[] = []
  /** free blocks from the oldest to the newest, with their stamps */
  private free: { block: number; key: number; stamp: number }[] = []
  /** by key: the latest stamp */
  private readonly clock = new Array<number>(KEYS).fill(1)
  private total = 0
  private peak = 0

  add(count: number): void {
    this.blocks.total += count
    for (let index = 0; index < count; index++) this.free.unshift({ block: this.total + index, key: 0, stamp: 0 })
    this.total += count
  }

  /** Whether there was a block. */
  take(key: number, slack = 0): boolean {
    const { blocks } = this
    const own = this.free.findLast(block => block.key === key) ?? this.free.findLast(block => block.key === 0)
    const allocation = takeNewest(blocks, blocks.ringOf(key), slack)
    assert.equal(allocation !== null, own !== undefined, 'a block of its own or one that depends on nothing')
    if (own === undefined || allocation === null) return false
    assert.equal(allocation.record, own.block, 'the newest block, its own before others')
    this.free.splice(this.free.indexOf(own), 1)
    const handle = { allocation, tag: allocation.tag, block: own.block, slack, shared: false }
    this.held.push(handle)
    this.everyHandle.push(handle)
    this.peak = Math.max(this.peak, this.held.length)
    return true
  }

  put(handle: Handle, key: number, later: boolean): void {
    if (later) this.clock[key]++
    const stamp = key === 0 ? 0 : this.clock[key]
    const { allocation } = handle
    assert.equal(allocation.tag === handle.tag, !handle.shared)
    if (handle.shared) return
    if (key === 0) this.blocks.putSettled(allocation)
    else if (allocation.ring === this.blocks.ringOf(key)) this.blocks.put(allocation, stamp)
    else this.blocks.putInto(this.blocks.ringOf(key), allocation, stamp)
    this.held.splice(this.held.indexOf(handle), 1)
    this.free.push({ block: handle.block, key, stamp })
    assert.notEqual(allocation.tag, handle.tag, 'a second time')
  }

  share(handle: Handle): void {
    this.blocks.share(handle.allocation)
    handle.shared = true
  }

  defer(handle: Handle): void {
    this.blocks.defer(handle.allocation)
    this.held.splice(this.held.indexOf(handle), 1)
    this.deferred.push(handle)
  }

  putDeferred(): void {
    const handle = this.deferred.shift()
    if (handle === undefined) return
    this.blocks.putDeferred(handle.block)
    this.free.push({ block: handle.block, key: 0, stamp: 0 })
  }

  /** Settles a key up to the stamp `before` its latest one. */
  settle(key: number, before: number): number {
    const stamp = this.clock[key] - before
    const settled = this.free.filter(block => block.key === key && block.stamp <= stamp)
    assert.equal(this.blocks.settle(key, stamp), settled.length)
    this.free = this.free.filter(block => !settled.includes(block))
    for (const { block } of settled) this.free.push({ block, key: 0, stamp: 0 })
    return settled.length
  }

  check(): void {
    const { blocks, held } = this
    blocks.check()
    const slack = held.reduce((sum, handle) => sum + handle.slack, 0)
    assert.deepEqual(
      [blocks.total, blocks.live, blocks.peakLive, blocks.slackBytes, blocks.allocations, blocks.settled],
      [
        this.total,
        held.length,
        this.peak,
        slack,
        this.everyHandle.length,
        this.free.filter(block => block.key === 0).length,
      ],
    )
    for (let key = 1; key < KEYS; key++) {
      const stamps = this.free.filter(block => block.key === key).map(block => block.stamp)
      assert.equal(blocks.newestStamp(key), Math.max(0, ...stamps))
    }
    const alive = new Set(held)
    for (const handle of this.everyHandle) {
      const { allocation } = handle
      assert.equal(allocation.isLive(handle.block, handle.tag), alive.has(handle))
      if (alive.has(handle)) assert.deepEqual([allocation.slack, allocation.isShared], [handle.slack, handle.shared])
    }
  }

  /** Asserts that all blocks can be taken again. */
  finish(): void {
    for (const handle of [...this.held]) {
      if (handle.shared) this.defer(handle)
      else this.put(handle, 0, false)
    }
    while (this.deferred.length > 0) this.putDeferred()
    for (let key = 1; key < KEYS; key++) this.settle(key, 0)
    this.check()
    for (let count = 0; count < this.total; count++) assert.equal(this.take(1), true)
    assert.equal(this.take(1), false)
    assert.equal(new Set(this.held.map(handle => handle.block)).size, this.total)
    this.check()
  }
}

test('hands out the lowest block first, then the block that its key freed last', () => {
  const world = new Shadowed()
  world.add(4)
  for (let block = 0; block < 4; block++) world.take(1)
  assert.deepEqual(
    world.held.map(handle => handle.block),
    [0, 1, 2, 3],
  )
  assert.equal(world.take(1), false)
  for (const handle of [...world.held]) world.put(handle, 1, true)
  assert.equal(world.take(2), false, 'another key waits')
  assert.equal(world.take(1), true)
  assert.equal(world.held[0].block, 3)
  assert.equal(world.settle(1, 2), 2, 'those of the first two stamps')
  assert.equal(world.take(2), true)
  world.check()
  world.add(2)
  world.check()
  world.finish()
})

test('handles of an earlier use or of a freed block never match', () => {
  const blocks = new BlockRings(server)
  blocks.total = 1
  const ring = blocks.ringOf(1)
  const block = takeNewest(blocks, ring)!
  const { tag } = block
  assert.deepEqual([block.isLive(0, tag), block.isLive(0, tag + 8)], [true, false])
  blocks.put(block, 1)
  assert.equal(block.isLive(0, tag), false)
  assert.equal(takeNewest(blocks, ring), block)
  assert.deepEqual([block.isLive(0, tag), block.isLive(0, block.tag)], [false, true])
  const again = block.tag
  blocks.share(block)
  assert.equal(block.isLive(0, again), true, 'shared is live')
  assert.notEqual(block.tag, again, 'but not given back like others')
  blocks.check()
  blocks.clear()
  assert.equal(block.isLive(0, again), false)
})

test('a block after its last generation continues as another object', () => {
  for (const left of [0, 1, 3]) {
    const world = new Shadowed()
    world.add(2)
    world.take(1)
    world.held[0].allocation.tag = (2 ** 28 - 1 - left) * 8 + (world.held[0].tag & 7)
    const spent = world.held[0].allocation
    Object.assign(world.held[0], { tag: spent.tag })
    const allocations = new Set<FixedBlock>()
    for (let round = 0; round < 6; round++) {
      world.put(world.held[0], round % 2, round % 2 === 1)
      world.check()
      assert.equal(world.take(1, round), true)
      allocations.add(world.held[0].allocation)
      world.check()
      if (round % 3 !== 2) continue
      world.share(world.held[0])
      world.defer(world.held[0])
      world.putDeferred()
      world.take(1)
    }
    assert.ok([...allocations].some(allocation => allocation !== spent && allocation.record === spent.record))
    world.finish()
  }
})

test('agrees with the model in every sequence of six operations over three blocks and two keys', () => {
  const FIXED = 4
  let sequences = 0
  const play = (choices: readonly number[]): number => {
    const world = new Shadowed()
    world.add(3)
    for (const choice of choices) {
      const { held } = world
      if (choice < 2) world.take(choice + 1, choice * 100)
      else if (choice < FIXED) world.settle(choice - 1, choice & 1)
      else {
        const handle = held[(choice - FIXED) >> 1]
        const key = (choice & 1) + 1
        if (world.everyHandle.length % 4 === 3) {
          world.share(handle)
          world.defer(handle)
          world.putDeferred()
        } else world.put(handle, key, true)
      }
      world.check()
    }
    const branches = FIXED + 2 * world.held.length
    world.finish()
    sequences++
    return branches
  }
  const extend = (prefix: number[]) => {
    const branches = play(prefix)
    if (prefix.length === 6) return
    for (let choice = 0; choice < branches; choice++) extend([...prefix, choice])
  }
  extend([])
  assert.ok(sequences > 10_000, `${sequences} sequences`)
})

test(`random programs against a shadow model, in phases (HEAP_FUZZ_SEED=${SEED} HEAP_FUZZ_STEPS=${STEPS})`, () => {
  const random = new Random(SEED)
  const PROGRAM_STEPS = 500
  const counts = { took: 0, none: 0, put: 0, shared: 0, deferred: 0, settled: 0, added: 0 }
  for (let step = 0; step < STEPS; step += PROGRAM_STEPS) {
    const world = new Shadowed()
    world.add(1 + random.below(60))
    for (let inProgram = 0; inProgram < PROGRAM_STEPS; inProgram++) {
      const allocating = inProgram < PROGRAM_STEPS / 2 ? 0.6 : 0.3
      const dice = random.fraction()
      const key = 1 + random.below(KEYS - 1)
      const handle = world.held[random.below(world.held.length)]
      if (dice < allocating) counts[world.take(key, random.below(3) * 1000) ? 'took' : 'none']++
      else if (dice < 0.92 && handle !== undefined) {
        if (handle.shared) {
          world.defer(handle)
          counts.deferred++
        } else if (random.below(8) === 0) {
          world.share(handle)
          world.put(handle, key, false)
          counts.shared++
        } else {
          world.put(handle, random.below(6) === 0 ? 0 : key, random.below(3) === 0)
          counts.put++
        }
      } else if (dice < 0.96) world.putDeferred()
      else counts.settled += world.settle(key, random.below(3))
      if (random.below(200) === 0) {
        world.add(1 + random.below(40))
        counts.added++
      }
      if (inProgram % 16 === 0) world.check()
    }
    world.finish()
  }
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 10, `${what}: ${count}`)
})
