// A keeper went away without a store or a successor: processes that have its regions attached bring them to the next.

import assert from 'node:assert/strict'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { closeDescriptor } from '../libraries/system-calls.js'
import { type Offer, offer } from './attachments.js'
import { KeeperClient } from './client.js'
import { Connection } from './connection.js'
import {
  Actor,
  DEVICE,
  held,
  KeeperHere,
  kept,
  LIMITS,
  piecesOf,
  read,
  refused,
  socketFolderOf,
  sourceOf,
} from './keeper.fixture.js'

if (process.platform !== 'linux') test('offers', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  const { path, remove } = socketFolderOf()
  after(remove)

  describe('the next keeper', () => {
    let here: KeeperHere
    const connect = () => here.connect()
    const restart = (...of: Parameters<KeeperHere['restart']>) => here.restart(...of)
    const seen = async (client: KeeperClient) =>
      (await client.list()).map(({ name, version, state, readers }) => [name, version, state, readers.length])
    beforeEach(() => {
      here = new KeeperHere(path)
    })
    afterEach(() => here.end())

    test('gets what is attached, once, without a request; the rest is lost', async () => {
      const [one, two, operator] = [await connect(), await connect(), await connect()]
      const source = sourceOf(['a', 'b'])
      const generation = await kept(one, 'weights', ['a', 'b'])
      one.hold(generation, source)
      await read(two, 'weights')
      two.hold(generation, source)
      await read(two, 'weights')
      await kept(one, 'unmapped', ['u'])
      const counts = () => [...(here.keeper.regions.generations.get(generation)?.readers.values() ?? [])]
      for (let times = 0; times < 2; times++) {
        await restart()
        while (counts().reduce((sum, count) => sum + count, 0) < 3) await operator.list()
        assert.deepEqual(await seen(operator), [['weights', 'v1', 'ready', 1]])
      }
      assert.deepEqual(await read(operator, 'weights'), ['a', 'b'])
      await operator.release(generation)
      await two.release(generation)
      assert.deepEqual(counts().sort(), [1, 1])
      await two.release(generation, source)
      assert.deepEqual(counts(), [1])
      await one.release(generation, source)
      assert.deepEqual(await seen(operator), [['weights', 'v1', 'ready', 0]])
      assert.ok((await kept(operator, 'next', ['n'])) > generation)
    })

    test('has the highest generation of a name ready, whatever comes first', async () => {
      const options = { timeoutMs: 60_000, what: 'offer' }
      const offers = [1, 2].map((generation): Offer => {
        const facts = { generation, name: 'weights', version: `v${generation}`, device: DEVICE, labels: {}, bytes: 1 }
        return { ...facts, isRetired: false, source: sourceOf([String(generation)]) }
      })
      for (const order of [offers, [...offers].reverse()]) {
        await restart()
        const connections = [await Connection.open(path, options), await Connection.open(path, options)]
        for (const [index, each] of order.entries()) await offer(connections[index]!, [each], options)
        const client = await connect()
        assert.deepEqual((await seen(client)).sort(), [
          ['weights', 'v1', 'retired', 1],
          ['weights', 'v2', 'ready', 1],
        ])
        assert.deepEqual(await read(client, 'weights'), ['2'])
        for (const connection of connections) connection!.end()
      }
    })

    test('does not make ready again what was dropped', async () => {
      const [client, operator] = [await connect(), await connect()]
      const generation = await held(client, 'weights', ['x'])
      await held(client, 'forced', ['x'])
      await operator.drop('weights')
      await operator.drop('forced', { force: true })
      await client.list() // the news has come
      await restart()
      assert.deepEqual(await seen(client), [['weights', 'v1', 'retired', 1]])
      await client.release(generation)
      await client.release(generation, sourceOf(['other'])) // not its source
      assert.deepEqual(await seen(client), [['weights', 'v1', 'retired', 1]])
    })

    test('refuses what is too much for it, and what the driver does not give; its clients go on', async () => {
      const client = await connect()
      await held(client, 'large', ['large enough'])
      await held(client, 'small', ['x'])
      const lost = await kept(client, 'lost', ['x'])
      client.hold(lost, () => assert.fail('the device is gone'))
      await restart({ ...LIMITS, maxBytes: 5 })
      assert.deepEqual(await seen(client), [['small', 'v1', 'ready', 1]])
    })

    test('takes a set that could not be committed as a whole, or not at all', async () => {
      const client = await connect()
      const begin = async (name: string) => {
        const found = await client.find({ name, purpose: 'fill', bytes: 5, device: DEVICE, labels: { a: 'b' } })
        const pieces = piecesOf('12345')
        return { generation: found.generation, pieces, bytes: 5, directory: new Uint8Array(0) }
      }
      const set = [await begin('one'), await begin('two')]
      await restart({ ...LIMITS, maxRegions: 1 })
      await assert.rejects(client.commit(set), refused('quota', /'two' is one more than the 1 regions/))
      assert.deepEqual(await seen(client), [])
      await restart()
      await client.commit(set)
      for (const { pieces } of set) for (const each of pieces) closeDescriptor(each.descriptor)
      assert.deepEqual(
        (await client.list()).map(({ name, labels }) => [name, labels]),
        [
          ['one', { a: 'b' }],
          ['two', { a: 'b' }],
        ],
      )
    })

    test('refuses offers that do not fit together', async () => {
      const options = { timeoutMs: 60_000, what: 'offer' }
      const connection = (await Connection.open(path, options))!
      const client = await connect()
      const generation = await kept(client, 'weights', ['x'])
      const facts = { generation: 5, name: 'n', version: 'v1', device: DEVICE, labels: {}, bytes: 9, retired: false }
      const [{ descriptor }] = piecesOf('x')
      const ask = (set: object[], descriptors: number[] = []) =>
        connection.request('offer', { set }, { ...options, descriptors })
      const part = { ...facts, sizes: [3], directory: false }
      await assert.rejects(ask([part], [descriptor]), refused('protocol', /'n' is not whole/))
      await assert.rejects(ask([part]), refused('protocol', /names other descriptors than it carries/))
      const none = { ...part, sizes: [] }
      await assert.rejects(ask([none, none]), refused('protocol', /named twice/))
      await assert.rejects(ask([{ ...none, generation }]), refused('gone', /is another region now/))
      await assert.rejects(ask([{ ...none, generation: 2 ** 53 - 1 }]), refused('protocol', /generation must be/))
      const directory = { ...facts, bytes: 1, sizes: [], directory: true }
      await assert.rejects(ask([directory], [descriptor]), refused('protocol', /must be a file in memory/))
      closeDescriptor(descriptor)
      connection.end()
    })
  })

  describe('without a keeper', () => {
    const actors: Actor[] = []
    const startKeeper = async (...args: readonly string[]) => {
      const made = new Actor(['keeper', path, ...args])
      actors.push(made)
      assert.equal(await made.line(), 'listens')
      return made
    }
    afterEach(async () => {
      for (const each of actors.splice(0)) await each.kill()
    })

    test('a process ends that has a region attached and waits for nothing', async () => {
      const keeper = await startKeeper()
      const orphan = new Actor(['orphan', path])
      actors.push(orphan)
      assert.equal(await orphan.line(), 'attached')
      await keeper.kill()
      orphan.say('go')
      assert.equal(await orphan.line(), 'goes')
      assert.equal(await orphan.line(), null)
      await orphan.ended
      assert.equal(orphan.process.exitCode, 0)
    })

    test('a client loses nothing that it has attached, at whatever point the keeper is killed', async () => {
      let kills = 0
      for (let point = 1; ; point++) {
        let keeper = await startKeeper(String(point), 'sendPacket')
        let isOver = false
        let isKilled = false
        const replaced = keeper.ended.then(async () => {
          if (isOver) return
          isKilled = true
          keeper = await startKeeper()
        })
        const client = await KeeperClient.open({ path, timeoutMs: 60_000 })
        const first = await held(client, 'weights', ['a', 'b'])
        await held(client, 'weights', ['c'], 'v2')
        assert.deepEqual(await read(client, 'weights'), ['c'])
        const regions = await client.list()
        isOver = true
        if (isKilled) await replaced
        assert.deepEqual(
          regions.map(({ version, state, readers }) => [version, state, readers]),
          [
            ['v1', 'retired', [process.pid]],
            ['v2', 'ready', [process.pid]],
          ],
        )
        assert.equal(regions[0].generation, first)
        client.close()
        await keeper.kill()
        if (!isKilled) break
        kills++
      }
      assert.ok(kills > 8, `${kills} points`)
    })
  })
}
