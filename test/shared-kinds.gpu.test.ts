// Block pools, arenas and host pools of a GPU in two threads. Without a GPU it fails.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'

test('a GPU’s other kinds of pools are used by two threads', async () => {
  const device = openDevice()
  const block = device.createSharedBlockPool({ blockBytes: 8 * KiB, count: 4 })
  const arena = device.createSharedArenaPool({ bytes: 1 * MiB })
  const host = device.createSharedHostPool({ maxPoolBytes: 64 * MiB, mapped: true })
  const args = [block.share(), arena.share(), host.share(), 42]
  const thread = new Worker(new URL('./shared-kinds.worker.js', import.meta.url), {
    workerData: { kindTask: 'fillEach', args },
  })
  const [[first, second, third]] = (await once(thread, 'message')) as [TransferredBuffer[]]
  const expected = Array(1000).fill(42)
  for (const buffer of [block.adopt(first), arena.adopt(second)]) {
    assert.deepEqual([...buffer.readSync()], expected)
    buffer.free()
  }
  const pinned = host.adopt(third)
  assert.deepEqual([...pinned.bytes], expected)
  assert.ok(pinned.devicePtr > 0)
  const target = arena.allocate(1000)
  pinned.copyTo(target)
  pinned.free()
  assert.deepEqual([...target.readSync()], expected)
  arena.reset()
  assert.equal(target.freed, true)
  thread.postMessage('close')
  await once(thread, 'message')
  await thread.terminate()
  for (const pool of [block, arena, host]) assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  device.close()
})
