import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Shadowed, server, takeNewest } from './block-rings.fixture.js'
import { BlockRings } from './block-rings.js'
import type { FixedBlock } from './fixed-block.js'

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
