// Keepers and clients for tests: a keeper in this process or in another, memory of a simulated device, and processes
// that end themselves with SIGKILL at a numbered system call.

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { KeepError } from '../base/errors.js'
import { memoryFile } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { UnixSocket } from '../libraries/unix-socket.js'
import type { Source } from './attachments.js'
import { KeeperClient } from './client.js'
import { Keeper } from './keeper.js'
import type { Found } from './receiving.js'
import type { PieceOf } from './region.js'
import type { Limits } from './state/quota.js'
import { serviceManager } from './store/service-manager.js'
import { StateFile } from './store/state-file.js'

export const DEVICE = { uuid: 'GPU-1', totalBytes: 2 ** 37, simulated: true }
export const LIMITS = { maxBytes: null, maxRegions: 20_000, maxDescriptors: 50_000 }
const SCRIPT = fileURLToPath(import.meta.url)

/** Whether an error is a KeepError, with a message of one line. */
export const refused = (code: KeepError['code'], text: RegExp) => (error: Error) => {
  assert.ok(error instanceof KeepError, String(error.stack))
  assert.equal(error.code, code, error.message)
  assert.match(error.message, text)
  assert.doesNotMatch(error.message, /\n/)
  return true
}

/** A folder for sockets, that only this user can open. */
export function socketFolderOf(): { readonly folder: string; readonly path: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'keeper-'))
  mkdirSync(join(folder, 'sockets'), { mode: 0o700 })
  return { folder, path: join(folder, 'sockets', 'keep.sock'), remove: () => rmSync(folder, { recursive: true }) }
}

/** Memory of the simulated device with a text each. The caller closes the descriptors. */
export function piecesOf(...texts: readonly string[]): PieceOf[] {
  return texts.map(text => {
    const descriptor = memoryFile('piece')
    writeSync(descriptor, text)
    return { descriptor, bytes: Math.max(1, Buffer.byteLength(text)) }
  })
}

export function textsIn(pieces: readonly PieceOf[]): string[] {
  return pieces.map(({ descriptor, bytes }) => {
    const text = Buffer.alloc(bytes)
    return text.toString('utf8', 0, readSync(descriptor, text, 0, bytes, 0))
  })
}

export function closeAll(pieces: readonly PieceOf[]): void {
  for (const { descriptor } of pieces) closeDescriptor(descriptor)
}

export function openFiles(process: number | 'self' = 'self'): number {
  return readdirSync(`/proc/${process}/fd`).length
}

/** Asks for the lease of a region. */
export async function leased(client: KeeperClient, name: string, version = 'v1', bytes = 1000): Promise<number> {
  const found = await client.find({ name, version, purpose: 'fill', bytes, device: DEVICE })
  assert.equal(found.kind, 'lease')
  return found.generation
}

/** Commits a region with these texts as pieces. */
export async function kept(
  client: KeeperClient,
  name: string,
  texts: readonly string[],
  version = 'v1',
): Promise<number> {
  const bytes = Math.max(1, Buffer.byteLength(texts.join('')))
  const generation = await leased(client, name, version, bytes)
  await commit(client, generation, texts)
  return generation
}

export async function commit(client: KeeperClient, generation: number, texts: readonly string[]): Promise<void> {
  const pieces = piecesOf(...texts)
  try {
    const bytes = Math.max(1, Buffer.byteLength(texts.join('')))
    await client.commit([{ generation, pieces, bytes, directory: Buffer.from(`of ${texts[0]}`) }])
  } finally {
    closeAll(pieces)
  }
}

/** Commits a region, and names its memory for the next keeper. */
export async function held(client: KeeperClient, name: string, texts: readonly string[], version = 'v1') {
  const generation = await kept(client, name, texts, version)
  client.hold(generation, sourceOf(texts))
  return generation
}

export function sourceOf(texts: readonly string[]): Source {
  return () => ({ pieces: piecesOf(...texts), directory: Buffer.from(`of ${texts[0]}`) })
}

/** The texts of a region that is ready; closes its descriptors. */
export function contents(found: Found): string[] {
  assert.equal(found.kind, 'ready')
  const texts = found.kind === 'ready' ? textsIn(found.pieces) : []
  if (found.kind === 'ready') closeAll(found.pieces)
  return texts
}

export async function read(client: KeeperClient, name: string): Promise<string[]> {
  return contents(await client.find({ name, purpose: 'read', device: DEVICE }))
}

/** Clients of the keeper at a path. */
export class Clients {
  private readonly all: KeeperClient[] = []

  constructor(private readonly path: string) {}

  async connect(timeoutMs = 60_000): Promise<KeeperClient> {
    return this.add(await KeeperClient.open({ path: this.path, timeoutMs }))
  }

  /** Closes this client, too, with the others. */
  add(client: KeeperClient): KeeperClient {
    this.all.push(client)
    return client
  }

  close(): void {
    for (const client of this.all.splice(0)) client.close()
  }
}

