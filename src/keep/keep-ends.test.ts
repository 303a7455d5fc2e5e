// How regions end: dropped, closed, with their device, and with the keeper.

import assert from 'node:assert/strict'
import { describe, it, test } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { type FindRequest, KeeperClient } from '../core/keeper/client.js'
import { refused } from '../core/keeper/keeper.fixture.js'
import type { KeepEvent } from '../core/keeper/region.js'
import {
  CAPACITY,
  eachInWorld,
  GRANULE,
  gate,
  type KeepWorld,
  none,
  poolError,
  statesOf,
  type TestDevice,
  threeWords,
  V1,
  wordsIn,
} from './keep.fixture.js'
import type { Keep } from './keep.js'

if (process.platform !== 'linux') test('ends of regions', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('kept regions end', () => {
    let world: KeepWorld
    let device: TestDevice
    let keep: Keep
    eachInWorld(given => {
      ;({ world, device, keep } = given)
    })

    it('by drop, prune, and force', async () => {
      const a = await keep.region('a', V1, threeWords)
      const b = await keep.region('b', V1, threeWords)
      await keep.drop('a')
      assert.deepEqual(await statesOf(keep), ['a v1 retired', 'b v1 ready'])
      assert.deepEqual(await wordsIn(a), [1, 2, 3])
      a.close()
      await assert.rejects(keep.drop('a'), refused('absent', /'a' is not kept/))
      assert.deepEqual(await keep.prune({ all: true }), [])
      b.close()
      assert.deepEqual(await keep.prune({ name: 'other' }), [])
      assert.deepEqual(
        (await keep.prune({ all: true })).map(({ name }) => name),
        ['b'],
      )
      const c = await keep.region('c', V1, threeWords)
      await keep.drop('c', { force: true })
      assert.deepEqual(await statesOf(keep), [])
      assert.deepEqual(await wordsIn(c), [1, 2, 3], 'this process has it mapped')
      for (const wrong of [keep.drop('c', { forced: true } as never), keep.prune({ age: 5 } as never)])
        await assert.rejects(wrong, { name: 'TypeError', message: /unknown option/ })
    })

    it('in the list and for watchers', async () => {
      const events: string[] = []
      const watching = keep.watch(
        ({ kind, name, version }: KeepEvent) => void events.push(`${kind} ${name} ${version}`),
      )
      await keep.list()
      const region = await keep.region('a', { ...V1, labels: { model: 'tiny' } }, threeWords)
      const [info] = await keep.list()
      const { device: uuid, labels, readers, writer, bytes, generation } = info
      assert.deepEqual([uuid, labels, bytes], [device.properties.uuid, { model: 'tiny' }, GRANULE])
      assert.deepEqual([readers, writer, generation], [[process.pid], process.pid, region.generation])
      await keep.drop('a')
      region.close()
      await keep.list()
      assert.deepEqual(events, ['leased a v1', 'ready a v1', 'retired a v1', 'gone a v1'])
      watching[Symbol.dispose]()
      await keep.region('b', V1, threeWords)
      assert.equal(events.length, 4)
    })

    it('for a keep that closes: fillings are abandoned, and regions closed', async () => {
      const region = await keep.region('a', V1, threeWords)
      const filling = await keep.begin('b', V1)
      threeWords(filling)
      const waiting = keep.attach('b')
      const [begun, going] = [gate(), gate()]
      const under = keep.region('c', V1, async each => {
        begun.open()
        await going.opened
        threeWords(each)
      })
      await begun.opened
      keep.close()
      keep.close()
      going.open()
      await assert.rejects(under, poolError(/^put: region 'c' was abandoned already; begin it again$/))
      await assert.rejects(waiting, refused('gone', /was closed by this program; open it again$/))
      assert.equal(region.closed, true)
      assert.throws(() => filling.place('x', Uint8Array, 1), poolError(/^place: region 'b' was abandoned already/))
      await assert.rejects(keep.list(), refused('gone', /closed by this program/))
      keep = await world.openKeep(device)
      assert.equal(world.freeBytes, CAPACITY - GRANULE)
      assert.deepEqual((await statesOf(keep)).sort(), ['a v1 ready', 'b v1 unfinished', 'c v1 unfinished'])
    })

    it('for a keep that closes while the keeper answers', async t => {
      ;(await keep.region('a', V1, threeWords)).close()
      const { find } = KeeperClient.prototype
      t.mock.method(KeeperClient.prototype, 'find', async function (this: KeeperClient, request: FindRequest) {
        const found = await find.call(this, request)
        keep.close()
        return found
      })
      const closed = refused('gone', /^the keep was closed by this program meanwhile; open it again$/)
      await assert.rejects(keep.attach('a'), closed)
      keep = await world.openKeep(device)
      await assert.rejects(keep.region('b', V1, none), closed)
      t.mock.restoreAll()
      keep = await world.openKeep(device)
      assert.deepEqual(await statesOf(keep), ['a v1 ready', 'b v1 unfinished'])
    })

    it('for a device that closes, and the keeper learns of it', async () => {
      const own = world.openDevice()
      const other = await world.openKeep(own)
      const region = await other.region('a', V1, threeWords)
      const filling = await other.begin('b', V1)
      own.close()
      assert.equal(region.closed, true)
      await assert.rejects(other.region('c', V1, none), poolError(/device was closed|is closed/))
      region.close()
      filling[Symbol.dispose]()
      await other.list()
      assert.deepEqual((await keep.list())[0].readers, [], 'the region was released')
      assert.deepEqual(await statesOf(keep), ['a v1 ready', 'b v1 unfinished'])
    })

    it('after the work that uses them', async () => {
      const late = world.openDevice({ progress: 'seeded', seed: 3 })
      const other = await world.openKeep(late)
      using region = await other.region('a', { bytes: 4 * MiB }, each => {
        each.place('words', Uint32Array, MiB).fill(7)
      })
      const copy = late.createPool().allocateArray(Uint32Array, MiB)
      copy.copyFrom(region.array('words', Uint32Array))
      region.close()
      assert.ok((await copy.read()).every(word => word === 7))
    })

    it('not with the keeper: the next one gets what is attached, and what is committed', async () => {
      const old = await keep.region('a', V1, threeWords)
      const filling = await keep.begin('b', V1)
      await world.restart()
      await keep.commit([filling])
      assert.deepEqual(await statesOf(keep), ['a v1 ready', 'b v1 ready'])
      const again = await keep.region('a', V1, threeWords)
      assert.deepEqual([again.created, again.generation], [false, old.generation])
      old.close()
      again.close()
      assert.deepEqual((await keep.list())[0].readers, [])
    })
  })
}
