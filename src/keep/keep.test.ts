// Regions of a keeper in this process, on devices that share one simulated machine: how they are filled and found.

import assert from 'node:assert/strict'
import { describe, it, test } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { STORE_PTX } from '../core/driver/store-kernel.fixture.js'
import { refused } from '../core/keeper/keeper.fixture.js'
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
import { type Keep, openKeep } from './keep.js'

if (process.platform !== 'linux') test('kept regions', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('kept regions', () => {
    let world: KeepWorld
    let device: TestDevice
    let keep: Keep
    eachInWorld(given => {
      ;({ world, device, keep } = given)
    })

    describe('are filled once', () => {
      it('and found again with their contents, by other devices and by other processes', async () => {
        const made = await keep.region('weights', V1, threeWords)
        const again = await keep.region('weights', V1, none)
        const other = await world.openKeep()
        const found = await other.region('weights', V1, none)
        const attached = await other.attach('weights')
        assert.deepEqual(
          [made, again, found, attached].map(each => each.created),
          [true, false, false, false],
        )
        for (const each of [made, again, found, attached]) {
          assert.deepEqual(await wordsIn(each), [1, 2, 3])
          assert.deepEqual([each.name, each.version, each.generation], ['weights', 'v1', made.generation])
          assert.equal(each.buffer.byteLength, 4 * KiB)
        }
        assert.equal(world.freeBytes, CAPACITY - GRANULE, 'there is one memory')
        const peer = await world.startProcess()
        assert.equal((await peer.do('region', 'fromThere', 'v1', 2 * GRANULE)).created, true)
        assert.equal((await peer.do('wordsOf', 'weights'))[2], 3)
        const theirs = await keep.region('fromThere', { bytes: 2 * GRANULE, version: 'v1' }, none)
        assert.ok((await theirs.array('words', Uint32Array).read()).length > 0)
        await peer.kill()
        keep.close()
        assert.deepEqual(await wordsIn(found), [1, 2, 3])
      })

      it('while the others wait', async () => {
        const [begun, go] = [gate(), gate()]
        const filling = keep.region('weights', V1, async region => {
          begun.open()
          await go.opened
          threeWords(region)
        })
        await begun.opened
        const other = await world.openKeep()
        const waiting = [keep.region('weights', V1, none), other.region('weights', V1, none), other.attach('weights')]
        assert.deepEqual(await statesOf(keep), ['weights v1 filling'])
        go.open()
        assert.equal((await filling).created, true)
        for (const each of await Promise.all(waiting)) assert.deepEqual(await wordsIn(each), [1, 2, 3])
      })

      it('by the next in line if a fill throws, which keeps nothing', async () => {
        const other = await world.openKeep()
        const [begun, go] = [gate(), gate()]
        const failing = keep.region('weights', V1, async region => {
          threeWords(region)
          begun.open()
          await go.opened
          throw new Error('no such file')
        })
        await begun.opened
        const next = other.region('weights', V1, threeWords)
        await other.list()
        const last = keep.region('weights', V1, none)
        go.open()
        await assert.rejects(failing, /^Error: no such file$/)
        assert.equal((await next).created, true)
        assert.deepEqual(await wordsIn(await last), [1, 2, 3])
        assert.equal(world.freeBytes, CAPACITY - GRANULE)
      })

      it('and not within the code that fills it', async () => {
        const inner = () => keep.region('weights', { ...V1, version: 'v2' }, none)
        await assert.rejects(
          keep.region('weights', V1, async () => void (await inner())),
          poolError(/^region: the code that runs fills 'weights' itself; use what fill gets$/),
        )
        const file = () => keep.file('weights', V1, none)
        await assert.rejects(
          keep.file('weights', V1, async () => void (await file())),
          poolError(/^file: the code that runs fills/),
        )
        const attach = () => keep.attach('weights')
        await assert.rejects(
          keep.region('weights', V1, async () => void (await attach())),
          poolError(/^attach: the code that runs fills/),
        )
        const between = () => keep.region('other', V1, async () => void (await inner()))
        await assert.rejects(
          keep.region('weights', V1, async () => void (await between())),
          poolError(/^region: the code that runs fills 'weights'/),
        )
        let later: Promise<unknown> | undefined
        const over = gate()
        const made = await keep.region('weights', V1, async filling => {
          threeWords(filling)
          later = over.opened.then(() => keep.region('weights', V1, none))
          ;(await keep.region('other', V1, threeWords)).close()
        })
        assert.deepEqual(await wordsIn(made), [1, 2, 3])
        over.open()
        await later
        await keep.region('weights', { ...V1, version: 'v2' }, async filling => {
          assert.deepEqual(await wordsIn(await keep.attach('weights')), [1, 2, 3])
          threeWords(filling)
        })
      })

      it('after a synchronous error, too', async () => {
        const failing = keep.region('weights', V1, () => {
          throw new Error('at once')
        })
        await assert.rejects(failing, /at once/)
        assert.deepEqual(await statesOf(keep), ['weights v1 unfinished'])
        assert.equal(world.freeBytes, CAPACITY)
        await assert.rejects(keep.attach('weights'), refused('unfinished', /fill it with region\(\)/))
        assert.equal((await keep.region('weights', V1, threeWords)).created, true)
        assert.deepEqual(await statesOf(keep), ['weights v1 ready'])
      })

      it('on a device without room for two, if their writer says which may go', async () => {
        const large = { bytes: 40 * MiB, version: 'v1' }
        ;(await keep.region('weights', large, threeWords)).close()
        const next = { ...large, version: 'v2' }
        await assert.rejects(keep.region('weights', next, none), refused('quota', /prune --name weights --socket /))
        const replaced = await keep.region('weights', { ...next, ifFull: 'replace' }, threeWords)
        assert.deepEqual(await statesOf(keep), ['weights v2 ready'])
        await assert.rejects(keep.begin('cache', { ...next, ifFull: 'evictUnused' }), refused('quota', /have readers/))
        replaced.close()
        await assert.rejects(keep.begin('cache', { ...next, ifFull: 'evictUnused' }), refused('quota', /prune/))
        await keep.drop('weights')
        const labels = { evictable: 'yes' }
        ;(await keep.region('cache', { ...large, labels }, threeWords)).close()
        assert.equal((await keep.region('weights', { ...next, ifFull: 'evictUnused' }, threeWords)).created, true)
        assert.equal(world.freeBytes, CAPACITY - 40 * MiB)
      })

      it('on a device that a closed region fills until its work is complete', async () => {
        const { driver } = device
        const large = { bytes: 40 * MiB, ifFull: 'replace' } as const
        const stream = device.createStream()
        /** A region that cannot have its memory before `release`. */
        const wait = async (version: string, of: Keep, signal?: AbortSignal) => {
          const old = await of.region('weights', { ...large, version: `before ${version}` }, threeWords)
          const ticket = driver.holdOperation(stream.handle)
          old.buffer.recordUse(stream)
          old.close()
          const made = of.region('weights', { ...large, version, ...(signal && { signal }) }, threeWords)
          while ((await keep.list()).every(({ state }) => state !== 'filling')) {}
          return { made, release: () => driver.releaseThrough(stream.handle, ticket) }
        }
        const { made, release } = await wait('v1', keep)
        release()
        const region = await made
        assert.deepEqual(await wordsIn(region), [1, 2, 3])
        region.close()
        await region.buffer.settled()

        const stop = new AbortController()
        const aborted = await wait('v2', keep, stop.signal)
        stop.abort(new Error('enough'))
        await assert.rejects(aborted.made, /^Error: enough$/)
        aborted.release()
        await device.finished()
        const other = await world.openKeep(device)
        const closed = await wait('v3', other)
        other.close()
        await assert.rejects(closed.made, refused('gone', /^the keep was closed by this program meanwhile/))
        closed.release()
      })

      it('by kernels, too, whose work is complete before others see it', async () => {
        const late = world.openDevice({ progress: 'seeded', seed: 7 })
        const other = await world.openKeep(late)
        const stream = late.createStream()
        const store = late.loadModule(STORE_PTX).kernel('driver_suite_store')
        await other.region('weights', V1, region => {
          const words = region.place('words', Uint32Array, 3)
          words.fill(9)
          const filled = late.createEvent()
          filled.record(late.defaultStream)
          stream.wait(filled)
          store.launch({ grid: 1, block: 1, stream }, words, 5)
        })
        assert.deepEqual(await wordsIn(await keep.attach('weights')), [5, 9, 9])
      })
    })

    describe('are attached', () => {
      it('only if they are whole', async () => {
        await assert.rejects(keep.attach('weights'), refused('absent', /^'weights' is not kept; fill it with region/))
        const writer = await world.startProcess()
        const filling = assert.rejects(writer.do('hang', 'weights', 'v1', GRANULE), /ended/)
        await writer.said('filling')
        const waiting = assert.rejects(keep.attach('weights'), refused('unfinished', /process \d+ began it, and did/))
        await keep.list()
        await writer.kill()
        await Promise.all([filling, waiting])
        await assert.rejects(keep.attach('weights'), refused('unfinished', /fill it with region\(\)/))
        assert.equal(world.freeBytes, CAPACITY)
      })

      it('in the version that is wanted, and the old memory goes with its last reader', async () => {
        const [first, other] = [await keep.region('weights', V1, threeWords), await world.openKeep()]
        const old = await other.attach('weights', { version: 'v1' })
        const second = await other.region('weights', { ...V1, version: 'v2' }, region => {
          region.put('words', Uint32Array.of(4))
        })
        assert.ok(second.generation > first.generation)
        assert.deepEqual(await statesOf(keep), ['weights v1 retired', 'weights v2 ready'])
        await assert.rejects(
          keep.attach('weights', { version: 'v1' }),
          refused('absent', /version 'v1' .* but 'v2' is/),
        )
        assert.deepEqual(await wordsIn(await keep.attach('weights')), [4])
        first.close()
        assert.deepEqual(await wordsIn(old), [1, 2, 3])
        assert.equal(world.freeBytes, CAPACITY - 2 * GRANULE)
        old.close()
        await other.list()
        assert.deepEqual(await statesOf(keep), ['weights v2 ready'])
        assert.equal(world.freeBytes, CAPACITY - GRANULE)
      })

      it('with the size that they were filled with', async () => {
        await keep.region('weights', V1, threeWords)
        await assert.rejects(
          keep.region('weights', { ...V1, bytes: 8 * KiB }, none),
          refused('size', /^region: 'weights' has 4 KiB in version 'v1', not 8 KiB; name another version$/),
        )
        keep.close()
        keep = await world.openKeep(device)
        assert.deepEqual((await keep.list())[0].readers, [], 'the refused region is given back')
      })

      it('on their device only', async () => {
        await keep.region('weights', V1, threeWords)
        const elsewhere = openDevice('simulated')
        const foreign = await openKeep(elsewhere, { path: world.path })
        await assert.rejects(
          foreign.attach('weights'),
          refused(
            'device',
            /use another name for each device, or free it: cuda-mempool keep prune --name weights --socket /,
          ),
        )
        await assert.rejects(foreign.region('weights', V1, none), refused('device', /^'weights' lies on /))
        foreign.close()
        elsewhere.close()
      })

      it('only while the device has their memory', async () => {
        await keep.region('weights', V1, threeWords)
        keep.close()
        keep = await world.openKeep(device)
        world.reset()
        await assert.rejects(keep.attach('weights'), refused('lost', /^the memory of region 'weights' is gone: /))
        assert.deepEqual(await statesOf(keep), [])
        assert.equal((await keep.region('weights', V1, threeWords)).created, true)
        keep.close()
        keep = await world.openKeep(device)
        world.reset()
        const again = await keep.region('weights', V1, threeWords)
        assert.deepEqual([again.created, await wordsIn(again)], [true, [1, 2, 3]])
      })
    })

    describe('are committed as a set', () => {
      it('all at once', async () => {
        const [a, b] = [await keep.begin('a', V1), await keep.begin('b', { bytes: 3 * GRANULE })]
        for (const each of [a, b]) threeWords(each)
        assert.deepEqual(await statesOf(keep), ['a v1 filling', 'b  filling'])
        const regions = await keep.commit([b, a])
        assert.deepEqual(
          regions.map(({ name, created }) => `${name} ${created}`),
          ['b true', 'a true'],
        )
        for (const each of regions) assert.deepEqual(await wordsIn(each), [1, 2, 3])
        assert.deepEqual(await keep.commit([]), [])
      })

      it('or none of them', async () => {
        const [a, b] = [await keep.begin('a', V1), await keep.begin('b', V1)]
        for (const each of [a, b]) threeWords(each)
        await (await world.connect()).drop('b', { force: true })
        await assert.rejects(keep.commit([a, b]), refused('gone', /lease was ended by force/))
        assert.deepEqual(await statesOf(keep), ['a v1 unfinished', 'b v1 unfinished'])
        assert.equal(world.freeBytes, CAPACITY)
        await assert.rejects(keep.commit([a]), poolError(/^commit: region 'a' was abandoned already; begin it again$/))
      })

      it('once, while nothing is added any more', async () => {
        const a = await keep.begin('a', V1)
        threeWords(a)
        const committed = keep.commit([a])
        await assert.rejects(keep.commit([a]), poolError(/^commit: region 'a' is being committed/))
        assert.throws(() => a.put('late', Uint32Array.of(1)), poolError(/^put: region 'a' is being committed/))
        assert.throws(() => a.place('late', Uint32Array, 1), poolError(/^place: region 'a' is being committed/))
        a[Symbol.dispose]()
        const [region] = await committed
        assert.deepEqual(await wordsIn(region), [1, 2, 3])
        await assert.rejects(keep.commit([a]), poolError(/^commit: region 'a' was committed already/))
        a[Symbol.dispose]()
        assert.deepEqual(await wordsIn(region), [1, 2, 3])
      })

      it('if they were begun with this keep', async () => {
        const a = await keep.begin('a', V1)
        const other = await world.openKeep()
        await assert.rejects(
          other.commit([a]),
          poolError(/^commit: region 'a' was begun with another keep; commit it there$/),
        )
        await assert.rejects(keep.commit([a, a]), { name: 'RangeError', message: /^commit: region 'a' is named twice/ })
        await assert.rejects(keep.commit(a as never), {
          name: 'TypeError',
          message: /^commit: regions must be an array/,
        })
        await assert.rejects(keep.commit([5 as never]), { name: 'TypeError', message: /must come from begin, not 5$/ })
        const many = Array.from({ length: 251 }, () => a)
        await assert.rejects(keep.commit(many), { name: 'RangeError', message: /^commit: at most 250 regions/ })
        assert.deepEqual(await statesOf(keep), ['a v1 filling'])
        a[Symbol.dispose]()
        await assert.rejects(keep.attach('a'), refused('unfinished', /./))
      })

      it('and begin refuses what is there', async () => {
        await keep.region('a', V1, threeWords)
        await assert.rejects(
          keep.begin('a', V1),
          poolError(/^begin: region 'a' is there in version 'v1'; attach it, or/),
        )
        await assert.rejects(keep.begin('a', { ...V1, bytes: 1 }), refused('size', /^begin: /))
        const next = await keep.begin('a', { ...V1, version: 'v2' })
        next[Symbol.dispose]()
      })
    })

    it('wait as long as a signal allows', async () => {
      const other = await world.openKeep()
      const filling = await keep.begin('weights', V1)
      const controller = new AbortController()
      const { signal } = controller
      const waiting = [other.attach('weights', { signal }), other.region('weights', { ...V1, signal }, none)]
      await other.list()
      controller.abort(new Error('no longer wanted'))
      for (const each of waiting) await assert.rejects(each, /^Error: no longer wanted$/)
      await assert.rejects(other.attach('weights', { signal }), /no longer wanted/)
      threeWords(filling)
      const [region] = await keep.commit([filling])
      await other.list()
      assert.deepEqual((await keep.list())[0].readers, [process.pid])
      region.close()
      assert.deepEqual((await keep.list())[0].readers, [], 'who gave up has nothing attached')
    })

    it('refuse wrong arguments by name', async () => {
      const wrong: [() => Promise<unknown>, string, RegExp][] = [
        [() => openKeep(5 as never), 'TypeError', /^openKeep: device must be a Device, not 5$/],
        [() => openKeep(device, { paths: 'x' } as never), 'TypeError', /^openKeep: unknown option 'paths'/],
        [() => openKeep(device, { path: 5 as never }), 'TypeError', /^path must be a string, not 5$/],
        [() => openKeep(device, { timeoutMs: -1 }), 'RangeError', /^openKeep: timeoutMs must be/],
        [() => keep.region('a', V1, 5 as never), 'TypeError', /^region: fill must be a function, not 5$/],
        [() => keep.region(5 as never, V1, none), 'TypeError', /^region: name must be a text, not 5$/],
        [() => keep.region('', V1, none), 'RangeError', /^region: name must have 1 to 255 bytes, not 0$/],
        [
          () => keep.region('é'.repeat(128), V1, none),
          'RangeError',
          /^region: name must have 1 to 255 bytes, not 256$/,
        ],
        [() => keep.attach('x'.repeat(256)), 'RangeError', /^attach: name must have 1 to 255 bytes, not 256$/],
        [() => keep.attach('a', { version: 5 as never }), 'TypeError', /^attach: version must be a text, not 5$/],
        [
          () => keep.attach('a', { version: 'x'.repeat(256) }),
          'RangeError',
          /^attach: version must have 0 to 255 bytes/,
        ],
        [() => keep.attach('a', { signal: 5 as never }), 'TypeError', /^attach: signal must be an AbortSignal/],
        [() => keep.drop(5 as never), 'TypeError', /^drop: name must be a text, not 5$/],
        [() => keep.drop('a', { force: 1 as never }), 'TypeError', /^drop: force must be true or false, not 1$/],
        [() => keep.prune({ all: 'x' as never }), 'TypeError', /^prune: all must be true or false, not 'x'$/],
        [() => keep.prune({ unfinished: 1 as never }), 'TypeError', /^prune: unfinished must be true or false/],
        [() => keep.prune({ name: '' }), 'RangeError', /^prune: name must have 1 to 255 bytes, not 0$/],
        [() => keep.prune({ unusedMs: -1 }), 'RangeError', /^prune: unusedMs must be/],
        [() => keep.begin('a', {} as never), 'TypeError', /^begin: bytes must be/],
        [() => keep.begin('a', { bytes: 0 }), 'RangeError', /^begin: bytes must be/],
        [() => keep.begin('a', { bytes: 5, ifFull: 'evict' as never }), 'RangeError', /^begin: ifFull must be one of/],
        [
          () => keep.begin('a', { bytes: 5, labels: { a: 5 as never } }),
          'TypeError',
          /^begin: labels must be an object of texts/,
        ],
        [
          () => keep.begin('a', { bytes: 5, labels: [] as never }),
          'TypeError',
          /^begin: labels must be an object of texts/,
        ],
        [
          () => keep.begin('a', { bytes: 5, labels: { a: 'x'.repeat(4096) } }),
          'RangeError',
          /^begin: labels must have at most 4096 bytes as JSON, not 4104$/,
        ],
      ]
      for (const [act, name, message] of wrong) await assert.rejects(act, { name, message }, `${act}`)
      assert.throws(() => keep.watch(5 as never), { name: 'TypeError', message: /^watch: listener must be a function/ })
      const other = await world.openKeep()
      other.close()
      assert.throws(() => other.watch(() => {}), refused('gone', /^the keep was closed by this program/))
      const none_ = openKeep(device, { path: `${world.path}-none`, timeoutMs: 20 })
      await assert.rejects(
        none_,
        refused('gone', /^no keeper listens at .*; start one: cuda-mempool keep --socket \S+$/),
      )
      assert.deepEqual(await statesOf(keep), [])
    })
  })
}
