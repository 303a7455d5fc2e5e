// Two processes that share memory of one GPU, by the public face: buffers, pools and single blocks of them, the order
// in which they let go, and the example. The other process is this file, and does what messages tell it. Without a
// GPU it fails.

import assert from 'node:assert/strict'
import { type ChildProcess, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { ImportedPool, InterprocessBuffer } from '../src/entries/processes.js'
import { type DeviceBuffer, MiB, openDevice } from '../src/index.js'

const SCRIPT = fileURLToPath(import.meta.url)
const LONG = { timeoutMs: 60_000 }

/** The commands for the second process. */
class Other {
  private readonly device = openDevice(0)
  private buffer: InterprocessBuffer | null = null
  private pool: ImportedPool | null = null
  private block: DeviceBuffer | null = null

  async openBuffer(path: string) {
    this.buffer = await this.device.importBuffer(path, LONG)
    return this.buffer.readSync(0, 1)[0]
  }

  async importPool(path: string) {
    this.pool = await this.device.importPool(path, LONG)
    return this.pool.access(this.device)
  }

  importBuffer(bytes: Uint8Array) {
    this.block = this.pool!.importBuffer(bytes)
    return [this.block.byteLength, this.block.readSync(0, 1)[0], this.block.readSync(this.block.byteLength - 1)[0]]
  }

  importOnly(bytes: Uint8Array) {
    this.pool!.importBuffer(bytes)
  }

  write(value: number) {
    for (const memory of [this.buffer, this.block]) memory?.fill(value)
    this.device.synchronize()
  }

  read() {
    return [this.buffer, this.block].map(memory => memory?.readSync(memory.byteLength - 1)[0] ?? null)
  }

  freeBlock() {
    this.block?.free()
    this.device.synchronize()
    this.block = null
  }

  closePool() {
    this.pool?.close()
  }

  close() {
    this.device.close()
  }
}

async function serve(): Promise<void> {
  const other = new Other()
  process.on('message', async ([name, ...words]: [keyof Other, ...never[]]) => {
    try {
      process.send!({ value: (await (other[name] as (...all: never[]) => unknown)(...words)) ?? null })
    } catch (error) {
      process.send!({ error: `${error}` })
    }
  })
}

if (process.argv[2] === 'other') await serve()
else {
  describe('memory shared by two processes on a GPU', { timeout: 300_000 }, () => {
    const folder = mkdtempSync(join(tmpdir(), 'sharing-'))
    const path = join(folder, 'socket')
    const device = openDevice(0)
    let child: ChildProcess
    beforeEach(() => {
      child = fork(SCRIPT, ['other'], { serialization: 'advanced' })
    })
    afterEach(async () => {
      const exited = child.exitCode !== null || child.signalCode !== null ? null : once(child, 'exit')
      child.kill('SIGKILL')
      await exited
      assert.deepEqual(readdirSync(folder), [], 'no socket file is left')
    })
    after(() => {
      device.close()
      rmSync(folder, { recursive: true })
    })

    /** Has the other process do something, and returns what it answers. */
    async function tell(name: keyof Other, ...words: unknown[]): Promise<unknown> {
      const answer = once(child, 'message')
      child.send([name, ...words] as never)
      const [{ value, error }] = await answer
      if (error !== undefined) throw new Error(`the other process: ${error}`)
      return value
    }

    test('a buffer is one memory, and stays until the last has freed it', async () => {
      using stream = device.createStream()
      const buffer = device.createInterprocessBuffer(5 * MiB, stream)
      buffer.fill(0x11)
      const [seen] = await Promise.all([tell('openBuffer', path), buffer.exportTo(path, LONG)])
      assert.equal(seen, 0x11, 'what was submitted before the share is there')
      await tell('write', 0x22)
      assert.deepEqual([buffer.readSync(0, 1)[0], buffer.readSync(5 * MiB - 1)[0]], [0x22, 0x22])
      buffer.write(Uint8Array.of(0x33), 5 * MiB - 1)
      stream.synchronize()
      assert.deepEqual(await tell('read'), [0x33, null])
      buffer.free()
      await buffer.settled()
      assert.deepEqual(await tell('read'), [0x33, null], 'the maker has freed it')
      await tell('close')
    })

    test('a pool hands over single blocks, and outlives who opened it', async () => {
      const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      const [access] = await Promise.all([tell('importPool', path), pool.exportTo(path, LONG)])
      assert.deepEqual([access, pool.importers], ['readWrite', 1])
      const [first, second] = [pool.allocate(1 * MiB), pool.allocate(5000, device.defaultStream, 1 * MiB)]
      first.fill(0x11)
      second.fill(0x44)
      device.synchronize()
      assert.deepEqual(await tell('importBuffer', pool.exportPointer(first)), [1 * MiB, 0x11, 0x11])
      await tell('write', 0x22)
      assert.equal(first.readSync(1 * MiB - 1)[0], 0x22)
      await assert.rejects(tell('importBuffer', pool.exportPointer(first)), /imported already/)
      await tell('freeBlock')
      assert.equal(first.readSync(0, 1)[0], 0x22, 'its free was its own')
      assert.deepEqual(await tell('importBuffer', pool.exportPointer(second)), [5000, 0x44, 0x44])
      assert.throws(() => pool.close(), { name: 'PoolError', message: /1 other process has this pool open/ })
      await tell('closePool')
      assert.equal(pool.importers, 0)
      pool.close()
      assert.deepEqual([first.freed, second.freed], [true, true])
    })

    test('a process that ends has let go', async () => {
      const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      await Promise.all([tell('importPool', path), pool.exportTo(path, LONG)])
      assert.equal(pool.importers, 1)
      child.kill('SIGKILL')
      await once(child, 'exit')
      assert.equal(pool.importers, 0)
      pool.close()
    })

    test('nothing is opened twice, nor as what it is not', async () => {
      const buffer = device.createInterprocessBuffer(1)
      await Promise.all([tell('openBuffer', path), buffer.exportTo(path, LONG)])
      for (const [step, message] of [
        ['openBuffer', /has opened the buffer.*already/],
        ['importPool', /is a buffer; have it exported again and use importBuffer/],
      ] as const) {
        await Promise.all([assert.rejects(tell(step, path), message), buffer.exportTo(path, LONG)])
      }
      await assert.rejects(buffer.exportTo(path, { timeoutMs: 0 }), {
        name: 'DescriptorError',
        resultName: 'ETIMEDOUT',
      })
      await tell('close')
      buffer.free()
    })

    test('a block is not imported after its owner has freed it, if the driver notices', async t => {
      const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      await Promise.all([tell('importPool', path), pool.exportTo(path, LONG)])
      const block = pool.allocate(1 * MiB)
      const exported = pool.exportPointer(block)
      block.free()
      device.synchronize()
      try {
        await tell('importOnly', exported)
        t.diagnostic('the driver imports a block that was freed: only care keeps from that')
      } catch (error) {
        t.diagnostic(`${error}`)
      }
      await tell('close')
      pool.close()
    })

    test('a pool within one process, unless the driver refuses that', async t => {
      const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      const [opened] = await Promise.allSettled([device.importPool(path), pool.exportTo(path)])
      if (opened.status === 'rejected') t.diagnostic(`${opened.reason}`)
      else {
        const block = pool.allocate(1 * MiB)
        block.fill(3)
        device.synchronize()
        const view = opened.value.importBuffer(pool.exportPointer(block))
        assert.equal(view.readSync(0, 1)[0], 3)
        opened.value.close()
      }
      pool.close()
    })

    test('the example runs as written', () => {
      const example = fileURLToPath(new URL('../examples/shared-memory.js', import.meta.url))
      const { status, stdout, stderr } = spawnSync(process.execPath, [example], { encoding: 'utf8' })
      assert.deepEqual([status, stderr], [0, ''], stdout)
      assert.match(
        stdout,
        /the other process found 1 and 2 and wrote 3 and 4\n65 MiB were shared, nothing was copied\n/,
      )
    })
  })
}
