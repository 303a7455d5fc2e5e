// Regions that are whole: read-only memory with arrays.

import assert from 'node:assert/strict'
import { describe, it, test } from 'node:test'
import { inspect } from 'node:util'
import { KiB } from '../core/base/bytes.js'
import { refused } from '../core/keeper/keeper.fixture.js'
import type { Filling } from './filling.js'
import {
  CAPACITY,
  eachInWorld,
  GRANULE,
  type KeepWorld,
  none,
  poolError,
  type TestDevice,
  threeWords,
  V1,
  wordsIn,
} from './keep.fixture.js'
import type { Keep } from './keep.js'

if (process.platform !== 'linux') test('regions', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('regions that are whole', () => {
    let world: KeepWorld
    let device: TestDevice
    let keep: Keep
    eachInWorld(given => {
      ;({ world, device, keep } = given)
    })

    describe('are read-only', () => {
      it('for every call that writes, by name', async () => {
        const region = await keep.region('weights', V1, threeWords)
        const { buffer } = region
        const words = region.array('words', Uint32Array)
        const view = buffer.array(Uint32Array, 3)
        const source = device.createPool().upload(Uint32Array.of(7, 8, 9))
        const host = device.createHostPool().allocate(12)
        const calls: [string, () => void][] = [
          ['write', () => buffer.write(Uint8Array.of(1))],
          ['writeSync', () => buffer.writeSync(Uint8Array.of(1))],
          ['fill', () => buffer.fill(0)],
          ['copyFrom', () => buffer.copyFrom(source)],
          ['copyFromSync', () => buffer.copyFromSync(source)],
          ['write', () => words.write(Uint32Array.of(1))],
          ['writeSync', () => words.writeSync(Uint32Array.of(1))],
          ['fill', () => words.fill(0)],
          ['fill', () => words.subarray(1).fill(0)],
          ['copyFrom', () => words.copyFrom(source)],
          ['copyTo', () => host.copyTo(words)],
          ['copyTo', () => host.copyTo(buffer)],
          ['write', () => view.write(Uint32Array.of(1))],
          ['fill', () => view.fill(0)],
          ['copyTo', () => host.copyTo(view)],
        ]
        for (const [call, act] of calls) {
          const message = new RegExp(
            `^${call}: region 'weights' is read-only; for new contents fill another version of it$`,
          )
          assert.throws(act, poolError(message), `${act}`)
        }
        assert.throws(() => device.createArenaPool({ region: buffer }), poolError(/^createArenaPool: .* is read-only/))
        for (const act of [() => buffer.free(), () => view.buffer.free()])
          assert.throws(act, poolError(/^free: the memory belongs to region 'weights'; close the region instead$/))
        for (const act of [() => words.free(), () => view.free()]) assert.throws(act, poolError(/^free: /))
        for (const each of [buffer, words, view]) each[Symbol.dispose]()
        assert.deepEqual([...words.readSync(), ...view.readSync()], [1, 2, 3, 1, 2, 3])
      })

      it('and can be read and copied', async () => {
        const region = await keep.region('weights', V1, threeWords)
        const words = region.array('words', Uint32Array)
        const target = device.createPool().allocateArray(Uint32Array, 3)
        target.copyFrom(words)
        assert.deepEqual([...(await target.read())], [1, 2, 3])
        target.buffer.fill(0)
        target.buffer.copyFromSync(region.buffer, 0, 4, 4)
        assert.deepEqual([...(await target.read())], [2, 0, 0])
        const host = device.createHostPool().allocate(12)
        host.copyFrom(words)
        await device.finished()
        assert.deepEqual([...new Uint32Array(host.bytes.slice().buffer)], [1, 2, 3])
      })

      it('for kernels, whose context faults, while the contents stay', async () => {
        await keep.region('weights', V1, threeWords)
        const [reader, writer] = [await world.startProcess(), await world.startProcess()]
        const refusal = { name: 'CudaError', message: /ILLEGAL_ADDRESS.* which this device may only read/ }
        await assert.rejects(reader.do('storeInto', 'weights'), refusal)
        await writer.do('region', 'own', 'v1', GRANULE)
        await assert.rejects(writer.do('storeInto', 'own'), refusal)
        for (const each of [reader, writer]) await each.kill()
        assert.deepEqual(await wordsIn(await keep.attach('weights')), [1, 2, 3])
      })
    })

    describe('have arrays', () => {
      it('of each type, by name', async () => {
        const filled = new Map<string, { readonly type: string; readonly length: number }>()
        const fill = (region: Filling) => {
          const data = [Int8Array, Uint8ClampedArray, Int16Array, Float32Array, Float64Array, BigInt64Array]
          for (const type of data) {
            const source = new type(5)
            region.put(`of ${type.name}`, source as unknown as Uint8Array)
            filled.set(`of ${type.name}`, { type: type.name, length: 5 })
          }
          region.put('__proto__', Buffer.from('bytes'))
          region.arena.upload(Uint8Array.of(1)) // without a name
          filled.set('__proto__', { type: 'Uint8Array', length: 5 })
        }
        await keep.region('weights', V1, fill)
        const region = await (await world.openKeep()).attach('weights')
        assert.deepEqual(
          region.arrays.map(({ name, type, length }) => [name, { type, length }]),
          [...filled],
        )
        assert.equal(Buffer.from(await region.array('__proto__', Uint8Array).read()).toString(), 'bytes')
        assert.deepEqual([...(await region.array('of BigInt64Array', BigInt64Array).read())], [0n, 0n, 0n, 0n, 0n])
      })

      it('and refuse others', async () => {
        let kept: Filling | undefined
        const region = await keep.region('weights', V1, filling => {
          kept = filling
          filling.place('words', Uint32Array, 3).fill(0)
          const wrong: [() => unknown, string, RegExp][] = [
            [() => filling.put('words', Uint8Array.of(1)), 'RangeError', /^put: .* has an array 'words' already/],
            [() => filling.place('words', Uint8Array, 1), 'RangeError', /^place: .* has an array 'words' already/],
            [() => filling.put('', Uint8Array.of(1)), 'RangeError', /^put: name must have 1 to 1024 bytes, not 0/],
            [() => filling.put('é'.repeat(513), Uint8Array.of(1)), 'RangeError', /bytes, not 1026$/],
            [() => filling.put(5 as never, Uint8Array.of(1)), 'TypeError', /^put: name must be a text, not 5$/],
            [() => filling.put('x', [1] as never), 'TypeError', /^put: /],
            [() => filling.put('x', new Uint8Array(0)), 'RangeError', /^put: /],
            [() => filling.place('x', Uint8Array, 0), 'RangeError', /^place: count must be/],
            [() => filling.place('x', Array as never, 1), 'TypeError', /^place: type must be/],
            [() => filling.place('x', Uint8Array, 5 * KiB), 'KeepError', /^place: 'x' does not fit into the 4 KiB/],
          ]
          for (const [act, name, message] of wrong) assert.throws(act, { name, message }, `${act}`)
        })
        const wrong: [() => unknown, string, RegExp][] = [
          [() => region.array('word', Uint32Array), 'RangeError', /^array: .* has no array 'word'; it has 'words'$/],
          [
            () => region.array('words', Int32Array),
            'TypeError',
            /^array: 'words' is of Uint32Array, not of Int32Array/,
          ],
          [() => region.array('words', undefined as never), 'TypeError', /^array: type must be a typed array class/],
          [() => region.array(7 as never, Uint8Array), 'RangeError', /^array: .* has no array 7/],
        ]
        for (const [act, name, message] of wrong) assert.throws(act, { name, message }, `${act}`)
        region.close()
        region.close()
        const freed = poolError(/^\w+: the buffer was already freed, or its device closed; keep no reference to it$/)
        for (const act of [
          () => region.array('words', Uint32Array),
          () => region.buffer.readSync(),
          () => region.buffer.ptr,
          () => region.buffer.fill(0),
          () => kept!.arena.allocate(1),
        ])
          assert.throws(act, { name: 'PoolError' }, `${act}`)
        assert.throws(() => region.array('words', Uint32Array), freed)
        const empty = await keep.region('empty', { bytes: 1000 }, () => {})
        assert.throws(() => empty.array('x', Uint8Array), { message: /^array: .* has no array 'x'; it has none$/ })
      })

      it('that fill it to the last byte', async () => {
        const bytes = 3 * GRANULE
        const made = await keep.region('all', { bytes }, filling => {
          filling.place('all', Uint8Array, bytes).fill(6)
          assert.throws(
            () => filling.place('more', Uint8Array, 1),
            refused('size', /^place: 'more' does not fit into the/),
          )
        })
        assert.ok((await made.array('all', Uint8Array).read()).every(each => each === 6))
        await assert.rejects(
          keep.region('too large', { bytes: 2 * CAPACITY }, none),
          refused('quota', /start the keeper with a larger --max-bytes$/),
        )
      })
    })

    it('have names and labels of all characters, which messages show on one line', async () => {
      const names = ['__proto__', '../../etc', '\0\n\u001b[31m', `"\\'`, '\ud800', 'x'.repeat(255), '\0'.repeat(255)]
      for (const name of names) {
        const labels = { ['__proto__']: name, '\n': 'x', evictable: 'no' }
        const region = await keep.region(name, { bytes: 5, version: name, labels }, threeWordsLess)
        const other = await keep.attach(name, { version: name })
        assert.deepEqual([other.name, other.version], [name, name])
        const texts = [`${region}`, inspect(region)]
        for (const act of [() => region.buffer.fill(0), () => region.buffer.free()])
          assert.throws(act, (error: Error) => texts.push(error.message) > 0)
        for (const text of texts) assert.doesNotMatch(text, /\p{Cc}/u)
        for (const each of [region, other]) each.close()
      }
      assert.deepEqual(
        (await keep.list()).map(({ name }) => name),
        names,
      )
      assert.deepEqual((await keep.list())[0].labels['\n'], 'x')
    })

    it('show themselves', async () => {
      const region = await keep.region('weights', V1, threeWords)
      assert.equal(`${region}`, "Region { weights 'v1', 4 KiB, open }")
      assert.equal(inspect(region), `${region}`)
      const { generation } = region
      const facts = { name: 'weights', version: 'v1', generation, created: true, closed: false }
      const arrays = [{ name: 'words', type: 'Uint32Array', byteOffset: 0, length: 3 }]
      assert.deepEqual(JSON.parse(JSON.stringify(region)), { ...facts, arrays })
      assert.match(`${region.buffer}`, /^RegionBuffer \{ 4 KiB at 0x[\da-f]+, .* live \}$/)
      assert.equal(inspect(keep), 'Keep { 1 regions, 0 being filled }')
      const filling = await keep.begin('next', V1)
      filling.place('words', Uint32Array, 3)
      assert.equal(`${filling}`, "Filling { next 'v1', 4 KiB, open }")
      filling[Symbol.dispose]()
      assert.equal(inspect(filling), "Filling { next 'v1', 4 KiB, abandoned }")
      const { state, bytes, arrays: placed } = JSON.parse(JSON.stringify(filling))
      assert.deepEqual([state, bytes, placed.length], ['abandoned', 4 * KiB, 1])
      region.close()
      assert.equal(`${region}`, "Region { weights 'v1', closed }")
      assert.deepEqual(JSON.parse(JSON.stringify(region)), { ...facts, closed: true, arrays })
    })
  })
}

function threeWordsLess(filling: Filling): void {
  filling.put('word', Uint8Array.of(1))
}
