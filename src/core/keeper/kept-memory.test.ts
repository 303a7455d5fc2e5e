// What callers that cannot wait hear of a keeper, which is a process of its own: its list, and who reads nothing of it.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { after, before, describe, it } from 'node:test'
import { UnixSocket } from '../libraries/unix-socket.js'
import { KeeperClient } from './client.js'
import { Actor, DEVICE, kept, openFiles, socketFolderOf } from './keeper.fixture.js'
import { keptMemory, unusedText } from './kept-memory.js'
import { listNow } from './list-now.js'
import type { RegionInfo } from './region.js'

const PATIENCE_MS = 60_000

describe('a keeper that is asked at once', {
  skip: process.platform !== 'linux' && `works on Linux, not on ${process.platform}`,
}, () => {
  const folder = socketFolderOf()
  let keeper: Actor
  let client: KeeperClient
  before(async () => {
    keeper = new Actor(['keeper', folder.path])
    assert.equal(await keeper.line(), 'listens')
    client = await KeeperClient.open({ path: folder.path })
  })
  after(async () => {
    client.close()
    await keeper.kill()
    folder.remove()
  })

  it('lists what its other clients see, over several packets, and leaves no file open', async () => {
    const files = openFiles()
    assert.deepEqual(listNow(folder.path, PATIENCE_MS), [])
    for (let i = 0; i < 300; i++)
      await client.find({ name: `${i}`, purpose: 'fill', bytes: 1, device: DEVICE, labels: { long: 'x'.repeat(300) } })
    const listed = listNow(folder.path, PATIENCE_MS)
    assert.equal(listed?.length, 300)
    assert.deepEqual(listed, await client.list())
    for (const { generation } of listed) await client.abandon(generation)
    assert.equal(openFiles(), files)
    await client.prune({ unfinished: true })
  })

  it('tells what is kept without readers on a device, and how to free it', async () => {
    const name = "a'b"
    const generation = await kept(client, name, ['1234'])
    await kept(client, 'read', ['123'])
    await client.release(generation)
    let text: string | null = null // a busy machine may not run the keeper in time
    for (let tries = 0; text === null && tries < 100; tries++) text = unusedText(() => DEVICE.uuid)
    const at = ` --socket ${folder.path}`
    assert.equal(text, `4 B are kept as '${name}', without readers: cuda-mempool keep prune --name 'a'\\''b'${at}`)
    assert.equal(
      unusedText(() => 'another device'),
      null,
    )
    const memory = keptMemory(await client.list(), 'another device')
    assert.deepEqual(
      { ...memory, unused: { ...memory.unused, since: 0 } },
      {
        bytes: 7,
        regions: 2,
        deviceBytes: 0,
        unused: { bytes: 4, regions: 1, since: 0 },
      },
    )
    assert.deepEqual(await client.prune({ name }).then(all => all.map(each => each.name)), [name])
  })

  it('is given up if it is stopped, or none', async () => {
    keeper.process.kill('SIGSTOP')
    assert.equal(listNow(folder.path, 1), null)
    keeper.process.kill('SIGCONT')
    assert.equal(listNow(`${folder.path}.none`, PATIENCE_MS), null)
    writeFileSync(`${folder.path}.file`, '')
    assert.equal(listNow(`${folder.path}.file`, PATIENCE_MS), null)
    const silent = UnixSocket.listenAt(`${folder.path}.silent`)
    assert.equal(listNow(`${folder.path}.silent`, 1), null)
    silent.close()
  })
})

describe('kept memory', () => {
  const info = (state: RegionInfo['state'], readers: number[], lastUse: number): RegionInfo => {
    const rest = { name: 'a', version: '', generation: 1, labels: {}, writer: 1, created: 0 }
    return { ...rest, state, readers, lastUse, bytes: 10, device: 'here' }
  }

  it('is what whole regions have; the longest unused tells since when', () => {
    const regions = [
      info('ready', [], 7),
      info('ready', [], 5),
      info('ready', [0], 1),
      info('retired', [4], 1),
      info('filling', [], 1),
      info('committing', [], 1),
      info('unfinished', [], 1),
    ]
    assert.deepEqual(keptMemory(regions, 'here'), {
      bytes: 40,
      regions: 4,
      deviceBytes: 40,
      unused: { bytes: 20, regions: 2, since: 5 },
    })
    assert.equal(keptMemory([], 'here').unused.since, null)
  })
})
