// Rings with a model beside them, for their tests.

import assert from 'node:assert/strict'
import { BlockRings, Tag } from './block-rings.js'
import { type FixedBlock, type FixedBlockOwner, type Ring, State } from './fixed-block.js'

export const KEYS = 4

/** A pool that is never asked anything. */
export const server = { blockBytes: 4096 } as FixedBlockOwner

interface Handle {
  readonly allocation: FixedBlock
  readonly tag: number
  readonly block: number
  readonly slack: number
  shared: boolean
}

/**
 * Takes the newest block of a ring, as the pool does: at once where that is possible, as it mostly is, or once
 * another one is offered.
 */
export function takeNewest(blocks: BlockRings, ring: Ring, slack = 0): FixedBlock | null {
  ring.dropTaken()
  if (ring.newest.tag >= Tag.spent && !blocks.offer(ring)) return null
  const block = ring.newest
  blocks.take(block, (block.tag + (Tag.generation + State.live)) | 0, slack)
  return block
}

/** Blocks beside a plain list of what each one is; every handle ever made is kept. */
export class Shadowed {
  readonly blocks = new BlockRings(server)
  readonly held: Handle[] = []
  readonly everyHandle: Handle[] = []
  readonly deferred: Handle[] = []
  /** free blocks from the oldest to the newest, and what they depend on */
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

  /** Everything came back when all blocks can be taken again. */
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
