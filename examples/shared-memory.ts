// Two processes that use the same GPU memory. The first one makes a buffer and a pool and shares both at paths that the
// second one, which it starts, opens. The buffer is there in both until both have freed it. Of the pool the second one gets
// single blocks, by bytes that may go any way, here as a message; it must be done with them before the first one frees.
// Streams order the work within a process; between the two it is their messages that do.
// Run on Linux with a GPU: npm run build && node dist/examples/shared-memory.js

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Device, formatBytes, MiB, openDevice, parseDeviceChoice } from 'cuda-mempool'

const [ordinal, folder] = process.argv.slice(2)
if (folder !== undefined) await second(openDevice(Number(ordinal)), folder)
else {
  using device = openDevice(parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto'))
  if (device.simulated)
    console.log(`${device.name}: two processes share memory on a GPU only; run this where there is one`)
  else await first(device)
}

async function first(device: Device): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'shared-memory-'))
  const options = { serialization: 'advanced' } as const // so that messages may be bytes
  const child = fork(fileURLToPath(import.meta.url), [`${device.ordinal}`, folder], options)
  try {
    using buffer = device.createInterprocessBuffer(64 * MiB)
    buffer.fill(1)
    await buffer.exportTo(join(folder, 'buffer'), { timeoutMs: 60_000 }) // the other process has to start first

    using pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
    await pool.exportTo(join(folder, 'pool'))
    using block = pool.allocate(1 * MiB)
    block.fill(2)
    device.synchronize() // what the other process will read is there
    child.send(pool.exportPointer(block))

    const seen = await answerOf(child)
    const values = [buffer.readSync(0, 1)[0], block.readSync(0, 1)[0]]
    console.log(`${device.name}: the other process found ${seen.join(' and ')} and wrote ${values.join(' and ')}`)
    console.log(`${formatBytes(buffer.byteLength + block.byteLength)} were shared, nothing was copied`)
    if ([...seen, ...values].join() !== '1,2,3,4') process.exitCode = 1
  } finally {
    child.kill()
    rmSync(folder, { recursive: true })
  }
}

/** What the other process sends when it has closed everything; an error when it ends without. */
async function answerOf(child: ChildProcess): Promise<number[]> {
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`the other process ended early, with status ${code}`)
  })
  const [seen] = await Promise.race([once(child, 'message'), ended])
  return seen
}

async function second(device: Device, folder: string): Promise<void> {
  const message = once(process, 'message')
  const buffer = await device.importBuffer(join(folder, 'buffer'))
  const pool = await device.importPool(join(folder, 'pool'))
  const block = pool.importBuffer((await message)[0])
  const seen = [buffer.readSync(0, 1)[0], block.readSync(0, 1)[0]]
  buffer.fill(3)
  block.fill(4)
  device.close() // waits for the work, and lets go of the buffer, the block and the pool
  process.send!(seen)
  process.disconnect()
}
