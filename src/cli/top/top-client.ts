// The requests of `cuda-mempool top` to a served process.

import { type IncomingMessage, request } from 'node:http'
import type { ProcessStats } from '../../live/process-stats.js'
import { foreignSocket, type ServedSocket, servedSockets, socketFolder } from '../../live/socket-path.js'
import { UsageError } from '../exit.js'

const HOW = 'call serve(pool) of cuda-mempool/live in it, or start it with CUDA_MEMPOOL_SERVE=1'
/** Longer lines come from other servers. */
const MOST_LINE = 4_000_000
const FOREIGN = 'the socket is not one of cuda-mempool'

/** The socket of a process: by its path, by a process id, or the only one there is. */
export async function chosenSocket(target: string | undefined, folder = socketFolder()): Promise<string> {
  if (target !== undefined && !/^\d+$/.test(target)) {
    const obstacle = foreignSocket(target)
    if (obstacle !== null) throw new UsageError(`top: ${obstacle}`)
    return target
  }
  const sockets = await servedSockets(folder)
  const fitting = target === undefined ? sockets : sockets.filter(({ pid }) => pid === Number(target))
  if (fitting.length === 1) return fitting[0].path
  if (fitting.length > 1) throw new UsageError(`top: several are served: ${listed(fitting)}; name one`)
  if (target === undefined) throw new UsageError(`top: no process of this user is served; ${HOW}`)
  const others = sockets.length === 0 ? '' : ` (served: ${listed(sockets)})`
  throw new UsageError(`top: the process ${target} is not served${others}; ${HOW}`)
}

function listed(sockets: readonly ServedSocket[]): string {
  const isUnique = new Set(sockets.map(({ pid }) => pid)).size === sockets.length
  return sockets.map(({ pid, path }) => (isUnique ? String(pid) : path)).join(', ')
}

/** A served process. */
export class TopClient {
  constructor(private readonly socketPath: string) {}

  /** The figures now, and the text of them. */
  async stats(): Promise<{ stats: ProcessStats; text: string }> {
    const text = (await this.body('GET', '/stats')).toString()
    return { stats: statsIn(text), text }
  }

  /** The blocks of all pools. */
  async snapshots<Snapshots>(signal: AbortSignal): Promise<Snapshots> {
    return JSON.parse((await this.body('GET', '/snapshot', signal)).toString())
  }

  /** A recording of a pool from now on. `signal` ends it, and nothing is recorded. */
  record(pool: string, seconds: number, stacks: number, signal: AbortSignal): Promise<Buffer> {
    return this.body('POST', `/record?pool=${encodeURIComponent(pool)}&seconds=${seconds}&stacks=${stacks}`, signal)
  }

  /** Calls `each` with the figures every `periodMs`, until the process ends or `signal` is aborted. */
  async events(periodMs: number, signal: AbortSignal, each: (stats: ProcessStats) => void): Promise<void> {
    let text = ''
    try {
      const response = await this.ask('GET', `/events?ms=${periodMs}`, signal)
      if (response.statusCode !== 200) throw new UsageError(`top: ${errorIn(await this.whole(response))}`)
      for await (const part of response.setEncoding('utf8')) {
        text += part
        const lines = text.split('\n')
        text = lines.pop()!
        if (text.length > MOST_LINE) throw new UsageError(`top: ${FOREIGN}`)
        for (const line of lines) if (line.startsWith('data: ')) each(statsIn(line.slice('data: '.length)))
      }
    } catch (error) {
      if (error instanceof UsageError && !signal.aborted) throw error
      // the process has ended, or the caller has
    }
  }

  private async body(method: string, path: string, signal?: AbortSignal): Promise<Buffer> {
    const response = await this.ask(method, path, signal)
    const body = await this.whole(response)
    if (response.statusCode === 200) return body
    throw new UsageError(`top: ${errorIn(body)}`)
  }

  /** All bytes of an answer. Throws UsageError if the process ends within it. */
  private async whole(response: IncomingMessage): Promise<Buffer> {
    const parts: Buffer[] = []
    try {
      for await (const part of response) parts.push(part)
    } catch (error) {
      throw this.silent(error)
    }
    return Buffer.concat(parts)
  }

  private ask(method: string, path: string, signal?: AbortSignal): Promise<IncomingMessage> {
    const { socketPath } = this
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath, method, path, ...(signal === undefined ? {} : { signal }) }, resolve)
      asked.on('error', error => reject(this.silent(error)))
      asked.end()
    })
  }

  private silent(error: unknown): UsageError {
    return new UsageError(`top: ${this.socketPath} does not answer (${(error as Error).message})`)
  }
}

/** The figures in an answer. Throws UsageError if another program wrote it. */
function statsIn(text: string): ProcessStats {
  const stats = parsed(text)
  if (stats?.version === 1 && Array.isArray(stats.pools)) return stats as ProcessStats
  throw new UsageError(`top: ${FOREIGN}`)
}

function errorIn(body: Buffer): string {
  const error = parsed(body.toString())?.error
  return typeof error === 'string' ? error : FOREIGN
}

/** The fields of an object as JSON; null for other text. */
function parsed(text: string): (Partial<ProcessStats> & { error?: unknown }) | null {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
