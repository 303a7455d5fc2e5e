// An HTTP server with an arena for each request. It answers 503 when too many requests wait or memory is short, and 413
// for what never fits. It gives up when a client leaves, and finishes its requests when it is told to end.
// In a clone: npm run build && node dist/examples/server.js

import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type ArenaPool, MiB, OutOfMemoryError, openDevice, PoolError } from 'cuda-mempool'

const MOST_SHUTDOWN_MS = 10_000

await using device = openDevice('auto')
const queue = device.createArenaQueue({ bytes: 8 * MiB, count: 2, maxWaiting: 4 })

/** Sends `count` numbers to the device, and brings a copy back. */
async function work(arena: ArenaPool, count: number, signal: AbortSignal): Promise<number> {
  using stream = device.createStream()
  const input = arena.upload(new Float32Array(count).fill(2), stream)
  const output = arena.allocateArray(Float32Array, count, stream)
  output.copyFrom(input)
  await stream.finished({ signal })
  const numbers = await output.read()
  return numbers.reduce((sum, number) => sum + number, 0)
}

function statusOf(error: unknown): number {
  if (error instanceof OutOfMemoryError) return error.remedy === 'askForLess' ? 413 : 503
  return error instanceof PoolError ? 503 : 500 // too many wait, or the server ends
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController()
  const { signal } = gone
  response.once('close', () => gone.abort())
  const count = Number(new URL(request.url ?? '/', 'http://localhost').searchParams.get('count') ?? 1024)
  try {
    const sum = await queue.use(arena => work(arena, count, signal), { signal })
    response.end(`${sum}\n`)
  } catch (error) {
    if (signal.aborted) return
    const status = statusOf(error)
    response.writeHead(status, status === 503 ? { 'Retry-After': '1' } : {}).end(`${(error as Error).message}\n`)
  }
}

const server = createServer((request, response) => void answer(request, response))
server.listen(0)
await once(server, 'listening')
const url = `http://localhost:${(server.address() as AddressInfo).port}`
const ended = once(process, 'SIGTERM').then(async () => {
  server.close()
  await queue.close({ signal: AbortSignal.timeout(MOST_SHUTDOWN_MS) })
})

// A load, and the signal that a service manager sends.
const load = new Array<string>(30).fill(`${url}/?count=1000`)
const many = await Promise.all(load.map(address => fetch(address)))
console.log(`a burst: ${[...new Set(many.map(({ status }) => status))].sort().join(' or ')}`)
console.log(`more memory than an arena has: ${(await fetch(`${url}/?count=${4 * MiB}`)).status}`)
const client = new AbortController()
server.once('request', () => client.abort())
await fetch(url, { signal: client.signal }).catch(() => console.log('a client has left'))
process.kill(process.pid, 'SIGTERM')
await ended
console.log(`at the end: ${queue}`)
