// A keeper that a service manager starts is killed at each point of a program in turn. It takes longest of its tests.

import assert from 'node:assert/strict'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { kept, read } from '../keeper.fixture.js'
import { TestStore } from './store.fixture.js'

if (process.platform !== 'linux') test('a store', { skip: `needs Linux, not ${process.platform}` }, () => {})
else
  describe('a keeper with a store, killed', () => {
    const store = new TestStore()
    const { start, connect } = store
    after(() => store.remove())
    beforeEach(() => store.begin())
    afterEach(() => store.end())

    test('is killed at any point: acknowledged regions are there, and each call goes on', async () => {
      let kills = 0
      for (let point = 1; ; point++) {
        let keeper = store.manager.start(String(point), 'sendPacket')
        store.keepers.push(keeper)
        let isOver = false
        let isKilled = false
        const listens = await keeper.line()
        const replaced = keeper.ended.then(async () => {
          if (isOver) return
          isKilled = true
          keeper = await start()
        })
        if (listens === null) await replaced
        const [client, other] = [await connect(), await connect()]
        await client.release(await kept(client, 'first', ['f'])) // no process offers it
        const generation = await kept(client, 'second', ['s', 't'])
        await client.drop('first')
        await kept(client, 'first', ['new'])
        assert.deepEqual([await read(other, 'first'), await read(other, 'second')], [['new'], ['s', 't']])
        await other.release(generation)
        await client.release(generation)
        const found = (await other.list()).find(({ name }) => name === 'second')
        isOver = true
        if (isKilled) await replaced
        assert.deepEqual([found?.state, found?.readers], ['ready', []], `point ${point}`)
        await keeper.kill()
        await start()
        assert.deepEqual([await read(other, 'first'), await read(other, 'second')], [['new'], ['s', 't']])
        await store.end()
        store.begin()
        kills += isKilled ? 1 : 0
        if (!isKilled) break
      }
      assert.ok(kills > 20, `${kills} points`)
    })
  })
