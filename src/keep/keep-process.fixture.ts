// A process with a device and a keep, which does what its parent asks. It can be killed, or kill itself in the middle
// of a call.

import { type ChildProcess, fork } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Random } from '../core/base/random.js'
import type { Device } from '../core/device/device.js'
import { openDevice } from '../core/device/open.js'
import { STORE_PTX } from '../core/driver/store-kernel.fixture.js'
import { UnixSocket } from '../core/libraries/unix-socket.js'
import type { Filling } from './filling.js'
import { type Keep, openKeep } from './keep.js'
import type { Region } from './region.js'

export const SCRIPT = fileURLToPath(import.meta.url)
const KEEPER_TIMEOUT_MS = 60_000

/** Where processes meet. */
export interface Place {
  /** the socket of the keeper */
  readonly path: string
  /** the folder of the simulated machine; null for a GPU */
  readonly machine: string | null
  /** this file with all that it imports, as one file, which starts in less time; and where it finds koffi */
  readonly bundle?: { readonly script: string; readonly modules: string }
}

/** A region that a process has attached. */
export interface Held {
  readonly name: string
  readonly version: string
  readonly generation: number
  readonly created: boolean
  /** whether its contents are those that a writer has given it */
  readonly isWhole: boolean
}

/** Fills a region with contents that tell whether they are whole, and whose they are. */
export async function fillWhole(filling: Filling, seed: number): Promise<void> {
  const random = new Random(seed)
  const words = Uint32Array.from({ length: 500 + random.below(500) }, () => random.below(2 ** 31))
  filling.put('words', words)
  await setImmediate()
  filling.put('digest', digestOf(filling.name, filling.version, words))
}

export async function isWhole(region: Region): Promise<boolean> {
  const words = await region.array('words', Uint32Array).read()
  const digest = await region.array('digest', Uint8Array).read()
  return Buffer.compare(digest, digestOf(region.name, region.version, words)) === 0
}

function digestOf(name: string, version: string, words: Uint32Array): Uint8Array {
  return createHash('sha256').update(`${name}\n${version}\n`).update(words).digest()
}

let device: Device | null = null
/** The regions that the process has attached, by generation. */
const held = new Map<number, Region[]>()

async function hold(region: Region): Promise<Held> {
  const { name, version, generation, created } = region
  held.set(generation, [...(held.get(generation) ?? []), region])
  return { name, version, generation, created, isWhole: await isWhole(region) }
}

const deeds = {
  region: async (keep: Keep, name: string, version: string, bytes: number, seed = 1) =>
    hold(await keep.region(name, { bytes, version }, filling => fillWhole(filling, seed))),
  attach: async (keep: Keep, name: string) => hold(await keep.attach(name)),
  /** Fills regions, and commits them as a set. */
  set: async (keep: Keep, names: string[], version: string, bytes: number, seed: number) => {
    const fillings: Filling[] = []
    try {
      for (const name of names) {
        const filling = await keep.begin(name, { bytes, version })
        fillings.push(filling)
        await fillWhole(filling, seed)
      }
      return await Promise.all((await keep.commit(fillings)).map(hold))
    } finally {
      for (const filling of fillings) filling[Symbol.dispose]()
    }
  },
  /** Begins to fill, says so, and goes no further. */
  hang: (keep: Keep, name: string, version: string, bytes: number) =>
    keep.region(name, { bytes, version }, async filling => {
      filling.put('words', Uint32Array.of(1))
      process.send!({ word: 'filling' })
      await new Promise(() => {})
    }),
  /** Fills, and gives up. */
  fail: (keep: Keep, name: string, version: string, bytes: number) =>
    keep
      .region(name, { bytes, version }, () => {
        throw new Error('given up')
      })
      .then(hold),
  wordsOf: async (keep: Keep, name: string) => {
    using region = await keep.attach(name)
    return [...(await region.array('words', Uint32Array).read())]
  },
  /** Lets a kernel write into a region that is attached here already, or now, and waits for it. */
  storeInto: async (keep: Keep, name: string) => {
    const known = [...held.values()].flat().find(each => each.name === name)
    const words = (known ?? (await keep.attach(name))).array('words', Uint32Array)
    const store = device!.loadModule(STORE_PTX).kernel('driver_suite_store')
    store.launch({ grid: 1, block: 1 }, words, 5)
    device!.synchronize()
  },
  /** Waits until it is connected. */
  list: async (keep: Keep) => (await keep.list()).length,
  /** Closes one region of a generation. */
  close: (_: Keep, generation: number) => {
    const [region, ...others] = held.get(generation)!
    held.set(generation, others)
    region.close()
  },
  isWholeStill: (_: Keep, generation: number) => isWhole(held.get(generation)![0]),
  closeAll: () => {
    for (const region of [...held.values()].flat()) region.close()
    held.clear()
  },
  /** The process is killed at the n-th call from now that others can see: to the keeper, the driver or files. */
  dieAt: (_: Keep, nth: number) => {
    callsLeft = nth
  },
}

