// Descriptor passing with an ordinary file instead of GPU memory, so that no GPU is needed. Both ends are in this
// process, with a real socket between them.

import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, it } from 'node:test'
import { DescriptorError, PoolError } from '../../base/errors.js'
import { sendDescriptor } from '../../libraries/descriptors.fixture.js'
import { type Announcement, passDescriptor, receiveDescriptor } from './descriptor-passing.js'

const BUFFER: Announcement = { kind: 'buffer', id: 'a', byteLength: 5, memoryBytes: 4096 }

if (process.platform !== 'linux') {
  it('descriptors pass between processes', { skip: `works on Linux, not on ${process.platform}` }, () => {})
} else {
  describe('descriptor passing', () => {
    const folder = fs.mkdtempSync(join(tmpdir(), 'handover-'))
    const path = join(folder, 'socket')
    let before = 0
    const openFiles = () => fs.readdirSync('/proc/self/fd').length
    const file = () => fs.openSync('/dev/zero', 'r')
    const give = (what = BUFFER) => passDescriptor(path, file(), what, {})
    after(() => fs.rmSync(folder, { recursive: true }))
    beforeEach(() => {
      before = openFiles()
    })
    afterEach(() => {
      assert.equal(openFiles(), before, 'every descriptor and connection should be closed')
      assert.deepEqual(fs.readdirSync(folder), [])
    })

    it('a descriptor arrives with its message, and the owner notices when it is closed', async () => {
      const [connection, received] = await Promise.all([give(), receiveDescriptor(path, 'buffer', {})])
      assert.deepEqual(received.announcement, BUFFER)
      const read = received.use(descriptor => {
        const bytes = new Uint8Array(3).fill(1)
        fs.readSync(descriptor, bytes)
        return [...bytes]
      })
      assert.deepEqual(read, [0, 0, 0])
      assert.equal(connection.open, true)
      received.close()
      received.close()
      assert.equal(connection.open, false)
    })

    it('everything is closed if the import fails', async () => {
      const [connection, received] = await Promise.all([give(), receiveDescriptor(path, 'buffer', {})])
      const useless = new Error('useless')
      const use = () =>
        received.use(() => {
          throw useless
        })
      assert.throws(use, useless)
      assert.equal(connection.open, false)
    })

    it('a descriptor of another kind, or of memory that is open here, is refused and closed', async () => {
      const results = await Promise.allSettled([give(), receiveDescriptor(path, 'pool', {})])
      const [given, refused] = results
      assert.ok(refused.status === 'rejected' && refused.reason instanceof PoolError)
      assert.ok(given.status === 'fulfilled' && !given.value.open)

      const [first, received] = await Promise.all([give(), receiveDescriptor(path, 'buffer', {})])
      const again = await Promise.allSettled([give(), receiveDescriptor(path, 'buffer', {})])
      assert.match(`${(again[1] as PromiseRejectedResult).reason}`, /PoolError: this process has opened the buffer/)
      assert.ok(again[0].status === 'fulfilled' && !again[0].value.open)
      assert.equal(first.open, true, 'what was opened stays open')
      received.use(() => {})
      const other = await Promise.all([give({ ...BUFFER, id: 'b' }), receiveDescriptor(path, 'buffer', {})])
      other[1].use(() => {})
      other[1].close()
      received.close()
      const once = await Promise.all([give(), receiveDescriptor(path, 'buffer', {})])
      once[1].use(() => {})
      for (const { open } of [first, other[0]]) assert.equal(open, false)
      once[1].close()
      assert.equal(once[0].open, false)
    })

    it('a message of another format is refused', async () => {
      const wrong = ['', 'no JSON', 'null', '5', '{}', '{"kind":"pool"}', JSON.stringify({ ...BUFFER, kind: 'file' })]
      for (const words of [...wrong, JSON.stringify({ ...BUFFER, byteLength: '5' })]) {
        const descriptor = file()
        const [refused] = await Promise.allSettled([
          receiveDescriptor(path, 'buffer', {}),
          sendDescriptor(path, descriptor, Buffer.from(words)),
        ])
        fs.closeSync(descriptor)
        const { reason } = refused as PromiseRejectedResult
        assert.ok(reason instanceof DescriptorError && reason.resultName === 'EPROTO', `${words}: ${reason}`)
      }
    })

    it('the descriptor is closed when no process opens the path', async () => {
      await assert.rejects(passDescriptor(path, file(), BUFFER, { timeoutMs: 0 }), { resultName: 'ETIMEDOUT' })
      await assert.rejects(receiveDescriptor(path, 'buffer', { timeoutMs: 0 }), { resultName: 'ETIMEDOUT' })
    })
  })
}
