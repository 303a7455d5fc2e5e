// Kept regions on a GPU: the memory outlives its writer and a keeper that were killed, and readers cannot write. Fails
// without a GPU.

import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { RESULT } from '../core/driver/constants.js'
import { Actor, socketFolderOf } from '../core/keeper/keeper.fixture.js'
import { openKeep } from './keep.js'
import { isWhole, KeepProcess } from './keep-process.fixture.js'

const BYTES = 64 * MiB

describe('kept regions on a GPU', () => {
  const place = socketFolderOf()
  const device = openDevice(0)
  const processes: KeepProcess[] = []
  let keeper: Actor

  const startKeeper = async () => {
    keeper = new Actor(['keeper', place.path])
    assert.equal(await keeper.line(), 'listens')
  }
  const start = async () => {
    const { process, opened } = KeepProcess.start({ path: place.path, machine: null })
    processes.push(process)
    await opened
    return process
  }

  before(startKeeper)
  after(async () => {
    for (const each of processes) await each.kill()
    await keeper.kill()
    device.close()
    place.remove()
  })

  it('outlive their writer, which was killed, and are whole', async () => {
    const writer = await start()
    const filled = await writer.do('region', 'weights', 'v1', BYTES)
    assert.ok(filled.created && filled.isWhole)
    await writer.kill()
    using keep = await openKeep(device, { path: place.path })
    using found = await keep.attach('weights')
    assert.ok(await isWhole(found))
    assert.equal(found.generation, filled.generation)
    const write = () => device.driver.cuMemcpyHtoD(found.buffer.ptr, new Uint8Array(4))
    assert.throws(write, { name: 'CudaError', result: RESULT.CUDA_ERROR_INVALID_VALUE })
    assert.ok(await isWhole(found))
  })

  it('outlive their keeper, which was killed, while a process has them that imported them', async () => {
    const reader = await start()
    const { generation } = await reader.do('attach', 'weights')
    await keeper.kill()
    await startKeeper()
    await reader.do('list')
    await reader.kill()
    using keep = await openKeep(device, { path: place.path })
    using found = await keep.attach('weights')
    assert.equal(found.generation, generation)
    assert.ok(await isWhole(found))
  })

  it('stay whole when a kernel writes to them, which costs the context of its process', async t => {
    const reader = await start()
    await assert.rejects(reader.do('storeInto', 'weights'), error => {
      t.diagnostic((error as Error).message)
      return (error as Error).name === 'DeviceLostError' || (error as Error).name === 'CudaError'
    })
    await assert.rejects(reader.do('attach', 'weights'))
    using keep = await openKeep(device, { path: place.path })
    using found = await keep.attach('weights')
    assert.ok(await isWhole(found))
  })
})
