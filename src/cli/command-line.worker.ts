// The thread of command-line.fixture.ts. It evaluates program.ts anew for each command; other modules stay loaded.

import { type MessagePort, workerData } from 'node:worker_threads'
import type { Command, Ended } from './command-line.fixture.js'

const { port, ended } = workerData as { port: MessagePort; ended: Int32Array }
let commands = 0

port.on('message', async ({ args, env }: Command) => {
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, env)
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args)
  process.exitCode = 0
  const stdout = collect(process.stdout)
  const stderr = collect(process.stderr)
  await import(`./program.js?command=${++commands}`)
  process.stdout.removeAllListeners('error')
  port.postMessage({ status: Number(process.exitCode), stdout: stdout(), stderr: stderr() } satisfies Ended)
  Atomics.add(ended, 0, 1)
  Atomics.notify(ended, 0)
})

/** Keeps what is written from now on; the function returns it. */
function collect(stream: NodeJS.WriteStream): () => string {
  const pieces: Uint8Array[] = []
  stream.write = (piece: string | Uint8Array) => {
    pieces.push(typeof piece === 'string' ? Buffer.from(piece) : piece)
    return true
  }
  return () => Buffer.concat(pieces).toString()
}
