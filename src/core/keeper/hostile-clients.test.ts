// Clients of a keeper that send anything: packets in no form, descriptors of anything, more than a keeper takes, and no
// sign that they read. The keeper closes what it does not keep, and goes on with the others.

import assert from 'node:assert/strict'
import { closeSync, mkdirSync, openSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { Random } from '../base/random.js'
import { memoryFile, sealedFile } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { streamPair, UnixSocket } from '../libraries/unix-socket.js'
import { KeeperClient } from './client.js'
import { nvidiaMajors } from './descriptor-check.js'
import { DEVICE, KeeperHere, kept, LIMITS, leased, read, refused, socketFolderOf } from './keeper.fixture.js'
import { Keeper } from './keeper.js'
import { REQUESTS } from './messages.js'
import { openFiles as openFilesOf } from './open-files.js'
import {
  commonVersion,
  decoded,
  encoded,
  type Message,
  MOST_PACKET_BYTES,
  type PacketType,
  VERSIONS,
} from './protocol.js'

const SEED = Number(process.env['KEEPER_FUZZ_SEED'] ?? 1)
const PACKETS = Number(process.env['KEEPER_FUZZ_PACKETS'] ?? 3000)

/** The numbers of the types that hand over. */
const HANDOVER = (['handover', 'taken'] as const).map(type => encoded(type, 1, {})[2])

/** A connection without a client: sends any packet. */
class Raw {
  readonly socket: UnixSocket
  private lastRequest = 0

  constructor(path: string) {
    this.socket = UnixSocket.connectTo(path)!
  }

  send(type: PacketType, body: unknown, descriptors: readonly number[] = []): void {
    this.socket.sendPacket(encoded(type, ++this.lastRequest, body), descriptors)
  }

  /** The next packet; null once the keeper has closed the connection. Its descriptors are closed. */
  async answer(): Promise<Message | null> {
    for (;;) {
      const packet = this.socket.receivePacket(MOST_PACKET_BYTES, 250)
      if (packet === 'gone') return null
      if (packet !== null) {
        packet.descriptors.forEach(closeDescriptor)
        return decoded(packet.bytes, 'the keeper')
      }
      await new Promise(resolve => setImmediate(resolve))
    }
  }

  async asked(type: PacketType, body: unknown, descriptors: readonly number[] = []): Promise<string> {
    this.send(type, body, descriptors)
    const answer = await this.answer()
    return answer === null ? 'closed' : `${answer.type} ${JSON.stringify(answer.body)}`
  }

  greet(): Promise<string> {
    return this.asked('hello', { versions: VERSIONS })
  }
}

if (process.platform !== 'linux') test('hostile clients', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  const { folder, path, remove } = socketFolderOf()
  after(remove)

  describe('a keeper with hostile clients', () => {
    let here: KeeperHere
    const raws: Raw[] = []
    const raw = () => {
      const made = new Raw(path)
      raws.push(made)
      return made
    }
    beforeEach(() => {
      here = new KeeperHere(path)
    })
    afterEach(() =>
      here.end(async () => {
        const client = await here.connect()
        await kept(client, 'afterwards', ['works'])
        assert.deepEqual(await read(client, 'afterwards'), ['works'])
        for (const each of raws.splice(0)) each.socket.close()
      }),
    )

    test(`answers or drops a client that sends random packets (KEEPER_FUZZ_SEED=${SEED})`, async () => {
      const random = new Random(SEED)
      const types = Object.keys(REQUESTS) as (keyof typeof REQUESTS)[]
      const values = [
        0,
        1,
        -1,
        1.5,
        2 ** 53,
        null,
        true,
        '',
        'v1',
        'x'.repeat(300),
        [],
        [1],
        {},
        { uuid: 'GPU-1' },
        DEVICE,
      ]
      const file = memoryFile('x')
      let client = raw()
      let dropped = 0
      await client.greet()
      for (let count = 0; count < PACKETS; count++) {
        const any = <T>(items: readonly T[]) => items[random.below(items.length)]
        const type = any(types)
        const names = [
          'name',
          'version',
          'purpose',
          'bytes',
          'device',
          'generation',
          'first',
          'sizes',
          'set',
          'after',
          'all',
          'on',
        ]
        const body = Object.fromEntries(names.map(name => [name, any(values)]))
        const right = {
          name: 'a',
          purpose: any(['read', 'fill']),
          bytes: 5,
          device: DEVICE,
          generation: Date.now(),
          force: true,
        }
        const bytes = encoded(type, count + 1, random.below(2) === 0 ? { ...body, ...right } : body)
        for (let flips = random.below(4) === 0 ? 1 + random.below(6) : 0; flips > 0; flips--) {
          bytes[random.below(Math.min(bytes.length, 40))] = random.below(256)
        }
        const cut = random.below(20) === 0 ? bytes.subarray(0, random.below(bytes.length)) : bytes
        const descriptors = Array.from({ length: random.below(3) }, () => file)
        // A successor may end the keeper.
        if (HANDOVER.includes(cut[2])) continue
        if (cut.length > 0 && client.socket.sendPacket(cut, descriptors) === 'gone') dropped++
        for (let packet: ReturnType<UnixSocket['receivePacket']> = null; ; ) {
          packet = client.socket.receivePacket(MOST_PACKET_BYTES, 250)
          if (packet === 'gone') client = raw()
          if (packet === 'gone') await client.greet()
          if (packet === null || packet === 'gone') break
          packet.descriptors.forEach(closeDescriptor)
        }
        if (count % 16 === 0) await new Promise(resolve => setImmediate(resolve))
      }
      closeDescriptor(file)
      assert.ok(dropped > 3, `${dropped}`)
    })

    test('answers all that was sent before the end of the bell, and then ends the client', async () => {
      const client = raw()
      const hang = async () => {
        const [own, keepers] = streamPair()
        assert.match(await client.asked('hello', { versions: VERSIONS }, [keepers]), /^ok /)
        closeDescriptor(keepers)
        return own
      }
      const bells = [await hang(), await hang()]
      closeDescriptor(bells[0])
      assert.match(await client.asked('list', { after: 0 }), /^ok /, 'the second bell hangs now')
      const count = 70 // more than two turns
      for (let sent = 0; sent < count; sent++) client.send('list', { after: 0 })
      closeDescriptor(bells[1])
      for (let came = 0; came < count; came++) assert.equal((await client.answer())?.type, 'ok')
      assert.equal(await client.answer(), null)
    })

    test('speaks the highest version that both know, or refuses', async () => {
      const versions = { least: 1, most: VERSIONS.most + 5 }
      assert.match(await raw().asked('hello', { versions }), /^ok .*"version":1,/)
      const other = await raw().asked('hello', { versions: { least: VERSIONS.most + 1, most: VERSIONS.most + 2 } })
      assert.match(
        other,
        /^error .*"protocol","message":"the keeper speaks version 1, and this process versions 2 to 3; update/,
      )
      assert.deepEqual(
        [
          commonVersion({ least: 1, most: 3 }, { least: 2, most: 4 }),
          commonVersion({ least: 1, most: 1 }, { least: 2, most: 4 }),
        ],
        [3, null],
      )
    })

    test('refuses requests before hello, of another version, and answers of keepers', async () => {
      const client = raw()
      assert.match(await client.asked('list', { after: 0 }), /^error .*hello comes first/)
      await client.greet()
      client.socket.sendPacket(encoded('list', 9, { after: 0 }, 7), [])
      assert.match(JSON.stringify(await client.answer()), /"error","request":9.*hello comes first/)
      assert.match(await client.asked('queued', {}), /^error .*queued is no request/)
      assert.match(await client.asked('ok', {}), /^error .*ok is no request/)
      assert.match(await client.asked('list', { after: 0 }), /^ok /)
    })

    test('keeps only descriptors of the memory that was leased', async () => {
      const client = raw()
      await client.greet()
      const disk = openSync(join(folder, 'file'), 'w+')
      const nothing = openSync('/dev/null', 'r')
      const memory = memoryFile('x')
      const changeable = memoryFile('directory')
      const sealed = sealedFile('directory', Buffer.from('x'))
      const leaseOf = async (name: string, simulated: boolean) => {
        const device = { uuid: name, totalBytes: 1000, simulated }
        const text = await client.asked('find', { name, purpose: 'fill', bytes: 5, device })
        return Number(/"generation":(\d+)/.exec(text)![1])
      }
      const [simulated, gpu, host] = [await leaseOf('a', true), await leaseOf('b', false), await leaseOf('host', false)]
      const pieces = (generation: number, ...descriptors: number[]) =>
        client.asked('pieces', { generation, first: 0, sizes: descriptors.map(() => 5) }, descriptors)
      for (const wrong of [nothing, client.socket.descriptor]) {
        assert.match(await pieces(simulated, memory, wrong), /^error .*"protocol".*no file of a simulated device/)
      }
      for (const wrong of [nothing, memory, disk, client.socket.descriptor]) {
        assert.match(await pieces(gpu, wrong), /^error .*"protocol".*no exported memory of a GPU/)
      }
      assert.match(
        await client.asked('pieces', { generation: simulated, first: 0, sizes: [5, 5] }, [memory]),
        /^error .*a size/,
      )
      assert.match(
        await client.asked('pieces', { generation: simulated, first: 1, sizes: [5] }, [memory]),
        /out of order/,
      )
      for (const wrong of [nothing, memory, disk]) assert.match(await pieces(host, wrong), /no file in memory with all/)
      assert.match(await pieces(host, sealed), /^ok /)
      assert.match(await pieces(1, memory), /^error .*"gone"/)
      assert.match(await pieces(simulated, memory), /^ok /)
      const commit = (directories: number[], set: object[]) => client.asked('commit', { set }, directories)
      const whole = { generation: simulated, bytes: 5, pieces: 1, directory: true }
      for (const wrong of [disk, nothing, changeable])
        assert.match(await commit([wrong], [whole]), /must be a file in memory/)
      assert.match(await commit([], [whole]), /^error .*other directories/)
      assert.match(await commit([sealed, sealed], [whole, whole]), /^error .*named twice/)
      assert.match(await commit([sealed], [{ ...whole, pieces: 2 }]), /^error .*not whole/)
      assert.match(await commit([sealed], [whole]), /^ok /)
      const long = sealedFile('directory', new Uint8Array(16 * 2 ** 20 + 1))
      const next = await leaseOf('c', true)
      assert.match(await pieces(next, memory), /^ok /)
      assert.match(await commit([long], [{ ...whole, generation: next }]), /^error .*"size".*16777217 bytes/)
      for (const each of [disk, nothing, memory, changeable, sealed, long]) closeSync(each)
    })

    test('drops a client that reads none of many answers', async () => {
      const client = await KeeperClient.open({ path })
      await kept(client, 'weights', ['x'])
      const silent = raw()
      await silent.greet()
      const body = { name: 'weights', purpose: 'read', device: DEVICE }
      let sent = 0
      for (let count = 0; count < 50_000; count++) {
        if (silent.socket.sendPacket(encoded('find', count + 1, body), []) === 'gone') break
        sent++
        if (count % 8 === 0) await client.list()
      }
      assert.ok(sent > 100 && sent < 50_000, `${sent}`)
      assert.deepEqual((await client.list())[0].readers, [process.pid])
      client.close()
    })

    test('refuses connections beyond its limit, and serves those who came before', async () => {
      const client = await KeeperClient.open({ path })
      const others = Array.from({ length: openFilesOf().connections }, raw)
      assert.match(JSON.stringify(await others.at(-1)!.answer()), /the keeper has \d+ connections; end some processes/)
      assert.equal(await others.at(-1)!.answer(), null)
      assert.deepEqual(await client.list(), [])
      client.close()
      for (const each of raws.splice(0)) each.socket.close()
      while (true) {
        const again = raw()
        if ((await again.greet()) !== 'closed') break
      }
    })

    test('goes on after a successor that takes a part, and serves others only then', async () => {
      const client = await KeeperClient.open({ path })
      const successor = raw()
      await successor.greet()
      assert.match(await successor.asked('taken', {}), /^error .*not all was handed over/)
      await kept(
        client,
        'weights',
        Array.from({ length: 300 }, () => 'x'),
      )
      assert.match(await successor.asked('handover', { first: 0 }), /^ok .*"descriptors":30\d/)
      assert.match(await successor.asked('taken', {}), /^error .*not all was handed over/)
      const listing = client.list()
      raws.pop()
      successor.socket.close()
      assert.equal((await listing).length, 1)
      client.close()
    })

    test('goes on after a successor that does not confirm, and tells it', async t => {
      const client = await KeeperClient.open({ path })
      const successor = raw()
      await successor.greet()
      t.mock.timers.enable({ apis: ['setTimeout'] })
      assert.match(await successor.asked('handover', { first: 0 }), /^ok /)
      t.mock.timers.tick(10_000)
      t.mock.timers.reset()
      assert.match(JSON.stringify(await successor.answer()), /"error","request":0,.*did not confirm in time; try again/)
      assert.equal(await successor.answer(), null)
      assert.deepEqual(await client.list(), [])
      client.close()
    })

    test('takes no lease from a client that has another', async () => {
      const client = await KeeperClient.open({ path })
      const generation = await leased(client, 'weights')
      const other = raw()
      await other.greet()
      const set = [{ generation, bytes: 1, pieces: 1, directory: false }]
      assert.match(await other.asked('commit', { set }), /^error .*"gone"/)
      assert.match(await other.asked('abandon', { generation }), /^ok/)
      assert.match(await other.asked('more', { generation, first: 0 }), /^error .*"gone"/)
      assert.deepEqual(
        (await client.list()).map(({ state }) => state),
        ['filling'],
      )
      client.close()
    })
  })

  test('a place that others can reach is refused by keepers and clients', async () => {
    const open = join(folder, 'open')
    mkdirSync(open, { mode: 0o777 })
    const at = (name: string) => ({ path: join(open, name), limits: LIMITS })
    writeFileSync(join(folder, 'sockets', 'file'), 'precious')
    symlinkSync(join(folder, 'sockets'), join(folder, 'link'))
    assert.throws(
      () => new Keeper(at('keep.sock')),
      refused('user', /open to other users; use a folder that only you can open/),
    )
    assert.throws(
      () => new Keeper({ ...at(''), path: join(folder, 'link', 'k') }),
      refused('user', /link is no folder/),
    )
    mkdirSync(join(folder, 'sockets', 'other.lock'))
    assert.throws(
      () => new Keeper({ ...at(''), path: join(folder, 'sockets', 'other') }),
      refused('user', /^keep: cannot make the lock: EISDIR: .*; remove what lies there, or give another path$/),
    )
    assert.throws(
      () => new Keeper({ ...at(''), path: join(folder, 'sockets', 'file') }),
      refused('user', /file is no socket/),
    )
    await assert.rejects(
      KeeperClient.open({ path: join(open, 'k') }),
      refused('user', /open to other users; choose another/),
    )
    await assert.rejects(
      KeeperClient.open({ path: join(folder, 'none', 'k') }),
      refused('gone', /start one: cuda-mempool keep/),
    )
    await assert.rejects(KeeperClient.open({ path: 'x'.repeat(200) }), /path must be at most 107 bytes/)
    rmSync(open, { recursive: true })
  })

  test('the device numbers of NVIDIA are read from the list of Linux', () => {
    const text = 'Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n\nBlock devices:\n  7 nvidia-disk\n'
    assert.deepEqual([...nvidiaMajors(text)], [195, 510])
  })
}