type Deeds = typeof deeds
type Rest<T> = T extends (keep: Keep, ...rest: infer R) => unknown ? R : never

/** The process, as its parent sees it. */
export class KeepProcess {
  isRunning = true
  readonly ended: Promise<unknown>
  private lastRequest = 0
  private readonly pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  private readonly words = new Map<string, () => void>()

  private constructor(private readonly child: ChildProcess) {
    child.on('message', (answer: { request?: number; word?: string; result?: unknown; error?: Error }) => {
      if (answer.word !== undefined) this.words.get(answer.word)?.()
      const pending = this.pending.get(answer.request!)
      this.pending.delete(answer.request!)
      if (answer.error === undefined) pending?.resolve(answer.result)
      else pending?.reject(Object.assign(new Error(answer.error.message), answer.error))
    })
    child.on('error', () => {}) // of messages to a killed process, whose requests are rejected
    // Its channel is a descriptor here, which tests count.
    this.ended = Promise.all([once(child, 'exit'), once(child, 'disconnect')]).then(() => {
      this.isRunning = false
      for (const { reject } of this.pending.values()) reject(new Error('the process has ended'))
    })
  }

  /** Starts it; `opened` fulfils when it has opened its keep. */
  static start({ path, machine, bundle }: Place): { readonly process: KeepProcess; readonly opened: Promise<void> } {
    const env: NodeJS.ProcessEnv = {
      ...process.env,
      ...(machine !== null && { CUDA_MEMPOOL_SIMULATED: machine }),
      ...(bundle !== undefined && { NODE_PATH: bundle.modules }),
    }
    const child = fork(bundle?.script ?? SCRIPT, ['keep-process', path, machine === null ? 'auto' : 'simulated'], {
      env,
    })
    const made = new KeepProcess(child)
    const opened = Promise.race([made.said('opened'), made.ended])
    return { process: made, opened: opened.then(() => {}) }
  }

  get pid(): number {
    return this.child.pid!
  }

  /** Rejects with the name, message and code of the error there, or when the process has ended. */
  do<Name extends keyof Deeds>(name: Name, ...args: Rest<Deeds[Name]>): Promise<Awaited<ReturnType<Deeds[Name]>>> {
    return new Promise<unknown>((resolve, reject) => {
      if (!this.isRunning) throw new Error('the process has ended')
      const request = ++this.lastRequest
      this.pending.set(request, { resolve, reject })
      this.child.send({ request, name, args }, error => error && reject(new Error('the process has ended')))
    }) as never
  }

  said(word: string): Promise<void> {
    return new Promise(resolve => this.words.set(word, resolve))
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL')
    await this.ended
  }
}

let callsLeft = Infinity

/** Ends this process at the call that `dieAt` has named. */
function countCalls(driver: object): void {
  const count = (owner: object, names: readonly string[]) => {
    const functions = owner as Record<string, (...args: unknown[]) => unknown>
    for (const name of names) {
      const call = functions[name]
      functions[name] = function (this: unknown, ...args) {
        if (--callsLeft === 0) process.kill(process.pid, 'SIGKILL')
        return call.apply(this, args)
      }
    }
  }
  count(UnixSocket.prototype, ['sendPacket', 'receivePacket'])
  for (let each = driver; each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    const isCall = (name: string) => name.startsWith('cu') && typeof (each as never)[name] === 'function'
    count(each, Object.getOwnPropertyNames(each).filter(isCall))
  }
  const files = ['openSync', 'ftruncateSync', 'renameSync', 'closeSync', 'rmSync', 'writeSync']
  count(createRequire(import.meta.url)('node:fs'), files)
  syncBuiltinESMExports()
}

const [, script, role, path, choice] = process.argv
if (script === SCRIPT && role === 'keep-process') {
  device = openDevice(choice as 'simulated' | 'auto')
  countCalls(device.driver)
  const keep = await openKeep(device, { path, timeoutMs: KEEPER_TIMEOUT_MS })
  process.on('message', async ({ request, name, args }: { request: number; name: keyof Deeds; args: never[] }) => {
    try {
      const result = await (deeds[name] as (keep: Keep, ...rest: never[]) => unknown)(keep, ...args)
      process.send!({ request, result })
    } catch (error) {
      const { name: kind, message, code } = error as Error & { code?: string }
      process.send!({ request, error: { name: kind, message, code } })
    }
  })
  process.on('disconnect', () => process.exit())
  process.send!({ word: 'opened' })
}
