// Keepers, writers and readers that are killed at any time: regions are whole or absent, and nothing stays behind.

import assert from 'node:assert/strict'
import { after, afterEach, describe, test } from 'node:test'
import { KeepError } from '../base/errors.js'
import { KeeperClient } from './client.js'
import { Actor, commit, contents, DEVICE, leased, openFiles, read, refused, socketFolderOf } from './keeper.fixture.js'

const WAIT = { timeoutMs: 60_000 }
const WHOLE = ['first', 'second']

if (process.platform !== 'linux') test('killed processes', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('processes that end', () => {
    const { path, remove } = socketFolderOf()
    after(remove)
    const wanted = { name: 'weights', version: 'v1', bytes: 1000, device: DEVICE }
    const actors: Actor[] = []
    const clients: KeeperClient[] = []
    const actor = (...args: readonly string[]) => {
      const made = new Actor(args)
      actors.push(made)
      return made
    }
    const connect = async () => {
      const client = await KeeperClient.open({ path, ...WAIT })
      clients.push(client)
      return client
    }
    const startKeeper = async (...args: readonly string[]) => {
      const made = actor('keeper', path, ...args)
      assert.equal(await made.line(), 'listens')
      return made
    }
    afterEach(async () => {
      for (const client of clients.splice(0)) client.close()
      for (const each of actors.splice(0)) await each.kill()
    })
    /** Fulfilled once a region is gone. */
    const goneFrom = (client: KeeperClient) =>
      new Promise<void>(resolve => {
        client.watch(({ kind }) => (kind === 'gone' ? resolve() : undefined))
      })

    test('a writer that is killed before its commit leaves the region to the next in the queue', async () => {
      await startKeeper()
      const writer = actor('lazy', path, 'weights')
      assert.equal(await writer.line(), 'leased')
      const client = await connect()
      const waiting = client.find({ ...wanted, purpose: 'fill' })
      const reading = client.find({ ...wanted, purpose: 'read' })
      await client.list()
      await writer.kill()
      const { generation, kind } = await waiting
      assert.equal(kind, 'lease')
      await commit(client, generation, ['filled anew'])
      assert.deepEqual(await read(client, 'weights'), ['filled anew'])
      assert.deepEqual(contents(await reading), ['filled anew'])
    })

    test('readers of a killed writer learn that the region is unfinished', async () => {
      await startKeeper()
      const writer = actor('lazy', path, 'weights')
      await writer.line()
      const client = await connect()
      const reading = assert.rejects(
        client.find({ ...wanted, purpose: 'read' }),
        refused(
          'unfinished',
          new RegExp(`: process ${writer.process.pid} began it, and did not commit it; fill it with region`),
        ),
      )
      await client.list()
      await writer.kill()
      await reading
      const [{ state, writer: pid }] = await client.list()
      assert.deepEqual([state, pid], ['unfinished', writer.process.pid])
      assert.equal((await client.prune({ unfinished: true })).length, 1)
      await assert.rejects(client.find({ ...wanted, purpose: 'read' }), refused('absent', /is not kept/))
    })

    test('a region outlives its writer, and each reader that is killed counts no more', async () => {
      await startKeeper()
      const writer = actor('writer', path, 'weights')
      await writer.line()
      assert.equal(await writer.line(), 'ready')
      const client = await connect()
      const found = await client.find({ ...wanted, purpose: 'read' })
      const gone = goneFrom(client)
      await client.drop('weights')
      await client.release(found.generation)
      assert.deepEqual((await client.list())[0].readers, [writer.process.pid])
      await writer.kill()
      await gone
      assert.deepEqual(contents(found), WHOLE)
      assert.deepEqual(await client.list(), [])
    })

    test('a writer that is killed at any point leaves a whole region, or none', async () => {
      const keeper = await startKeeper()
      const client = await connect()
      const usual = openFiles(keeper.process.pid!)
      const seen = { unfinished: 0, ready: 0 }
      for (let point = 1; ; point++) {
        const writer = actor('writer', path, `region ${point}`, String(point))
        const lines: (string | null)[] = []
        while (!lines.includes(null) && !lines.includes('ready')) lines.push(await writer.line())
        if (lines.includes(null)) await writer.ended
        const regions = await client.list()
        const state = regions.find(({ name }) => name === `region ${point}`)?.state
        if (lines.includes('ready')) assert.equal(state, 'ready')
        if (state === 'ready') assert.deepEqual(await read(client, `region ${point}`), WHOLE)
        else assert.ok(state === undefined || state === 'unfinished', state)
        if (state === 'ready' || state === 'unfinished') seen[state]++
        if (!lines.includes(null)) break
      }
      assert.ok(seen.unfinished > 1 && seen.ready > 1, JSON.stringify(seen))
      for (const each of actors.filter(other => other !== keeper)) await each.kill()
      const operator = await connect()
      client.close()
      await operator.prune({ all: true })
      assert.deepEqual(await operator.list(), [])
      operator.close()
      await (await connect()).list()
      assert.equal(openFiles(keeper.process.pid!), usual, 'the keeper should have closed all that it got')
    })

    test('a keeper that is killed at any point is replaced, and clients go on', async () => {
      for (let point = 1; ; point++) {
        let keeper = await startKeeper(String(point))
        let kills = 0
        let isOver = false
        const replaced = keeper.ended.then(async () => {
          if (isOver) return
          kills++
          keeper = await startKeeper()
        })
        const client = await connect()
        const texts = await workWith(client)
        assert.deepEqual(texts, WHOLE)
        isOver = true
        if (kills > 0) await replaced
        await keeper.kill()
        if (kills === 0) {
          assert.ok(point > 10, `${point} points`)
          break
        }
      }
    })

    /** Keeps a region, reads it and lists it. After a keeper without a store has ended, it begins again. */
    async function workWith(client: KeeperClient): Promise<string[]> {
      for (;;) {
        try {
          const generation = await leased(client, 'weights')
          await commit(client, generation, WHOLE)
          const texts = await read(client, 'weights')
          await client.release(generation)
          await client.list()
          return texts
        } catch (error) {
          const isGone = error instanceof KeepError && (error.code === 'gone' || error.code === 'absent')
          if (!isGone) throw error
        }
      }
    }

    test('a keeper that is stopped is not waited for without end', async () => {
      const keeper = await startKeeper()
      const client = await KeeperClient.open({ path, timeoutMs: 300 })
      clients.push(client)
      keeper.process.kill('SIGSTOP')
      await assert.rejects(
        client.list(),
        refused('timeout', /^list: the keeper does not answer; it was given up after/),
      )
      await assert.rejects(
        KeeperClient.open({ path, timeoutMs: 20 }),
        refused('timeout', /^the keeper at .*, process \d+, does not answer: it is stopped or busy; it was given up/),
      )
      keeper.process.kill('SIGCONT')
      assert.deepEqual(await client.list(), [])
    })

    test('a program ends if its client waits for no answer', async () => {
      await startKeeper()
      const program = actor('idle', path)
      assert.equal(await program.line(), 'idle')
      assert.equal(await program.line(), null)
      await program.ended
      assert.equal(program.process.exitCode, 0)
    })
  })
}
