// One machine in several processes.

import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it, test } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { DEVICE_ATTRIBUTE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as POSIX, RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { driverSuite } from '../../driver.suite.js'
import { openSimulated } from '../opened.fixture.js'
import { SimulatedDriver } from '../simulated-driver.js'
import { Machine } from './machine.js'
import { checkFolder } from './machine-folder.js'
import { Peer } from './peer-process.fixture.js'

const GRANULE = 2 * MiB
const CAPACITY = 64 * MiB
const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM } = RESULT

/** node:fs, to be replaced in part; `syncBuiltinESMExports` makes that known. */
const builtin = createRequire(import.meta.url)('node:fs')

const newFolder = () => fs.mkdtempSync(join(tmpdir(), 'machine-'))

if (process.platform !== 'linux') {
  test('a simulated machine', { skip: `works on Linux, not on ${process.platform}` }, () => {})
} else {
  const suiteFolder = newFolder()
  process.once('exit', () => fs.rmSync(suiteFolder, { recursive: true }))
  driverSuite('simulated, on a machine', () => new SimulatedDriver({ machine: suiteFolder, devices: 2 }))

  describe('a simulated machine', () => {
    let folder = ''
    let driver: SimulatedDriver
    let peers: Peer[] = []
    const freeBytes = () => driver.cuMemGetInfo().freeBytes
    const memoryFiles = () => fs.readdirSync(folder).filter(name => /^(memory|new)-/.test(name))
    const start = async () => {
      const peer = await Peer.start(folder)
      peers.push(peer)
      return peer
    }
    const peerFree = async (peer: Peer) => (await peer.call('cuMemGetInfo')).freeBytes

    beforeEach(() => {
      folder = newFolder()
      driver = openSimulated({ machine: folder, capacityBytes: CAPACITY, progress: 'eager' })
    })
    afterEach(async () => {
      for (const peer of peers) await peer.kill()
      peers = []
      fs.rmSync(folder, { recursive: true })
    })

    /** Memory of a peer with the bytes 1, 2, 3, and its descriptor there. */
    async function madeBy(peer: Peer) {
      const handle = await peer.call('cuMemCreate', GRANULE, 0, POSIX)
      const ptr = await peer.call('cuMemAddressReserve', GRANULE, 0)
      await peer.call('cuMemMap', ptr, GRANULE, handle)
      await peer.call('cuMemSetAccess', ptr, GRANULE, [0])
      await peer.do('write', ptr, [1, 2, 3])
      return { ptr, handle, descriptor: await peer.call('cuMemExportToShareableHandle', handle, POSIX) }
    }

    /** Maps the memory of a descriptor in a peer. */
    async function mappedBy(peer: Peer, descriptor: number) {
      const handle = await peer.call('cuMemImportFromShareableHandle', descriptor, POSIX)
      const ptr = await peer.call('cuMemAddressReserve', GRANULE, 0)
      await peer.call('cuMemMap', ptr, GRANULE, handle)
      await peer.call('cuMemSetAccess', ptr, GRANULE, [0])
      return { ptr, handle }
    }

    async function pass(from: Peer, descriptor: number, to: Peer): Promise<number> {
      const path = join(folder, '..', 'socket-of-a-machine')
      return (await Promise.all([to.do('receive', path), from.do('send', path, descriptor)]))[0]
    }

    it('memory outlives the process that made it, while another has a descriptor or mapping of it', async () => {
      const [writer, reader] = [await start(), await start()]
      const made = await madeBy(writer)
      const descriptor = await pass(writer, made.descriptor, reader)
      const mapped = await mappedBy(reader, descriptor)
      assert.deepEqual(await reader.do('read', mapped.ptr, 4), [1, 2, 3, 0])
      await reader.do('write', mapped.ptr + 1, [7])
      assert.deepEqual(await writer.do('read', made.ptr, 3), [1, 7, 3])
      for (const free of [await peerFree(writer), await peerFree(reader), freeBytes()]) {
        assert.equal(free, CAPACITY - GRANULE, 'there is one memory')
      }
      await writer.kill()
      const third = await start()
      const held = await pass(reader, descriptor, third)
      await reader.do('closeFile', descriptor)
      assert.deepEqual(await reader.do('read', mapped.ptr, 3), [1, 7, 3])
      assert.equal(freeBytes(), CAPACITY - GRANULE)
      await reader.kill()
      assert.equal(freeBytes(), CAPACITY - GRANULE, 'a process that only holds the descriptor')
      const { ptr } = await mappedBy(third, held)
      assert.deepEqual(await third.do('read', ptr, 3), [1, 7, 3])
      await third.kill()
      assert.equal(freeBytes(), CAPACITY)
      assert.deepEqual(memoryFiles(), [])
    })

    it('private memory counts for all processes, and goes with its process', async () => {
      const [one, two] = [await start(), await start()]
      await one.call('cuMemAlloc', 40 * MiB)
      assert.equal(await peerFree(two), 24 * MiB)
      await assert.rejects(two.call('cuMemAlloc', 25 * MiB), { result: CUDA_ERROR_OUT_OF_MEMORY })
      const ptr = await two.call('cuMemAlloc', 10 * MiB)
      refuses(() => driver.cuMemCreate(16 * MiB, 0, POSIX), 'cuMemCreate', CUDA_ERROR_OUT_OF_MEMORY)
      const own = driver.cuMemCreate(14 * MiB, 0, POSIX)
      await assert.rejects(one.call('cuMemAlloc', 1), { result: CUDA_ERROR_OUT_OF_MEMORY })
      await two.call('cuMemFree', ptr)
      assert.equal(freeBytes(), 10 * MiB)
      await one.kill()
      assert.equal(await peerFree(two), 50 * MiB)
      driver.cuMemRelease(own)
      assert.equal(await peerFree(two), CAPACITY)
    })

    it('a process that is killed while it makes memory leaves nothing', async () => {
      for (const name of ['ftruncateSync', 'renameSync', 'closeSync']) {
        const peer = await start()
        await peer.do('dieIn', name)
        await peer.dieOf('cuMemCreate', GRANULE, 0, POSIX)
        assert.equal(freeBytes(), CAPACITY, name)
        assert.deepEqual(memoryFiles(), [], name)
      }
    })

    it('a process that can open no more files gets an error of the system, and goes on', async () => {
      const peer = await start()
      const handle = await peer.call('cuMemCreate', GRANULE, 0, POSIX)
      assert.equal(await peer.do('openAll'), 'EMFILE')
      const refused = { name: 'CudaError', result: CUDA_ERROR_OPERATING_SYSTEM, message: /EMFILE/ }
      await assert.rejects(peer.call('cuMemCreate', GRANULE, 0, POSIX), refused)
      await assert.rejects(peer.call('cuMemExportToShareableHandle', handle, POSIX), refused)
      assert.equal(freeBytes(), CAPACITY - GRANULE)
    })

    it('a full file system is a lack of memory', t => {
      t.mock.method(builtin, 'ftruncateSync', () => {
        throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
      })
      syncBuiltinESMExports()
      refuses(() => driver.cuMemCreate(GRANULE, 0, POSIX), 'cuMemCreate', CUDA_ERROR_OUT_OF_MEMORY)
      t.mock.restoreAll()
      syncBuiltinESMExports()
      driver.cuMemRelease(driver.cuMemCreate(CAPACITY, 0, POSIX))
      assert.deepEqual(memoryFiles(), [])
    })

    it('after a reset, memory from before cannot be imported, and other memory can', () => {
      const handle = driver.cuMemCreate(GRANULE, 0, POSIX)
      const descriptor = driver.cuMemExportToShareableHandle(handle, POSIX)
      driver.cuMemRelease(handle)
      assert.equal(freeBytes(), CAPACITY - GRANULE)
      Machine.open(folder, CAPACITY, true).reset()
      assert.equal(freeBytes(), CAPACITY)
      const late = () => driver.cuMemImportFromShareableHandle(descriptor, POSIX)
      refuses(late, 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
      fs.closeSync(descriptor)
      const made = driver.cuMemCreate(GRANULE, 0, POSIX)
      const next = driver.cuMemExportToShareableHandle(made, POSIX)
      driver.cuMemRelease(driver.cuMemImportFromShareableHandle(next, POSIX))
      driver.cuMemRelease(made)
      fs.closeSync(next)
    })

    it('only descriptors of its own memory are imported', () => {
      const elsewhere = openSimulated({ machine: suiteFolder })
      const handle = elsewhere.cuMemCreate(GRANULE, 0, POSIX)
      const second = openSimulated({ machine: folder, devices: 2 })
      const far = second.cuMemCreate(GRANULE, 1, POSIX)
      const near = driver.cuMemCreate(GRANULE, 0, POSIX)
      for (const descriptor of [
        fs.openSync(join(folder, 'machine'), 'r'),
        fs.openSync('/dev/null', 'r'),
        elsewhere.cuMemExportToShareableHandle(handle, POSIX),
        second.cuMemExportToShareableHandle(far, POSIX), // of a device that this driver has not
      ]) {
        const act = () => driver.cuMemImportFromShareableHandle(descriptor, POSIX)
        refuses(act, 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
        fs.closeSync(descriptor)
      }
      elsewhere.cuMemRelease(handle)
      driver.cuMemRelease(near)
      second.cuMemRelease(far)
    })

    it('its uuids are those of the machine, and its pools are not shared', async () => {
      const peer = await start()
      const drivers = [driver, openSimulated({ machine: folder, seed: 5 }), openSimulated({ machine: suiteFolder })]
      const uuids = drivers.map(each => [...each.cuDeviceGetUuid(0)])
      assert.deepEqual(uuids[0], uuids[1])
      assert.notDeepEqual(uuids[0], uuids[2])
      assert.equal(String.fromCharCode(...uuids[0].slice(0, 9)), 'simulated')
      assert.deepEqual(Object.values(await peer.call('cuDeviceGetUuid', 0)), uuids[0])
      const types = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES
      assert.equal(driver.cuDeviceGetAttribute(types, 0), 0)
      const pool = { allocationType: 1, handleTypes: POSIX, locationType: 1, locationId: 0, maxBytes: 0 }
      refuses(() => driver.cuMemPoolCreate(pool), 'cuMemPoolCreate', RESULT.CUDA_ERROR_NOT_SUPPORTED)
    })

    it('a machine keeps the memory of its devices', () => {
      assert.equal(openSimulated({ machine: folder }).cuDeviceTotalMem(0), CAPACITY)
      const other = () => new SimulatedDriver({ machine: folder, capacityBytes: 2 * CAPACITY })
      assert.throws(other, { name: 'RangeError', message: /^capacityBytes: .* has devices of 64 MiB, not of 128 MiB/ })
    })

    it('a bad folder is refused with the variable and the remedy', () => {
      const [open, closed, damaged] = [newFolder(), newFolder(), newFolder()]
      fs.chmodSync(open, 0o777)
      fs.chmodSync(closed, 0o500)
      fs.writeFileSync(join(damaged, 'machine'), 'x')
      const cases: [string, RegExp][] = [
        [join(folder, 'none'), /does not exist; make it by mkdir -m 700/],
        [join(folder, 'machine'), /is no folder; name an empty one/],
        [join(folder, 'machine', 'in'), /cannot be used \(ENOTDIR|does not exist/],
        ['machines/mine', /needs an absolute path/],
        ['/proc', /belongs to user 0; name|cannot be used/],
        [open, /can be written by other users; forbid that by chmod 700/],
        [damaged, /is of no simulated machine; remove the folder/],
      ]
      if (process.geteuid!() !== 0) cases.push([closed, /cannot be used \(EACCES.*; name a writable folder/])
      for (const [machine, message] of cases) {
        const act = () => new SimulatedDriver({ machine })
        assert.throws(act, { name: 'NoDeviceError', message })
        assert.throws(act, { message: /CUDA_MEMPOOL_SIMULATED/ })
      }
      const wrong = () => new SimulatedDriver({ machine: 5 as never })
      assert.throws(wrong, { name: 'TypeError', message: /^machine must be the path/ })
      const elsewhere = { name: 'NoDeviceError', message: /on Linux, not on win32; unset CUDA_MEMPOOL_SIMULATED/ }
      assert.throws(() => checkFolder(folder, 'win32'), elsewhere)
      for (const each of [open, closed, damaged]) fs.rmSync(each, { recursive: true })
    })
  })
}
