// The answers of the server, path by path.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as wait } from 'node:timers/promises'
import { packageFile } from '../core/base/package-files.js'
import { Pool } from '../core/pool/pool.js'
import { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { PoolRecording } from '../recordings/trace/recording/pool-recording.js'
import { EventReaders, LEAST_PERIOD_MS, MOST_PERIOD_MS, MOST_READERS } from './event-readers.js'
import { statsOf } from './process-stats.js'
import { metricsText, PROMETHEUS_TYPE } from './prometheus.js'
import type { PoolList } from './watched-pools.js'

const LEAST_SNAPSHOT_MS = 1000
/** A snapshot takes some 50 ns and 85 bytes a block: this many are half a second of the program's time. */
const MOST_BLOCKS = 200_000
const MOST_SECONDS = 600
const MOST_FRAMES = 200
const PATHS = ['/', '/stats', '/events', '/snapshot', '/metrics', '/record']

/** An answer that is an error: its status and a sentence. */
class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

export class Requests {
  readonly readers: EventReaders
  private snapshot = Buffer.alloc(0)
  private snapshotMs = -Infinity
  private snapshotReaders = 0
  private readonly ended = new AbortController()

  constructor(private readonly pools: PoolList) {
    this.readers = new EventReaders(() => this.stats())
  }

  /** Answers a request that may be answered. */
  async answer(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    response.setHeader('Cache-Control', 'no-store')
    response.setHeader('X-Content-Type-Options', 'nosniff')
    try {
      if (!PATHS.includes(url.pathname)) throw new Refusal(404, `there is ${PATHS.join(', ')}`)
      const method = url.pathname === '/record' ? 'POST' : 'GET'
      if (request.method !== method) throw new Refusal(405, `${url.pathname} takes ${method}`)
      await this.answerPath(response, url)
    } catch (error) {
      if (response.headersSent) response.destroy()
      else refuse(response, error instanceof Refusal ? error.status : 500, (error as Error).message)
    }
  }

  close(): void {
    this.ended.abort()
    this.readers.close()
  }

  private async answerPath(response: ServerResponse, url: URL): Promise<void> {
    switch (url.pathname) {
      case '/':
        return this.sendPage(response)
      case '/stats':
        return send(response, 'application/json', this.stats())
      case '/events':
        return this.sendEvents(response, url.searchParams)
      case '/snapshot':
        return this.sendSnapshot(response)
      case '/metrics':
        return send(response, PROMETHEUS_TYPE, metricsText(this.pools.figures()))
      default:
        return this.record(response, url.searchParams)
    }
  }

  private sendPage(response: ServerResponse): void {
    const page = livePage()
    if (page === null) throw new Refusal(404, 'the page is missing: this build of cuda-mempool was made without it')
    response.setHeader('Content-Security-Policy', page.policy)
    send(response, 'text/html; charset=utf-8', page.html)
  }

  private sendEvents(response: ServerResponse, parameters: URLSearchParams): void {
    const periodMs = numberOf(parameters, 'ms', LEAST_PERIOD_MS, 0, MOST_PERIOD_MS)
    if (!this.readers.add(response, periodMs)) throw new Refusal(503, 'too many readers of /events; end another one')
  }

  private stats(): string {
    return JSON.stringify(statsOf(this.pools))
  }

  /** Sends the snapshots to few readers at a time, since slow ones keep the bytes of an older one. */
  private sendSnapshot(response: ServerResponse): void {
    if (this.snapshotReaders >= MOST_READERS) throw new Refusal(503, 'too many readers of /snapshot; end another one')
    const body = this.snapshotBytes()
    this.snapshotReaders++
    response.once('close', () => this.snapshotReaders--)
    send(response, 'application/json', body)
  }

  /** Snapshots of all pools that have them; at most one a second is made, and all its readers get the same bytes. */
  private snapshotBytes(): Buffer {
    const now = performance.now()
    if (now - this.snapshotMs < LEAST_SNAPSHOT_MS) return this.snapshot
    const pools = this.pools.open().flatMap(({ name, pool }) => {
      const sources = pool instanceof Pool ? pool.sources : []
      return sources.filter(hasSnapshot).map(source => {
        const { liveBuffers } = source.stats()
        if (liveBuffers > MOST_BLOCKS)
          throw new Refusal(413, `the pool '${name}' has ${liveBuffers} buffers, more than a snapshot may show`)
        return { name, snapshot: source.snapshot() }
      })
    })
    this.snapshot = Buffer.from(JSON.stringify({ timeMs: Date.now(), pools }))
    this.snapshotMs = performance.now()
    return this.snapshot
  }

  private async record(response: ServerResponse, parameters: URLSearchParams): Promise<void> {
    const seconds = numberOf(parameters, 'seconds', 10, 0.01, MOST_SECONDS)
    const frames = numberOf(parameters, 'stacks', 0, 0, MOST_FRAMES)
    const stackMinBytes = numberOf(parameters, 'stackMinBytes', 0, 0, Number.MAX_SAFE_INTEGER)
    const { name, pool } = this.chosen(parameters.get('pool'))
    if (!(pool instanceof Pool)) throw new Refusal(409, `'${name}' is a host pool, which cannot be recorded`)
    if (PoolRecording.isRecording(pool)) throw new Refusal(409, `the pool '${name}' is being recorded already`)
    const recording = new PoolRecording(pool, frames === 0 ? false : Math.ceil(frames), stackMinBytes)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    try {
      const signal = AbortSignal.any([gone.signal, this.ended.signal])
      await wait(seconds * 1000, undefined, { ref: false, signal }).catch(() => {})
    } finally {
      recording.stop()
    }
    if (gone.signal.aborted) return
    const file = `cuda-mempool-${process.pid}-${name.replace(/[^\w.-]/g, '_')}.pickle`
    response.setHeader('Content-Disposition', `attachment; filename="${file}"`)
    response.setHeader('X-Events', String(recording.events))
    send(response, 'application/octet-stream', pickleSnapshot(recording.trace(name)))
  }

  private chosen(name: string | null) {
    const pools = this.pools.open()
    const names = pools.map(pool => `'${pool.name}'`).join(', ')
    if (pools.length === 0) throw new Refusal(404, 'no pool is served now')
    if (name === null && pools.length > 1) throw new Refusal(400, `name the pool by ?pool=; there is ${names}`)
    const chosen = name === null ? pools[0] : pools.find(pool => pool.name === name)
    if (chosen === undefined) throw new Refusal(404, `there is no pool '${name}', but ${names}`)
    return chosen
  }
}

/** The live page of viewer/live, and the policy that lets a browser run its own script and style only. */
interface LivePage {
  readonly html: string
  readonly policy: string
}

let builtPage: LivePage | null = null

/** The page; null in a bundle, or a build without it. */
function livePage(): LivePage | null {
  if (builtPage !== null) return builtPage
  let html: string
  try {
    html = readFileSync(packageFile('dist/viewer/live.html', 'the live page'), 'utf8')
  } catch {
    return null
  }
  builtPage = { html, policy: policyOf(html) }
  return builtPage
}

function policyOf(html: string): string {
  const hashes = (element: string) =>
    [...html.matchAll(new RegExp(`<${element}>([^]*?)</${element}>`, 'g'))]
      .map(match => `'sha256-${createHash('sha256').update(match[1]).digest('base64')}'`)
      .join(' ')
  return [
    "default-src 'none'",
    `script-src ${hashes('script')}`,
    `style-src ${hashes('style')}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

interface WithSnapshot extends Pool {
  snapshot(): object
}

function hasSnapshot(pool: Pool): pool is WithSnapshot {
  return 'snapshot' in pool && (pool as { readonly closed?: boolean }).closed !== true
}

function numberOf(parameters: URLSearchParams, name: string, usual: number, least: number, most: number): number {
  const text = parameters.get(name)
  if (text === null) return usual
  const value = text === '' ? Number.NaN : Number(text)
  if (value >= least && value <= most) return value
  throw new Refusal(400, `${name} must be a number from ${least} to ${most}, not '${text}'`)
}

function send(response: ServerResponse, type: string, body: string | Uint8Array): void {
  response.writeHead(200, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) })
  response.end(body)
}

/** Answers with an error as JSON. */
export function refuse(response: ServerResponse, status: number, message: string): void {
  const body = JSON.stringify({ error: message })
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
  response.end(body)
}
