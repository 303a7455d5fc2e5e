// Two processes use the same GPU memory. The first makes a buffer and a pool, and shares both at paths; the second,
// which it starts, opens them. The buffer lives until both have freed it. The second process imports single blocks of
// the pool, by bytes that can be sent in any way, here in a message. It must free them before the first process does.
// Streams order work within a process; between processes, messages do.
// In a clone, on Linux with a GPU: npm run build && node dist/examples/shared-memory.js

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Device, formatBytes, MiB, openDevice } from 'cuda-mempool'

const [ordinal, folder] = process.argv.slice(2)
if (folder !== undefined) await second(openDevice(Number(ordinal)), folder)
else {
  using device = openDevice('auto')
  if (device.simulated)
    console.log(`${device.name}: two processes share memory on a GPU only; run this where there is one`)
  else await first(device)
}

async function first(device: Device): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'shared-memory-'))
  const options = { serialization: 'advanced' } as const // allows bytes in messages
  const child = fork(fileURLToPath(import.meta.url), [`${device.ordinal}`, folder], options)
  try {
    using buffer = device.createInterprocessBuffer(64 * MiB)
    buffer.fill(1)
    await buffer.exportTo(join(folder, 'buffer'), { timeoutMs: 60_000 }) // leaves time for the other process to start

    using pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
    await pool.exportTo(join(folder, 'pool'))
    using block = pool.allocate(1 * MiB)
    block.fill(2)
    device.synchronize() // completes the work that the other process will read
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

/** The message of the other process after it has closed everything; throws when it ends without a message. */
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
  device.close() // waits for the work, and closes the buffer, the block and the pool
  process.send!(seen)
  process.disconnect?.()
}
