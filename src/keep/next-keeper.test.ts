// A keeper goes away without a store: regions that are open in a process come back with the next keeper.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KiB } from '../core/base/bytes.js'
import { openFiles, refused } from '../core/keeper/keeper.fixture.js'
import { KeepWorld, none } from './keep.fixture.js'

test('regions that are open come back with the next keeper', {
  skip: process.platform !== 'linux' && `needs Linux, not ${process.platform}`,
}, async t => {
  const world = new KeepWorld()
  t.after(() => world.discard())
  const [device, other, third] = [world.openDevice(), world.openDevice(), world.openDevice()]
  const [keep, readers] = [await world.openKeep(device), await world.openKeep(other)]
  const options = { bytes: 4 * KiB, version: 'v1', labels: { team: 'a' } }
  const words = Uint32Array.of(1, 2, 3)

  await t.test('with their contents, also from a reader whose memory was imported', async () => {
    const made = await keep.region('weights', options, filling => void filling.put('words', words))
    const read = await readers.attach('weights')
    const files = openFiles()
    made.close()
    await world.restart()
    const again = await readers.attach('weights')
    assert.deepEqual(await again.array('words', Uint32Array).read(), words)
    again.close()
    const [{ generation, labels }] = await readers.list()
    assert.deepEqual([generation, labels], [read.generation, { team: 'a' }])
    const finder = await world.openKeep(third)
    const found = await finder.region('weights', options, none)
    assert.deepEqual(await found.array('words', Uint32Array).read(), words)
    assert.equal(found.generation, read.generation)
    assert.ok(openFiles() >= files)
    found.close()
    assert.deepEqual((await finder.list())[0].readers, [process.pid])
    read.close()
    assert.deepEqual((await readers.list())[0].readers, [])
  })

  await t.test('unless their device was closed', async () => {
    const region = await readers.attach('weights')
    other.close()
    assert.ok(region.closed)
    await world.restart()
    assert.deepEqual(await readers.list(), [])
    await assert.rejects(keep.attach('weights'), refused('absent', /is not kept/))
  })

  await t.test('and a region is committed to it that was begun before', async () => {
    const filling = await keep.begin('begun', options)
    filling.put('words', words)
    await world.restart()
    const [region] = await keep.commit([filling])
    const found = await keep.attach('begun')
    assert.deepEqual(await found.array('words', Uint32Array).read(), words)
    assert.equal(region.generation, found.generation)
  })

  await world.end()
})