/** A keeper in this process, and its clients. At the end it asserts that every descriptor is closed. */
export class KeeperHere {
  keeper!: Keeper
  private running!: Promise<void>
  private readonly clients: Clients
  private readonly earlier = openFiles()

  constructor(private readonly path: string) {
    this.clients = new Clients(path)
    this.start()
  }

  connect(timeoutMs?: number): Promise<KeeperClient> {
    return this.clients.connect(timeoutMs)
  }

  /** Ends the keeper, and starts the next one. */
  async restart(limits: Limits = LIMITS, user?: number): Promise<void> {
    this.keeper.end()
    await this.running
    this.start(limits, user)
  }

  /** Ends all; `before` is called as long as the keeper answers. */
  async end(before = async () => {}): Promise<void> {
    try {
      this.keeper.regions.check()
      await before()
    } finally {
      this.clients.close()
      this.keeper.end()
      await this.running
    }
    assert.equal(openFiles(), this.earlier, 'every descriptor should be closed')
  }

  private start(limits: Limits = LIMITS, user?: number): void {
    this.keeper = new Keeper({ path: this.path, limits, ...(user !== undefined && { user }) })
    this.running = this.keeper.run()
  }
}

/** Variables and descriptors that a process gets besides the usual ones. */
export interface Passed {
  readonly env: NodeJS.ProcessEnv
  readonly descriptors: readonly number[]
}

/** A process that runs a role of this file. Its lines are answers. */
export class Actor {
  readonly process: ChildProcess
  private readonly lines: AsyncIterator<string>
  readonly ended: Promise<unknown>

  constructor(args: readonly string[], { env, descriptors }: Passed = { env: {}, descriptors: [] }) {
    // LISTEN_PID is the number of the process that it is meant for.
    this.process = spawn('/bin/sh', ['-c', 'LISTEN_PID=$$ exec "$0" "$@"', process.execPath, SCRIPT, ...args], {
      stdio: ['pipe', 'pipe', 'inherit', ...descriptors],
      env: { ...process.env, ...env },
    })
    this.lines = createInterface({ input: this.process.stdout! })[Symbol.asyncIterator]()
    this.ended = once(this.process, 'exit')
  }

  /** The next line; null after the end. */
  async line(): Promise<string | null> {
    const { done, value } = await this.lines.next()
    return done === true ? null : value
  }

  say(text: string): void {
    this.process.stdin!.write(`${text}\n`)
  }

  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.ended
  }
}

const VISIBLE = ['sendPacket', 'receivePacket', 'accept']

/** Ends this process with SIGKILL at its `last`-th call that another process can see, or that writes the state. */
function endAt(last: number, calls: readonly string[] = VISIBLE): void {
  let count = 0
  const replace = (prototype: object, name: string) => {
    const methods = prototype as Record<string, (...args: unknown[]) => unknown>
    const call = methods[name]
    methods[name] = function (this: unknown, ...args) {
      if (++count === last) process.kill(process.pid, 'SIGKILL')
      return call.apply(this, args)
    }
  }
  for (const name of calls) replace(UnixSocket.prototype, name)
  replace(StateFile.prototype, 'write')
}

/**
 * `keeper PATH [POINT [CALL …]]` serves, and `successor PATH [POINT]` after it has taken over.
 * `writer PATH NAME [POINT]` fills and commits a region, and has it until its input ends. `lazy PATH NAME` commits
 * after a line of its input. `idle PATH` has a client without a pending request. `orphan PATH` has a region attached,
 * and ends after a line of its input.
 */
async function act(role: string, path: string, ...args: readonly string[]): Promise<void> {
  if (role === 'keeper' || role === 'successor') {
    const [point, ...calls] = args
    if (point !== undefined) endAt(Number(point), calls.length > 0 ? calls : VISIBLE)
    const options = { path, limits: LIMITS }
    const keeper =
      role === 'keeper'
        ? new Keeper(options, null, serviceManager())
        : await Keeper.takeOver(options).catch(() => process.exit(1))
    process.on('SIGTERM', () => keeper.end())
    console.log('listens')
    return keeper.run()
  }
  if (role === 'idle') {
    const client = await KeeperClient.open({ path })
    client.watch(() => {})
    await client.list()
    console.log('idle')
    return
  }
  if (role === 'orphan') {
    await held(await KeeperClient.open({ path }), 'weights', ['x'])
    console.log('attached')
    await once(process.stdin, 'data')
    process.stdin.destroy()
    console.log('goes')
    return
  }
  const [name, point] = args
  if (point !== undefined) endAt(Number(point))
  const client = await KeeperClient.open({ path, timeoutMs: 60_000 })
  const generation = await leased(client, name)
  console.log('leased')
  if (role === 'lazy') await once(process.stdin, 'data')
  await commit(client, generation, ['first', 'second'])
  console.log('ready')
  await once(process.stdin.resume(), 'end')
  client.close()
}

const [, script, role, path, ...args] = process.argv
if (script === SCRIPT && role !== undefined) await act(role, path, ...args)
