// Another process with a driver on the same machine. It makes the driver calls that its parent asks for.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import * as fs from 'node:fs'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import { fileURLToPath } from 'node:url'
import { receiveDescriptor, sendDescriptor } from '../../../libraries/descriptors.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedDriver } from '../simulated-driver.js'

const SCRIPT = fileURLToPath(import.meta.url)
const LONG = { timeoutMs: 60_000 }

/** Actions of a peer beside driver calls. */
const deeds = {
  send: (_: SimulatedDriver, path: string, descriptor: number) =>
    sendDescriptor(path, descriptor, new Uint8Array(), LONG),
  receive: async (_: SimulatedDriver, path: string) => (await receiveDescriptor(path, LONG)).descriptor,
  write: (driver: SimulatedDriver, ptr: number, bytes: number[]) => driver.cuMemcpyHtoD(ptr, Uint8Array.from(bytes)),
  read: (driver: SimulatedDriver, ptr: number, bytes: number) => {
    const host = new Uint8Array(bytes)
    driver.cuMemcpyDtoH(host, ptr)
    return [...host]
  },
  closeFile: (_: SimulatedDriver, descriptor: number) => fs.closeSync(descriptor),
  /** Opens files until the process may open no more. */
  openAll: () => {
    try {
      for (;;) fs.openSync('/dev/null', 'r')
    } catch (error) {
      return (error as NodeJS.ErrnoException).code
    }
  },
  /** Is killed in the middle of the next call that uses this function of node:fs. */
  dieIn: (_: SimulatedDriver, name: string) => {
    const builtin = createRequire(import.meta.url)('node:fs')
    builtin[name] = () => process.kill(process.pid, 'SIGKILL')
    syncBuiltinESMExports()
  },
}

type Deeds = typeof deeds
type Rest<T> = T extends (driver: SimulatedDriver, ...rest: infer R) => unknown ? R : never

/** The process, as its parent sees it. */
export class Peer {
  private constructor(private readonly child: ChildProcess) {}

  static async start(machine: string): Promise<Peer> {
    const child = fork(SCRIPT, ['peer', machine])
    await once(child, 'message')
    return new Peer(child)
  }

  get pid(): number {
    return this.child.pid!
  }

  /** Makes a driver call there. Rejects with the name, message and result of its error. */
  call<Name extends keyof SimulatedDriver>(
    name: Name,
    ...args: SimulatedDriver[Name] extends (...args: infer A) => unknown ? A : never
  ): Promise<SimulatedDriver[Name] extends (...args: never[]) => infer R ? R : never> {
    return this.ask(name, args) as never
  }

  do<Name extends keyof Deeds>(name: Name, ...args: Rest<Deeds[Name]>): Promise<Awaited<ReturnType<Deeds[Name]>>> {
    return this.ask(name, args) as never
  }

  /** Asks for something that ends the process. */
  async dieOf(name: keyof SimulatedDriver, ...args: unknown[]): Promise<void> {
    this.child.send({ name, args })
    await once(this.child, 'exit')
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return
    this.child.kill('SIGKILL')
    await once(this.child, 'exit')
  }

  private async ask(name: string, args: readonly unknown[]): Promise<unknown> {
    this.child.send({ name, args })
    const [{ error, result }] = await once(this.child, 'message')
    if (error !== undefined) throw Object.assign(new Error(error.message), error)
    return result
  }
}

if (process.argv[2] === 'peer') {
  const driver = openSimulated({ machine: process.argv[3], progress: 'eager' })
  const calls = driver as unknown as Record<string, (...args: unknown[]) => unknown>
  process.on('message', async ({ name, args }: { name: string; args: unknown[] }) => {
    try {
      const deed = deeds[name as keyof Deeds] as ((...args: unknown[]) => unknown) | undefined
      const result = await (deed === undefined ? calls[name](...args) : deed(driver, ...args))
      process.send!({ result })
    } catch (error) {
      const { name, message, result } = error as Error & { result?: number }
      process.send!({ error: { name, message, result } })
    }
  })
  process.send!('ready')
}
