// A keeper is replaced while it has clients: those that fill, wait, read and watch go on. Either of both keepers is
// killed at each point.

import assert from 'node:assert/strict'
import { after, afterEach, describe, test } from 'node:test'
import type { KeepError } from '../base/errors.js'
import { UnixSocket } from '../libraries/unix-socket.js'
import { KeeperClient } from './client.js'
import {
  Actor,
  Clients,
  commit,
  contents,
  DEVICE,
  kept,
  leased,
  openFiles,
  read,
  refused,
  socketFolderOf,
} from './keeper.fixture.js'

if (process.platform !== 'linux') test('a successor', { skip: `needs Linux, not ${process.platform}` }, () => {})
else {
  describe('a hand-over', () => {
    const { path, remove } = socketFolderOf()
    after(remove)
    const wanted = { version: 'v1', bytes: 1000, device: DEVICE }
    const actors: Actor[] = []
    const clients = new Clients(path)
    const start = async (role: 'keeper' | 'successor', ...args: readonly string[]) => {
      const made = new Actor([role, path, ...args])
      actors.push(made)
      assert.equal(await made.line(), 'listens')
      return made
    }
    const connect = () => clients.connect()
    afterEach(async () => {
      clients.close()
      for (const each of actors.splice(0)) await each.kill()
    })

    test('a successor has the regions, leases, queues and clients, who notice nothing', async () => {
      const keeper = await start('keeper')
      const [one, two] = [await connect(), await connect()]
      const texts = Array.from({ length: 300 }, (_, index) => `piece ${index}`)
      const first = await kept(one, 'weights', texts)
      const second = await leased(one, 'weights', 'v2')
      await one.abandon(await leased(one, 'abandoned'))
      const lease = await leased(one, 'next')
      const waiting = two.find({ name: 'next', purpose: 'fill', ...wanted })
      const events: string[] = []
      two.watch(({ kind, name }) => void events.push(`${kind} ${name}`))
      const before = await two.list()
      const successor = await start('successor')
      await keeper.ended
      assert.equal(keeper.process.exitCode, 0)
      const connection = UnixSocket.connectTo(path)!
      assert.equal(connection.peer().pid, successor.process.pid)
      connection.close()
      assert.deepEqual(await two.list(), before)
      assert.deepEqual(await read(two, 'weights'), texts)
      await commit(one, lease, ['filled'])
      assert.deepEqual(contents(await waiting), ['filled'])
      assert.deepEqual(events, ['ready next'])
      await commit(one, second, ['second version'])
      await one.release(first)
      await two.release(first)
      assert.deepEqual(await read(await connect(), 'weights'), ['second version'])
      await assert.rejects(two.find({ name: 'abandoned', purpose: 'read', device: DEVICE }), refused('unfinished', /./))
      clients.close()
      const operator = await connect()
      await operator.prune({ all: true })
      assert.deepEqual(await operator.list(), [])
      assert.ok(openFiles(successor.process.pid!) < 40, 'what was taken over is closed')
    })

    test('without a keeper there, a successor is a new keeper', async () => {
      await start('successor')
      assert.deepEqual(await (await connect()).list(), [])
    })

    test('keepers take over from each other again and again', async () => {
      await start('keeper')
      const client = await connect()
      const generation = await kept(client, 'weights', ['x'])
      for (let count = 0; count < 3; count++) {
        await start('successor')
        await actors.at(-2)!.ended
      }
      await client.release(generation)
      const next = await kept(client, 'other', ['y'])
      assert.ok(next > generation)
      assert.deepEqual([await read(client, 'weights'), await read(client, 'other')], [['x'], ['y']])
    })

    test('a successor that is killed before it has taken all leaves all to the keeper', async () => {
      const keeper = await start('keeper')
      const client = await connect()
      const texts = Array.from({ length: 600 }, (_, index) => `piece ${index}`)
      await kept(client, 'weights', texts)
      for (let point = 1; ; point++) {
        const successor = new Actor(['successor', path, String(point)])
        actors.push(successor)
        assert.equal(await successor.line(), null)
        await successor.ended
        // Without patience: after the keeper has left there is none any more.
        const other = await KeeperClient.open({ path }).catch((error: KeepError) => error.code)
        if (other === 'gone') {
          assert.ok(point > 5, `${point} points`)
          await keeper.ended
          assert.equal(keeper.process.exitCode, 0, 'it had confirmed')
          break
        }
        clients.add(other as KeeperClient)
        const found = await client.find({ name: 'weights', purpose: 'read', device: DEVICE })
        assert.deepEqual(contents(found), texts, `point ${point}`)
        await client.release(found.generation)
      }
    })

    test('a keeper that is killed while it hands over leaves all to its successor, or nothing to anyone', async () => {
      let taken = 0
      for (let point = 1; ; point++) {
        const keeper = new Actor(['keeper', path, String(point + 12)])
        actors.push(keeper)
        assert.equal(await keeper.line(), 'listens')
        const client = await connect()
        const isKept = await kept(client, 'weights', ['x']).then(
          () => true,
          () => false,
        )
        const successor = new Actor(['successor', path])
        actors.push(successor)
        await keeper.ended
        const isOver = keeper.process.signalCode === null
        const line = isKept ? await successor.line() : null
        if (line === 'listens') {
          const found = await read(client, 'weights').catch((error: KeepError) => error.code)
          assert.ok(isOver ? found[0] === 'x' : found[0] === 'x' || found === 'absent', String(found))
          if (found[0] === 'x') taken++
        }
        client.close()
        await successor.kill()
        if (isOver) break
      }
      assert.ok(taken > 0)
    })
  })
}
