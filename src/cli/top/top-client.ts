// The requests of `cuda-mempool top` to a served process.

import { type IncomingMessage, request } from 'node:http'
import { formatBytes, GiB, MiB } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import type { ProcessStats } from '../../live/process-stats.js'
import { foreignSocket, type ServedSocket, servedSockets, socketFolder } from '../../live/socket-path.js'
import { UsageError } from '../exit.js'
import { errorIn, snapshotsIn, statsIn } from './served-figures.js'
import type { ServedSnapshots } from './top-model.js'

const HOW = 'call serve(pool) of cuda-mempool/live in it, or start it with CUDA_MEMPOOL_SERVE=1'
/** Longer lines come from other servers. */
const MOST_LINE = 4_000_000
const FOREIGN = 'the socket is not one of cuda-mempool'
/** More is not an answer of figures, nor the recording of a few seconds. */
const [MOST_BYTES, MOST_RECORDING_BYTES] = [64 * MiB, GiB]
/** For an answer at once. */
const PATIENCE_MS = 5000

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

/** A served process. Errors are UsageErrors. */
export class TopClient {
  constructor(
    private readonly socketPath: string,
    private readonly patienceMs = PATIENCE_MS,
  ) {}

  /** The figures now. */
  async stats(): Promise<ProcessStats> {
    return statsIn(await this.text('/stats')) ?? foreign()
  }

  /** The blocks of all pools. */
  async snapshots(signal: AbortSignal): Promise<ServedSnapshots> {
    return snapshotsIn(await this.text('/snapshot', signal)) ?? foreign()
  }

  /** A recording of a pool from now on. `signal` ends it, and nothing is recorded. */
  async record(pool: string, seconds: number, stacks: number, signal: AbortSignal): Promise<Buffer> {
    const path = `/record?pool=${encodeURIComponent(pool)}&seconds=${seconds}&stacks=${stacks}`
    return this.whole(await this.ask('POST', path, signal), MOST_RECORDING_BYTES)
  }

  /** Calls `each` with the figures every `periodMs`, until the process ends or `signal` is aborted. */
  async events(periodMs: number, signal: AbortSignal, each: (stats: ProcessStats) => void): Promise<void> {
    let text = ''
    try {
      const response = await this.inTime(inTime => this.ask('GET', `/events?ms=${periodMs}`, inTime), signal)
      if (response.statusCode !== 200) await this.whole(response, MOST_BYTES)
      for await (const part of response.setEncoding('utf8')) {
        text += part
        const lines = text.split('\n')
        text = lines.pop()!
        if (text.length > MOST_LINE) foreign()
        for (const line of lines) {
          if (line.startsWith('data: ')) each(statsIn(line.slice('data: '.length)) ?? foreign())
        }
      }
    } catch (error) {
      if (error instanceof UsageError && !signal.aborted) throw error
      // the process has ended, or the caller has
    }
  }

  private text(path: string, signal?: AbortSignal): Promise<string> {
    return this.inTime(async inTime => {
      const body = await this.whole(await this.ask('GET', path, inTime), MOST_BYTES)
      return body.toString()
    }, signal)
  }

  /** The result of `work`, whose signal is aborted when `signal` is, or when the process takes too long. */
  private async inTime<T>(work: (inTime: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), this.patienceMs)
    try {
      return await work(AbortSignal.any([late.signal, ...(signal === undefined ? [] : [signal])]))
    } catch (error) {
      throw late.signal.aborted ? this.silent(`within ${this.patienceMs / 1000} s`) : error
    } finally {
      clearTimeout(timer)
    }
  }

  /** All bytes of an answer with status 200. */
  private async whole(response: IncomingMessage, mostBytes: number): Promise<Buffer> {
    const parts: Buffer[] = []
    let bytes = 0
    try {
      for await (const part of response) {
        parts.push(part)
        bytes += part.length
        if (bytes > mostBytes) throw new UsageError(`top: ${this.socketPath} sends more than ${formatBytes(mostBytes)}`)
      }
    } catch (error) {
      throw error instanceof UsageError ? error : this.silent(`(${(error as Error).message})`)
    }
    const body = Buffer.concat(parts)
    if (response.statusCode === 200) return body
    throw new UsageError(`top: ${shown(errorIn(body.toString()) ?? FOREIGN)}`)
  }

  private ask(method: string, path: string, signal: AbortSignal): Promise<IncomingMessage> {
    const { socketPath } = this
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath, method, path, signal }, resolve)
      asked.on('error', error => reject(this.silent(`(${error.message})`)))
      asked.end()
    })
  }

  private silent(why: string): UsageError {
    return new UsageError(`top: ${this.socketPath} does not answer ${why}`)
  }
}

function foreign(): never {
  throw new UsageError(`top: ${FOREIGN}`)
}
