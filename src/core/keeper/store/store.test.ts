// Keepers that a service manager starts, and that are killed: acknowledged regions are there after the next start.

import assert from 'node:assert/strict'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { memoryFile } from '../../libraries/sealed-memory.js'
import { closeDescriptor } from '../../libraries/system-calls.js'
import { Actor, commit, contents, DEVICE, kept, leased, openFiles, read, refused } from '../keeper.fixture.js'
import { TestStore } from './store.fixture.js'

if (process.platform !== 'linux') test('a store', { skip: `needs Linux, not ${process.platform}` }, () => {})
else
  describe('a keeper with a store', () => {
    const store = new TestStore()
    const { path, start, connect } = store
    after(() => store.remove())
    beforeEach(() => store.begin())
    afterEach(() => store.end())

    test('has its regions again after SIGKILL, and its clients go on', async () => {
      const keeper = await start()
      const client = await connect()
      const texts = Array.from({ length: 40 }, (_, index) => `piece ${index}`)
      const generation = await kept(client, 'weights', texts)
      await client.release(await kept(client, 'unused', ['u']))
      const next = await leased(client, 'next')
      await client.list() // the keeper has stored the lease before
      await keeper.kill()
      await start()
      const regions = await client.list()
      assert.deepEqual(
        regions.map(({ name, state, readers }) => [name, state, readers]),
        [
          ['weights', 'ready', [process.pid]],
          ['unused', 'ready', []],
          ['next', 'unfinished', []],
        ],
      )
      assert.deepEqual([await read(client, 'weights'), await read(await connect(), 'unused')], [texts, ['u']])
      await commit(client, next, ['n'])
      assert.deepEqual(await read(client, 'next'), ['n'])
      assert.ok((await leased(client, 'another')) > next)
      await client.release(generation)
      await client.release(generation)
      assert.deepEqual((await client.list())[0].readers, [])
    })

    test('stores the regions that are ready, and the state', async () => {
      const keeper = await start()
      const client = await connect()
      const first = await kept(client, 'weights', ['one', 'two'])
      assert.deepEqual(
        store.manager.names,
        [0, 1, 2]
          .map(each => `${first.toString(36)}.${each}`)
          .concat('state')
          .sort(),
      )
      await client.drop('weights')
      assert.equal((await client.list())[0].state, 'retired')
      const second = await kept(client, 'weights', ['three'])
      assert.deepEqual(
        store.manager.names,
        [0, 1]
          .map(each => `${second.toString(36)}.${each}`)
          .concat('state')
          .sort(),
      )
      await client.release(second)
      await client.abandon(await leased(client, 'unfinished'))
      await client.prune({ all: true })
      await kept(client, 'other', ['x']) // its barrier comes after the removals
      assert.equal(store.manager.stored.length, 3)
      await client.prune({ all: true }) // of the mark
      await client.abandon(await leased(client, 'unfinished'))
      await client.prune({ unfinished: true })
      await keeper.kill()
      await start()
      assert.deepEqual(
        (await client.list()).map(({ name }) => name),
        ['other'],
      )
    })

    test('answers a commit after the manager has its memory, and serves others meanwhile', async () => {
      await start()
      const [client, other] = [await connect(), await connect()]
      const generation = await leased(client, 'weights')
      store.manager.told.length = 0
      store.manager.isSlow = true
      let isDone = false
      const committing = commit(client, generation, ['x']).then(() => {
        isDone = true
      })
      while (!store.manager.told.includes('BARRIER=1')) await other.list()
      assert.equal((await other.list())[0].state, 'committing')
      const reading = other.find({ name: 'weights', purpose: 'read', device: DEVICE })
      await other.list()
      assert.ok(!isDone)
      store.manager.hurry()
      await committing
      assert.deepEqual(contents(await reading), ['x'])
    })

    test('answers what frees memory, and a lease, after the manager has let go of that memory', async () => {
      await start()
      const [client, other] = [await connect(), await connect()]
      for (const name of ['a', 'b', 'c']) await client.release(await kept(client, name, ['x']))
      const wanted = { name: 'c', version: 'v2', purpose: 'fill', bytes: 1, device: DEVICE } as const
      const calls = [() => client.drop('a'), () => client.prune({ name: 'b' }), () => client.find(wanted)]
      for (const call of calls) {
        store.manager.told.length = 0
        store.manager.isSlow = true
        let isDone = false
        const calling = call().then(() => {
          isDone = true
        })
        while (!isDone && !store.manager.told.includes('BARRIER=1')) await other.list()
        await other.list()
        assert.ok(!isDone, `${call}`)
        store.manager.hurry()
        await calling
      }
      assert.deepEqual(store.manager.names.filter(name => name !== 'state').length, 2, 'a piece and a directory of c')
    })

    test('has whole regions or none of writers that were killed at any point, after its own end, too', async () => {
      const keeper = await start()
      const client = await connect()
      const states = async () => (await client.list()).map(({ name, state }) => `${name} ${state}`)
      for (let point = 1; ; point++) {
        const writer = new Actor(['writer', path, `region ${point}`, String(point)])
        const lines: (string | null)[] = []
        while (!lines.includes(null) && !lines.includes('ready')) lines.push(await writer.line())
        await writer.kill()
        if (lines.includes('ready')) break
      }
      while ((await states()).some(each => /filling|committing/.test(each))) await client.list()
      const before = await states()
      await keeper.kill()
      await start()
      assert.deepEqual((await states()).sort(), before.sort())
      const ready = before.filter(each => each.endsWith(' ready'))
      assert.ok(ready.length > 1 && ready.length < before.length, before.join())
      for (const each of ready) assert.deepEqual(await read(client, each.slice(0, -6)), ['first', 'second'])
    })

    test('takes no memory that its state does not know, and removes it', async () => {
      store.manager.storeOther('zz.0')
      store.manager.storeOther('a name')
      const keeper = await start()
      const client = await connect()
      await kept(client, 'weights', ['x'])
      assert.equal(store.manager.stored.length, 3)
      assert.ok(store.manager.told.includes('FDSTOREREMOVE=1\nFDNAME=a name'))
      assert.ok(openFiles(keeper.process.pid!) < 40)
    })

    test('loses a region as a whole if the manager has dropped a descriptor of it', async () => {
      const keeper = await start()
      const client = await connect()
      const descriptor = memoryFile('piece')
      for (const name of ['one', 'two']) {
        const found = await client.find({ name, purpose: 'fill', bytes: 10, device: DEVICE })
        const pieces = [{ descriptor, bytes: 10 }]
        await client.commit([{ generation: found.generation, pieces, bytes: 10, directory: Buffer.from(name) }])
      }
      closeDescriptor(descriptor)
      client.close()
      await keeper.kill()
      await start()
      const other = await connect()
      assert.deepEqual(
        (await other.list()).map(each => each.name),
        ['one'],
      )
      await kept(other, 'two', ['anew'])
    })

    test('says when it is ready and when it ends, and leaves the socket to the store.manager', async () => {
      const keeper = await start()
      const client = await connect()
      await kept(client, 'weights', ['x'])
      client.close()
      keeper.process.kill('SIGTERM')
      await keeper.ended
      assert.equal(keeper.process.exitCode, 0)
      assert.deepEqual(
        store.manager.told.filter(text => /READY|STOPPING/.test(text)),
        ['READY=1', 'STOPPING=1'],
      )
      const waiting = connect() // in the queue of the socket
      await start()
      assert.deepEqual(await read(await waiting, 'weights'), ['x'])
    })

    test('is not taken over from by hand', async () => {
      await start()
      const { Keeper } = await import('../keeper.js')
      const options = { path, limits: { maxBytes: null, maxRegions: 1, maxDescriptors: 10 } }
      await assert.rejects(Keeper.takeOver(options), refused('protocol', /a service manager has started the keeper/))
      assert.deepEqual(await (await connect()).list(), [])
    })
  })
