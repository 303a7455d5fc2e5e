// An HTTP server with an arena for each request. It answers 503 when requests wait too long or too many wait, and 413
// to a request that never fits. It gives up when a client leaves, and finishes its requests before it ends.
// docs/recipes/server.md explains it. In a clone: npm run build && node dist/examples/server.js

import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { type ArenaPool, formatBytes, MiB, OutOfMemoryError, openDevice } from 'cuda-mempool'

const MOST_WAITING_MS = Number(process.env['MOST_WAITING_MS'] ?? 1000)
const MOST_SHUTDOWN_MS = Number(process.env['MOST_SHUTDOWN_MS'] ?? 10_000)

await using device = openDevice('auto')
const queue = device.createArenaQueue({ bytes: 8 * MiB, count: 2, maxWaiting: 4 })

/** Adds `count` numbers up. The wait stands for kernels that take `ms`. */
async function work(arena: ArenaPool, count: number, ms: number, signal: AbortSignal): Promise<number> {
  using stream = device.createStream()
  const numbers = arena.allocateArray(Float32Array, count, stream)
  numbers.fill(0.5)
  await setTimeout(ms, undefined, { signal })
  return (await numbers.read()).reduce((sum, number) => sum + number, 0)
}

function statusOf(error: unknown): number {
  if (error instanceof OutOfMemoryError) return error.remedy === 'askForLess' ? 413 : 503
  if (error instanceof RangeError) return 400
  const { name, code } = error as { name: string; code?: unknown }
  return name === 'TimeoutError' || code === 'ERR_TOO_MANY_WAIT' ? 503 : 500
}

function reply(response: ServerResponse, status: number, text: string): void {
  if (status === 503) response.setHeader('Retry-After', '1')
  if (!server.listening) response.setHeader('Connection', 'close') // the client sends its next request elsewhere
  response.writeHead(status).end(`${text}\n`)
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
  const gone = new AbortController()
  response.once('close', () => gone.abort()) // the client has left, or has its answer
  try {
    if (pathname === '/health') {
      return reply(response, 200, `${queue}, ${formatBytes(device.memoryInfo().freeBytes)} free`)
    }
    const [count, ms] = [Number(searchParams.get('count') ?? 1024), Number(searchParams.get('ms') ?? 10)]
    const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(MOST_WAITING_MS)])
    const sum = await queue.use(arena => work(arena, count, ms, gone.signal), { signal })
    reply(response, 200, `${sum}`)
  } catch (error) {
    if (!gone.signal.aborted) reply(response, statusOf(error), (error as Error).message)
  }
}

let running = 0
const server = createServer((request, response) => {
  running++
  response.once('close', () => {
    running--
    if (running === 0) server.emit('idle')
  })
  void answer(request, response)
})
server.listen(Number(process.env['PORT'] ?? 8080))
await once(server, 'listening')
console.log(`listening on http://localhost:${(server.address() as AddressInfo).port}`)

await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')])
server.close() // takes no new connections
const late = AbortSignal.timeout(MOST_SHUTDOWN_MS)
if (running > 0) await once(server, 'idle', { signal: late }).catch(() => {})
server.closeAllConnections() // aborts the work that is late
await queue.close()
console.log(`at the end: ${queue}`)
