// Worker threads that are terminated with an open client. Their process goes on, and the keeper ends the client.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { closeDescriptor } from '../libraries/system-calls.js'
import { KeeperClient } from './client.js'
import { Actor, commit, DEVICE, kept, openFiles, read, socketFolderOf } from './keeper.fixture.js'

/** Attaches 'weights', has the lease of 'next', and says so. */
const CODE = `
  const { parentPort, workerData: { path, device, url } } = require('node:worker_threads')
  parentPort.on('message', () => {})
  import(url).then(async ({ KeeperClient }) => {
    const client = await KeeperClient.open({ path, timeoutMs: 60_000 })
    const { pieces } = await client.find({ name: 'weights', purpose: 'read', device })
    const { kind } = await client.find({ name: 'next', purpose: 'fill', bytes: 1000, device })
    parentPort.postMessage({ kind, descriptors: pieces.map(each => each.descriptor) })
  })`

if (process.platform !== 'linux') test('ended threads', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  describe('worker threads that are terminated', () => {
    const { path, remove } = socketFolderOf()
    after(remove)
    const keepers: Actor[] = []
    let client: KeeperClient
    const startKeeper = async (role: 'keeper' | 'successor') => {
      const made = new Actor([role, path])
      keepers.push(made)
      assert.equal(await made.line(), 'listens')
    }
    const readers = async () => (await client.list()).find(({ name }) => name === 'weights')!.readers
    beforeEach(async () => {
      await startKeeper('keeper')
      client = await KeeperClient.open({ path, timeoutMs: 60_000 })
      await client.release(await kept(client, 'weights', ['x']))
    })
    afterEach(async () => {
      client.close()
      for (const each of keepers.splice(0)) await each.kill()
    })

    /** Terminates a thread that has a region and a lease, and asserts that the keeper gives both to others. */
    async function outlive(trackUnmanagedFds: boolean, replace = async () => {}): Promise<void> {
      const url = new URL('./client.js', import.meta.url).href
      const workerData = { path, device: DEVICE, url }
      const worker = new Worker(CODE, { eval: true, trackUnmanagedFds, workerData })
      const [{ kind, descriptors }] = await once(worker, 'message')
      assert.equal(kind, 'lease')
      assert.deepEqual([await readers(), descriptors.length], [[process.pid], 1])
      await replace()
      const wanted = { name: 'next', bytes: 1000, device: DEVICE, timeoutMs: 60_000 }
      const waiting = client.find({ ...wanted, purpose: 'fill' })
      await client.list() // the request has arrived
      await worker.terminate()
      for (const each of descriptors) closeDescriptor(each) // those of the region stay open
      const { generation } = await waiting
      await commit(client, generation, ['y'])
      assert.deepEqual(await read(client, 'next'), ['y'])
      assert.deepEqual(await readers(), [])
    }

    test('the lease of a terminated thread goes to the next in the queue, and its readers count no more', async () => {
      await outlive(false)
    })

    test('a successor ends the clients of threads that are terminated after it took over', async () => {
      await outlive(false, async () => {
        await startKeeper('successor')
        await keepers[0].ended
      })
    })

    test('the connection of a terminated thread is closed in its process, too', async () => {
      const earlier = openFiles()
      await outlive(true)
      assert.equal(openFiles(), earlier)
    })
  })
}
