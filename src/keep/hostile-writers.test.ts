// Processes that commit anything: tables of arrays in no form, and pieces that are not what they say. A reader gets one
// typed error, and nothing stays open or mapped.

import assert from 'node:assert/strict'
import { ftruncateSync } from 'node:fs'
import { beforeEach, describe, it, test } from 'node:test'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as FILE } from '../core/driver/constants.js'
import type { KeeperClient } from '../core/keeper/client.js'
import { closeAll, openFiles, refused } from '../core/keeper/keeper.fixture.js'
import type { KeptDevice, PieceOf } from '../core/keeper/region.js'
import { memoryFile } from '../core/libraries/sealed-memory.js'
import { eachInWorld, GRANULE, type KeepWorld, type TestDevice } from './keep.fixture.js'
import type { Keep } from './keep.js'
import { fillWhole } from './keep-process.fixture.js'

const WORDS = { name: 'words', type: 'Uint32Array', byteOffset: 0, length: 3 }
const arrays = (...list: readonly unknown[]) => JSON.stringify({ arrays: list })

if (process.platform !== 'linux') test('hostile writers', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('a reader of regions of hostile writers', () => {
    let world: KeepWorld
    let device: TestDevice
    let keep: Keep
    let writer: KeeperClient
    eachInWorld(given => {
      ;({ world, device, keep } = given)
    })
    beforeEach(async () => {
      writer = await world.connect()
    })

    /** Exported memory with its size, or another size. */
    function piece(bytes = GRANULE, said = bytes): PieceOf {
      const handle = device.driver.cuMemCreate(bytes, device.context.device, FILE)
      const descriptor = device.driver.cuMemExportToShareableHandle(handle, FILE)
      device.driver.cuMemRelease(handle)
      return { descriptor, bytes: said }
    }

    async function commit(directory: string | Uint8Array, pieces: readonly PieceOf[], bytes = GRANULE): Promise<void> {
      try {
        const { generation } = await writer.find({ name: 'x', purpose: 'fill', bytes, device: factsOf(device) })
        await writer.commit([{ generation, pieces, bytes, directory: Buffer.from(directory as string) }])
        await writer.release(generation)
      } finally {
        closeAll(pieces)
      }
    }

    /** Attaches the region, which fails, and asserts that nothing of it is left. Drops it. */
    async function refuses(check: object | ((error: Error) => boolean), label: string): Promise<void> {
      const [files, free] = [openFiles(), world.freeBytes]
      await assert.rejects(keep.attach('x'), check, label)
      const left = await keep.list()
      assert.deepEqual(left[0]?.readers ?? [], [], label)
      if (left.length > 0) assert.deepEqual([openFiles(), world.freeBytes], [files, free], label)
      await keep.prune({ all: true })
    }

    it('refuses tables of arrays that it does not understand', async () => {
      const type = 'Uint32Array'
      const tables: (string | Uint8Array)[] = [
        'x',
        '{',
        'null',
        '5',
        '[]',
        '{}',
        '{"arrays":{}}',
        Uint8Array.of(0xff, 0xfe),
        '['.repeat(1_000_000),
        `{"arrays":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`,
        `{"arrays":[${'0,'.repeat(4_000_000)}0]}`,
        arrays(null),
        arrays([]),
        arrays({}),
        ...[5, '', 'x'.repeat(1025), null].map(name => arrays({ ...WORDS, name })),
        ...['Array', '__proto__', 'constructor', 'uint32array', 5, {}, null].map(each =>
          arrays({ ...WORDS, type: each }),
        ),
        ...[-4, 2, 0.5, '0', 1e300, 2 ** 53, GRANULE, null].map(each => arrays({ ...WORDS, byteOffset: each })),
        ...[-1, 0, 0.5, '3', 1e300, 2 ** 53 - 1, GRANULE / 4 + 1, null].map(each => arrays({ ...WORDS, length: each })),
        arrays({ name: 'end', type, byteOffset: GRANULE - 8, length: 3 }),
        arrays(WORDS, { ...WORDS, byteOffset: 64 }),
        `{"arrays":[{"__proto__":{"name":"a","type":"Uint8Array","byteOffset":0,"length":1}}]}`,
      ]
      for (const table of tables) {
        await commit(table, [piece()])
        const message =
          /^the arrays of region 'x' are in no form that this version knows; drop it, and have it filled anew$/
        await refuses(refused('protocol', message), String(table).slice(0, 80))
      }
    })

    it('reads others, whatever their names are', async () => {
      const names = ['__proto__', 'constructor', 'toString', '\0\n', '\ud800', 'x'.repeat(1024)]
      await commit(arrays(...names.map((name, index) => ({ ...WORDS, name, byteOffset: 256 * index }))), [piece()])
      const region = await keep.attach('x')
      assert.deepEqual(
        region.arrays.map(({ name }) => name),
        names,
      )
      for (const name of names) assert.deepEqual([...region.array(name, Uint32Array).readSync()], [0, 0, 0])
      assert.throws(() => region.array('none', Uint8Array), { name: 'RangeError', message: /^[^\n\0]{1,3000}$/ })
      region.close()
      await keep.drop('x')
      await commit('', [piece()])
      assert.deepEqual((await keep.attach('x')).arrays, [])
    })

    it('has 10,000 arrays of one region', async () => {
      const count = 10_000
      await keep.region('many', { bytes: count * 256 }, filling => {
        for (let index = 0; index < count; index++) filling.place(`array ${index}`, Uint32Array, 1)
      })
      const region = await keep.attach('many')
      assert.equal(region.arrays.length, count)
      assert.equal(region.array('array 9999', Uint32Array).byteOffset, 9999 * 256)
    })

    it('refuses pieces that are not the memory of the region', async () => {
      const wrong: [pieces: PieceOf[], bytes: number][] = [
        [[piece(), piece()], GRANULE],
        [[piece(GRANULE, 2 * GRANULE)], GRANULE],
        [[piece(GRANULE, GRANULE + 1)], GRANULE],
        [[piece(GRANULE, 1000)], 1000],
        [[piece(GRANULE, GRANULE - 1), piece(GRANULE, 1)], GRANULE],
      ]
      for (const [pieces, bytes] of wrong) {
        await commit('', pieces, bytes)
        const message = /^the pieces of region 'x' are not its .* in whole granules; drop it, and have it filled anew$/
        await refuses(refused('protocol', message), `${bytes}`)
      }
      await assert.rejects(commit('', [piece()], 2 * GRANULE), refused('protocol', /'x' is not whole/))
      await writer.drop('x', { force: true })
    })

    it('imports no memory that is smaller than its writer says, and no other file', async () => {
      await commit('', [piece(GRANULE, 2 * GRANULE)], 2 * GRANULE)
      await refuses({ name: 'CudaError', message: /^cuMemMap failed: CUDA_ERROR_NOT_SUPPORTED/ }, 'smaller')
      const file = memoryFile('x')
      ftruncateSync(file, GRANULE)
      await commit('', [{ descriptor: file, bytes: GRANULE }])
      await refuses(refused('lost', /^the memory of region 'x' is gone: /), 'another file')
      const bytes = 2 ** 52
      await commit('', [piece(GRANULE, bytes)], bytes)
      await refuses((error: Error) => error.name === 'OutOfMemoryError' || error.name === 'CudaError', 'a huge region')
    })

    it('faults if memory is cut short under it, and only its context', async () => {
      ;(await keep.region('x', { bytes: GRANULE }, filling => fillWhole(filling, 1))).close()
      const reader = await world.startProcess()
      const { generation } = await reader.do('attach', 'x')
      const found = await writer.find({ name: 'x', purpose: 'read', device: factsOf(device) })
      const pieces = found.kind === 'ready' ? found.pieces : []
      for (const { descriptor } of pieces) ftruncateSync(descriptor, 0)
      closeAll(pieces)
      const fault = { name: 'CudaError', message: /LAUNCH_FAILED.*the file of this memory was cut short/ }
      await assert.rejects(reader.do('isWholeStill', generation), fault)
      await reader.kill()
      await keep.list()
    })
  })
}

function factsOf({ properties, simulated }: TestDevice): KeptDevice {
  return { uuid: properties.uuid, totalBytes: Number.MAX_SAFE_INTEGER, simulated }
}
