// A simulated machine with a keeper in this process, and devices as several processes have them: each has a driver of
// its own. keep-process.fixture.ts is a process of its own.

import assert from 'node:assert/strict'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import type { Device } from '../core/device/device.js'
import { openDevice } from '../core/device/open.js'
import { Machine } from '../core/driver/simulated/machine/machine.js'
import type { SimulatedOptions } from '../core/driver/simulated/options.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import type { KeeperClient } from '../core/keeper/client.js'
import { KeeperHere, socketFolderOf } from '../core/keeper/keeper.fixture.js'
import { type Keep, openKeep } from './keep.js'
import { KeepProcess } from './keep-process.fixture.js'
import type { RegionOptions } from './options.js'
import type { Region } from './region.js'

export const CAPACITY = 64 * MiB
export const GRANULE = 2 * MiB

/** A device whose calls can be made to fail. */
export type TestDevice = Device & { readonly driver: SimulatedDriver }

/** A machine and its keeper. At the end it closes all that it has opened, and asserts that nothing is left. */
export class KeepWorld {
  readonly path: string
  readonly machine: string
  private readonly place = socketFolderOf()
  private readonly devices: Device[] = []
  private readonly keeps: { close(): void }[] = []
  private readonly processes: KeepProcess[] = []
  private readonly here: KeeperHere

  constructor(private readonly capacityBytes = CAPACITY) {
    this.path = this.place.path
    this.machine = join(this.place.folder, 'machine')
    mkdirSync(this.machine, { mode: 0o700 })
    this.openDevice() // a machine keeps its own files open
    this.here = new KeeperHere(this.path)
  }

  openDevice(options: SimulatedOptions = {}): TestDevice {
    const { machine, capacityBytes } = this
    const all = { machine, capacityBytes, progress: 'eager', ...options } as const
    const device = openDevice(new SimulatedDriver(all))
    this.devices.push(device)
    return device as TestDevice
  }

  async openKeep(device: Device = this.openDevice()): Promise<Keep> {
    const keep = await openKeep(device, { path: this.path })
    this.keeps.push(keep)
    return keep
  }

  async connect(): Promise<KeeperClient> {
    const client = await this.here.connect()
    this.keeps.push(client)
    return client
  }

  async startProcess(): Promise<KeepProcess> {
    const { process, opened } = KeepProcess.start(this)
    this.processes.push(process)
    await opened
    return process
  }

  /** As a reset of the GPU: all kept memory is gone. */
  reset(): void {
    Machine.open(this.machine, this.capacityBytes, true).reset()
  }

  get freeBytes(): number {
    return this.devices[0].memoryInfo().freeBytes
  }

  check(): void {
    this.here.keeper.regions.check()
  }

  /** Ends the keeper, and starts a new keeper. */
  restart(): Promise<void> {
    return this.here.restart()
  }

  async end(): Promise<void> {
    for (const each of this.processes) await each.kill()
    await this.here.end(async () => {
      for (const keep of this.keeps) keep.close()
      for (const device of this.devices.slice(1)) device.close()
      const operator = await this.here.connect()
      await operator.prune({ all: true })
      assert.deepEqual(await operator.list(), [], 'without readers everything can be dropped')
    })
    assert.equal(this.freeBytes, this.capacityBytes, 'all memory should come back')
    this.devices[0].close()
    this.place.remove()
  }

  /** Removes the files after a failure. */
  discard(): void {
    rmSync(this.place.folder, { recursive: true, force: true })
  }
}

/** Gives each test of a suite a world of its own, with a device and its keep. */
export function eachInWorld(
  take: (given: { readonly world: KeepWorld; readonly device: TestDevice; readonly keep: Keep }) => void,
): void {
  let world: KeepWorld
  beforeEach(async () => {
    world = new KeepWorld()
    const device = world.openDevice()
    take({ world, device, keep: await world.openKeep(device) })
  })
  afterEach(() => world.end().finally(() => world.discard()))
}

export const V1: RegionOptions = { bytes: 4 * KiB, version: 'v1' }

/** For regions that are there. */
export const none = () => assert.fail('nothing is to be filled')

/** A PoolError with this message. */
export const poolError = (message: RegExp) => ({ name: 'PoolError', message })

/** A promise, and the function that fulfils it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  return { opened, open }
}

export async function statesOf(keep: Keep): Promise<string[]> {
  return (await keep.list()).map(({ name, version, state }) => `${name} ${version} ${state}`)
}

/** A region of `words` 1, 2, 3. */
export function threeWords(filling: { put(name: string, data: Uint32Array): unknown }): void {
  filling.put('words', Uint32Array.of(1, 2, 3))
}

export async function wordsIn(region: Region): Promise<number[]> {
  return [...(await region.array('words', Uint32Array).read())]
}
