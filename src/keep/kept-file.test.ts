// Files in memory of the host that a keeper keeps.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { constants, openSync, readFileSync, writeFileSync } from 'node:fs'
import { afterEach, beforeEach, describe, it, test } from 'node:test'
import { KiB } from '../core/base/bytes.js'
import { refused } from '../core/keeper/keeper.fixture.js'
import { CAPACITY, KeepWorld, none, poolError, statesOf, threeWords, V1 } from './keep.fixture.js'
import type { Keep } from './keep.js'

const TEXT = 'a tokenizer'
const write = (path: string) => writeFileSync(path, TEXT)

if (process.platform !== 'linux') test('kept files', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('kept files', () => {
    let world: KeepWorld
    let keep: Keep
    beforeEach(async () => {
      world = new KeepWorld()
      keep = await world.openKeep()
    })
    afterEach(() => world.end().finally(() => world.discard()))

    it('are written once, and found again by their path, also by a child process', async () => {
      const made = await keep.file('tokenizer', V1, write)
      const found = await (await world.openKeep()).file('tokenizer', V1, none)
      assert.deepEqual([made.created, found.created, found.generation], [true, false, made.generation])
      for (const file of [made, found]) {
        assert.equal(readFileSync(file.path, 'utf8'), TEXT)
        assert.equal(execFileSync('cat', [file.path], { encoding: 'utf8' }), TEXT)
        assert.equal(file.byteLength, TEXT.length)
      }
      assert.equal(world.freeBytes, CAPACITY, 'they take no memory of the device')
      assert.equal(String(found), "KeptFile { tokenizer 'v1', 11 B, open }")
      found.close()
      found.close()
      assert.throws(() => found.path, poolError(/^path: the file 'tokenizer' was closed; open it again$/))
      assert.deepEqual((await keep.list())[0].readers, [process.pid])
    })

    it('are filled by the next in line if their writer fails', async () => {
      const failing = keep.file('tokenizer', V1, () => Promise.reject(new Error('no file')))
      const failed = assert.rejects(failing, /^Error: no file$/)
      const next = (await world.openKeep()).file('tokenizer', V1, write)
      await failed
      assert.equal(readFileSync((await next).path, 'utf8'), TEXT)
    })

    it('cannot be changed', async () => {
      const { path } = await keep.file('tokenizer', V1, write)
      for (const change of [() => writeFileSync(path, 'other'), () => openSync(path, constants.O_TRUNC)]) {
        assert.throws(change, { code: 'EPERM' })
      }
      assert.equal(readFileSync(path, 'utf8'), TEXT)
    })

    it('are refused if they are empty or larger than asked for, and leave nothing', async () => {
      const empty = keep.file('tokenizer', V1, () => {})
      await assert.rejects(empty, poolError(/^file: fill has written nothing to the path that it got for 'tokenizer'$/))
      const large = keep.file('tokenizer', V1, path => writeFileSync(path, Buffer.alloc(8 * KiB)))
      await assert.rejects(large, refused('size', /^commit: 'tokenizer' has 8 KiB, and 4 KiB were asked for/))
      assert.deepEqual(await statesOf(keep), ['tokenizer v1 unfinished'])
    })

    it('come back with the next keeper', async () => {
      const file = await keep.file('tokenizer', V1, write)
      await world.restart()
      await keep.list()
      const again = await (await world.openKeep()).file('tokenizer', V1, none)
      assert.equal(again.generation, file.generation)
      assert.equal(readFileSync(again.path, 'utf8'), TEXT)
    })

    it('and regions are not found as each other', async () => {
      const [file] = [await keep.file('a', V1, write), await keep.region('b', V1, threeWords)]
      await assert.rejects(
        keep.region('a', V1, none),
        refused('device', /^'a' lies on 'host', not on .*use another name/),
      )
      await assert.rejects(
        keep.file('b', V1, none),
        refused('device', /^'b' lies on .*, not on 'host'; use another name/),
      )
      keep.close()
      assert.ok(file.closed)
    })

    it('are refused by a wrong argument', async () => {
      await assert.rejects(keep.file('a', V1, 'path' as never), { name: 'TypeError', message: /^file: fill must be/ })
      await assert.rejects(keep.file('', V1, write), { name: 'RangeError', message: /^file: name must have 1 to 255/ })
      assert.deepEqual(await keep.list(), [])
    })
  })
}
