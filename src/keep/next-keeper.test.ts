// A keeper goes away without a store: regions that are open in a process come back with the next keeper.

import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { LIMITS, openFiles, refused, socketFolderOf } from '../core/keeper/keeper.fixture.js'
import { Keeper } from '../core/keeper/keeper.js'
import { openKeep } from './keep.js'

const none = () => assert.fail('nothing is to be filled')

test('regions that are open come back with the next keeper', {
  skip: process.platform !== 'linux' && `needs Linux, not ${process.platform}`,
}, async t => {
  const { folder, path, remove } = socketFolderOf()
  t.after(remove)
  const machine = join(folder, 'machine')
  mkdirSync(machine, { mode: 0o700 })
  const open = () => openDevice(new SimulatedDriver({ machine, capacityBytes: 64 * MiB, progress: 'eager' }))
  const [device, other, third] = [open(), open(), open()]
  const start = () => {
    const keeper = new Keeper({ path, limits: LIMITS })
    return { keeper, running: keeper.run() }
  }
  let { keeper, running } = start()
  const restart = async () => {
    keeper.end()
    await running
    const next = start()
    ;({ keeper, running } = next)
  }
  const [keep, readers] = [await openKeep(device, { path }), await openKeep(other, { path })]
  const options = { bytes: 4 * KiB, version: 'v1', labels: { team: 'a' } }
  const words = Uint32Array.of(1, 2, 3)

  await t.test('with their contents, also from a reader whose memory was imported', async () => {
    const made = await keep.region('weights', options, filling => void filling.put('words', words))
    const read = await readers.attach('weights')
    const files = openFiles()
    made.close()
    await restart()
    const again = await readers.attach('weights')
    assert.deepEqual(await again.array('words', Uint32Array).read(), words)
    again.close()
    const [{ generation, labels }] = await readers.list()
    assert.deepEqual([generation, labels], [read.generation, { team: 'a' }])
    using finder = await openKeep(third, { path })
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
    await restart()
    assert.deepEqual(await readers.list(), [])
    await assert.rejects(keep.attach('weights'), refused('absent', /is not kept/))
  })

  await t.test('and a region is committed to it that was begun before', async () => {
    const filling = await keep.begin('begun', options)
    filling.put('words', words)
    await restart()
    const [region] = await keep.commit([filling])
    const found = await keep.attach('begun')
    assert.deepEqual(await found.array('words', Uint32Array).read(), words)
    assert.equal(region.generation, found.generation)
  })

  for (const each of [keep, readers]) each.close()
  for (const each of [device, third]) each.close()
  keeper.end()
  await running
})
