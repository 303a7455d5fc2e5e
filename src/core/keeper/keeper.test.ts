// A keeper and its clients in one process: regions that are filled, waited for, attached and dropped, and refusals.

import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { Channel } from './channel.js'
import {
  closeAll,
  commit,
  contents,
  DEVICE,
  KeeperHere,
  kept,
  LIMITS,
  leased,
  piecesOf,
  read,
  refused,
  socketFolderOf,
} from './keeper.fixture.js'
import { Keeper } from './keeper.js'
import type { KeepEvent } from './region.js'

if (process.platform !== 'linux') test('a keeper', { skip: `works on Linux, not on ${process.platform}` }, () => {})
else {
  const { path, remove } = socketFolderOf()
  after(remove)
  const fill = { purpose: 'fill', bytes: 1000, device: DEVICE } as const
  const readIt = { purpose: 'read', device: DEVICE } as const

  describe('a keeper in this process', () => {
    let here: KeeperHere
    const connect = () => here.connect()
    const restart = (...of: Parameters<KeeperHere['restart']>) => here.restart(...of)
    beforeEach(() => {
      here = new KeeperHere(path)
    })
    afterEach(() => here.end())

    test('hands the memory of a writer to readers, with its directory, after the writer has closed it', async () => {
      const [writer, reader] = [await connect(), await connect()]
      const texts = Array.from({ length: 600 }, (_, index) => `piece ${index}`)
      const generation = await kept(writer, 'weights', texts)
      writer.close()
      const found = await reader.find({ name: 'weights', version: 'v1', ...readIt })
      assert.ok(found.kind === 'ready' && found.generation === generation)
      assert.deepEqual([found.version, found.bytes], ['v1', texts.join('').length])
      assert.equal(Buffer.from(found.directory).toString(), 'of piece 0')
      assert.deepEqual(
        found.pieces.map(piece => piece.bytes),
        texts.map(text => text.length),
      )
      assert.deepEqual(contents(found), texts)
    })

    test('lets one process fill a region while the others wait for it', async () => {
      const [one, two, three] = [await connect(), await connect(), await connect()]
      const generation = await leased(one, 'weights')
      const waiting = [
        two.find({ name: 'weights', version: 'v1', ...fill }),
        three.find({ name: 'weights', ...readIt }),
        three.find({ name: 'weights', version: 'v1', ...readIt }),
      ]
      await assert.rejects(
        three.find({ name: 'weights', version: 'v2', ...readIt }),
        refused('absent', /^'weights' is not kept; fill it with region\(\)$/),
      )
      await commit(one, generation, ['contents'])
      for (const found of await Promise.all(waiting)) assert.deepEqual(contents(found), ['contents'])
      const [{ readers, writer }] = await two.list()
      assert.deepEqual([readers, writer], [[process.pid], process.pid])
    })

    test('keeps a version until the next is ready, and its memory while it has readers', async () => {
      const [server, next] = [await connect(), await connect()]
      const first = await kept(server, 'weights', ['one'])
      const second = await leased(next, 'weights', 'v2')
      assert.deepEqual(await read(next, 'weights'), ['one'])
      await next.release(first)
      await commit(next, second, ['two'])
      assert.deepEqual(await read(server, 'weights'), ['two'])
      const states = async () => (await next.list()).map(({ version, state }) => `${version} ${state}`)
      assert.deepEqual(await states(), ['v1 retired', 'v2 ready'])
      await assert.rejects(
        next.find({ name: 'weights', version: 'v1', ...readIt }),
        refused('absent', /^version 'v1' of 'weights' is not kept, but 'v2' is; /),
      )
      await server.release(first)
      assert.deepEqual(await states(), ['v2 ready'])
    })

    test('makes a set ready at once, or nothing of it', async () => {
      const [writer, reader] = [await connect(), await connect()]
      const [a, b] = [await leased(writer, 'a'), await leased(writer, 'b')]
      const [ofA, ofB] = [piecesOf('a1', 'a2'), piecesOf('b1')]
      const filled = (generation: number, pieces: typeof ofA, bytes = 2) => ({
        generation,
        pieces,
        bytes,
        directory: new Uint8Array(0),
      })
      await assert.rejects(
        writer.commit([filled(a, ofA), filled(b, ofB, 9999)]),
        refused('protocol', /'b' is not whole/),
      )
      const states = async () => (await reader.list()).map(({ state }) => state)
      assert.deepEqual(await states(), ['committing', 'committing'])
      for (const generation of [a, b]) await writer.abandon(generation)
      const again = [await leased(writer, 'a'), await leased(writer, 'b')]
      await writer.commit([filled(again[0], ofA), filled(again[1], ofB)])
      assert.deepEqual(await states(), ['ready', 'ready'])
      assert.deepEqual([await read(reader, 'a'), await read(reader, 'b')], [['a1', 'a2'], ['b1']])
      closeAll([...ofA, ...ofB])
    })

    test('refuses contents that are larger than their lease', async () => {
      const writer = await connect()
      const generation = await leased(writer, 'weights', 'v1', 5)
      await assert.rejects(
        commit(writer, generation, ['123456']),
        refused('size', /^commit: 'weights' has 6 B, and 5 B were asked for; ask for more bytes$/),
      )
    })

    test('says which regions are in the way, and the command that frees them', async () => {
      await restart({ ...LIMITS, maxBytes: 100 })
      const client = await connect()
      await client.release(await kept(client, 'small', ['z']))
      await client.release(await kept(client, 'old', ['x'.repeat(60)]))
      const wanted = { name: 'new', version: 'v1', ...fill, bytes: 50 }
      await assert.rejects(
        client.find(wanted),
        refused(
          'quota',
          /^'new' needs 50 B on GPU-1, where 61 B of at most 100 B are kept; without readers: 'old' \(60 B\), 'small' \(1 B\); free with: cuda-mempool keep prune --name old --socket \S+$/,
        ),
      )
      await client.release(await kept(client, 'later', ['z'.repeat(39)]))
      await assert.rejects(client.find({ ...wanted, bytes: 35 }), refused('quota', /free with: .* --name old --so/))
      await assert.rejects(client.find({ ...wanted, bytes: 100 }), refused('quota', /free with: .* prune --all --so/))
      for (const name of ['small', 'later']) await client.prune({ name })
      await assert.rejects(client.find({ ...wanted, bytes: 101 }), refused('quota', /101 B .* a larger --max-bytes$/))
      await assert.rejects(client.find({ ...wanted, ifFull: 'evictUnused' }), refused('quota', /prune --name old/))
      const labelled = { name: 'cache', ...fill, bytes: 30, labels: { evictable: 'yes' } }
      const { generation } = await client.find(labelled)
      await commit(client, generation, ['y'.repeat(30)])
      await client.release(generation)
      assert.equal((await client.find({ ...wanted, bytes: 40, ifFull: 'evictUnused' })).kind, 'lease')
      assert.deepEqual(
        (await client.list()).map(({ name, state }) => `${name} ${state}`),
        ['old ready', 'new filling'],
      )
    })

    test('says if readers are in the way', async () => {
      await restart({ ...LIMITS, maxRegions: 1 })
      const one = await connect()
      await kept(one, 'read', ['x'])
      const regions = /1 regions that may be kept; all have readers: end some, or start .* a larger --max-regions$/
      await assert.rejects(one.find({ name: 'new', ...fill }), refused('quota', regions))
      one.close()
      await restart({ ...LIMITS, maxBytes: 100 })
      const two = await connect()
      await kept(two, 'read', ['x'.repeat(60)])
      await two.release(await kept(two, 'idle', ['x'.repeat(30)]))
      const bytes =
        /'idle' \(30 B\); free with: .* prune --all --socket \S+, and end some readers, or raise --max-bytes$/
      await assert.rejects(two.find({ name: 'new', ...fill, bytes: 80 }), refused('quota', bytes))
    })

    test('drops the old version first on a device without room for both, if its writer wants that', async () => {
      await restart({ ...LIMITS, maxBytes: 100 })
      const client = await connect()
      const first = await kept(client, 'weights', ['x'.repeat(80)])
      const wanted = { name: 'weights', version: 'v2', ...fill, bytes: 80, ifFull: 'replace' } as const
      await assert.rejects(client.find(wanted), refused('quota', /all have readers/))
      await client.release(first)
      assert.equal((await client.find(wanted)).kind, 'lease')
    })

    test('has each name on one device', async () => {
      const client = await connect()
      await kept(client, 'weights', ['x'])
      const device = { ...DEVICE, uuid: 'GPU-2' }
      await assert.rejects(
        client.find({ name: 'weights', ...fill, device }),
        refused(
          'device',
          /^'weights' lies on 'GPU-1', not on 'GPU-2'; use another name for each device, or free it: cuda-mempool keep prune --name weights --socket /,
        ),
      )
    })

    test('gives up waiting after a time, or for a signal, and gives back what came too late', async () => {
      const [writer, other] = [await connect(), await connect()]
      const generation = await leased(writer, 'weights')
      const wanted = { name: 'weights', version: 'v1', ...fill }
      await assert.rejects(
        other.find({ ...wanted, timeoutMs: 20 }),
        refused('timeout', /^'weights' is not ready yet; it was/),
      )
      const controller = new AbortController()
      const waiting = other.find({ ...wanted, signal: controller.signal })
      const late = other.find({ ...wanted, signal: controller.signal })
      controller.abort(new Error('no longer wanted'))
      await assert.rejects(waiting, /no longer wanted/)
      await assert.rejects(late, /no longer wanted/)
      await assert.rejects(other.find({ ...wanted, signal: controller.signal }), /no longer wanted/)
      await commit(writer, generation, ['x'])
      await writer.release(generation)
      assert.deepEqual((await other.list())[0].readers, [])
    })

    test('has no reader whose commit was read too late', async t => {
      const client = await here.connect(200)
      const generation = await leased(client, 'weights')
      const send = Channel.prototype.send
      const isCommitted = () => here.keeper.regions.generations.get(generation)?.state === 'ready'
      t.mock.method(Channel.prototype, 'send', function (this: Channel, ...args: Parameters<typeof send>) {
        if (!isCommitted()) send.apply(this, args)
      })
      await assert.rejects(commit(client, generation, ['x']), refused('timeout', /^commit: the keeper does not answer/))
      t.mock.restoreAll()
      assert.equal((await client.list())[0].readers.length, 1)
      await client.abandon(generation)
      assert.deepEqual((await client.list())[0].readers, [])
    })

    test('says that a dropped region stays until its readers close it', async () => {
      const [writer, reader] = [await connect(), await connect()]
      await writer.release(await kept(writer, 'weights', ['x']))
      await read(reader, 'weights')
      await writer.drop('weights')
      const fact = new RegExp(
        `^'weights' was dropped already, and stays until process ${process.pid} closes it; .*--force`,
      )
      await assert.rejects(writer.drop('weights'), refused('absent', fact))
    })

    test('ends a lease by force: its writer cannot commit any more', async () => {
      const [writer, operator] = [await connect(), await connect()]
      const generation = await leased(writer, 'weights')
      await assert.rejects(
        operator.drop('weights'),
        refused('absent', /process \d+ fills it; cuda-mempool keep drop weights --force --socket \S+ ends that$/),
      )
      await operator.drop('weights', { force: true })
      await assert.rejects(commit(writer, generation, ['x']), refused('gone', /lease was ended by force/))
      assert.deepEqual(
        (await operator.list()).map(({ state }) => state),
        ['unfinished'],
      )
      await assert.rejects(
        operator.find({ name: 'weights', ...readIt }),
        refused('unfinished', /began it, and did not commit it/),
      )
      await operator.drop('weights')
      await assert.rejects(operator.drop('weights'), refused('absent', /keep list shows the names/))
    })

    test('drops by rule, and forgets memory that the device has lost', async () => {
      const client = await connect()
      for (const name of ['a', 'b', 'c']) await client.release(await kept(client, name, [name]))
      const names = (regions: readonly { readonly name: string }[]) => regions.map(({ name }) => name)
      assert.deepEqual(await client.prune({ unusedMs: 3_600_000 }), [])
      assert.deepEqual(await client.prune({ unfinished: true }), [])
      assert.deepEqual(names(await client.prune({ name: 'b', unusedMs: 0 })), ['b'])
      const found = await client.find({ name: 'a', ...readIt })
      assert.deepEqual(names(await client.prune({ all: true })), ['c'])
      await client.lost(found.generation)
      assert.deepEqual(await client.list(), [])
      contents(found)
    })

    test('tells watchers of each change, and keeps no watcher that has ended', async () => {
      const [client, watcher] = [await connect(), await connect()]
      const events: string[] = []
      const watching = watcher.watch(({ kind, name }: KeepEvent) => void events.push(`${kind} ${name}`))
      await watcher.list()
      await client.release(await kept(client, 'a', ['a']))
      await client.abandon(await leased(client, 'b'))
      await client.drop('a')
      await watcher.list()
      assert.deepEqual(events, ['leased a', 'ready a', 'leased b', 'unfinished b', 'gone b', 'gone a'])
      watching[Symbol.dispose]()
      await kept(client, 'c', ['c'])
      await watcher.list()
      assert.equal(events.length, 6)
    })

    test('does not lose its connection by a listener that throws', async t => {
      const [client, watcher] = [await connect(), await connect()]
      const generation = await leased(watcher, 'own')
      const later: (() => void)[] = []
      t.mock.method(globalThis, 'queueMicrotask', (work: () => void) => later.push(work))
      const throwing = watcher.watch(() => {
        throw new Error('of a listener')
      })
      const kinds: string[] = []
      watcher.watch(({ kind }) => void kinds.push(kind))
      await watcher.list()
      await kept(client, 'a', ['a'])
      await watcher.list()
      throwing[Symbol.dispose]()
      t.mock.restoreAll()
      assert.deepEqual(kinds, ['leased', 'ready'])
      assert.equal(later.length, 2)
      for (const work of later) assert.throws(work, /^Error: of a listener$/)
      await commit(watcher, generation, ['x'])
    })

    test('takes any name', async () => {
      const client = await connect()
      const names = [
        '__proto__',
        'constructor',
        '../../etc/passwd',
        '\0\n\u001b[31m',
        '"\\\'',
        'é'.repeat(127),
        '\ud800',
        '😀 x',
      ]
      for (const name of names) await kept(client, name, [JSON.stringify(name)])
      for (const name of names) assert.deepEqual(await read(client, name), [JSON.stringify(name)])
      assert.deepEqual(
        (await client.list()).map(({ name }) => name),
        names,
      )
      for (const name of ['', 'é'.repeat(128)])
        await assert.rejects(leased(client, name), refused('protocol', /find\.name/))
    })

    test('keeps 10,000 regions, and lists and frees them', async () => {
      const client = await connect()
      const pieces = piecesOf('shared')
      for (let first = 0; first < 10_000; first += 250) {
        const leases = Array.from({ length: 250 }, (_, index) => leased(client, `region ${first + index}`))
        const directory = new Uint8Array(0)
        const filled = (await Promise.all(leases)).map(generation => ({ generation, pieces, bytes: 6, directory }))
        await client.commit(filled)
      }
      closeAll(pieces)
      const all = await client.list()
      assert.deepEqual([all.length, new Set(all.map(({ name }) => name)).size], [10_000, 10_000])
      assert.deepEqual(await read(client, 'region 7777'), ['shared'])
      client.close()
      const operator = await connect()
      assert.equal((await operator.prune({ all: true })).length, 10_000)
    })
    test('is refused a second keeper at its place, and gives its place to the next after its end', async () => {
      assert.throws(
        () => new Keeper({ path, limits: LIMITS }),
        /a keeper listens at .* already; end it, or .*--replace/,
      )
      await restart()
      assert.deepEqual(await (await connect()).list(), [])
      rmSync(path)
      assert.throws(() => new Keeper({ path, limits: LIMITS }), /runs without its socket, for .* was removed; end its/)
    })

    test('refuses processes of other users', async () => {
      const own = process.geteuid!()
      await restart(LIMITS, own + 1)
      await assert.rejects(
        connect(),
        refused('user', new RegExp(`the keeper is of user ${own + 1}, and .* user ${own}$`)),
      )
    })

    test('is found again after a restart, by the next request; a commit goes to the next keeper', async () => {
      const client = await connect()
      await kept(client, 'weights', ['x'])
      const generation = await leased(client, 'other')
      await restart()
      await commit(client, generation, ['x'])
      const regions = await client.list()
      assert.deepEqual(
        regions.map(({ name, state, readers }) => [name, state, readers]),
        [['other', 'ready', [process.pid]]],
      )
      await client.release(generation)
      assert.deepEqual((await client.list())[0].readers, [])
      await kept(client, 'weights', ['y'])
      assert.deepEqual(await read(client, 'weights'), ['y'])
      client.close()
      await assert.rejects(client.list(), refused('gone', /closed by this program/))
    })
  })
}
