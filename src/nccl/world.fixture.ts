// A world of ranks on simulated devices of this thread, for the tests of communicators.

import assert from 'node:assert/strict'
import type { Device } from '../core/device/device.js'
import { openDevices } from '../core/device/open.js'
import type { SimulatedOptions } from '../core/driver/simulated/options.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import type { DeviceArray } from '../core/pool/array.js'
import { Communicator } from './communicator.js'
import { useNccl } from './nccl-for.js'
import { openSimulatedNccl, type SimulatedNccl } from './simulated/simulated-nccl.js'

export interface WorldOptions extends SimulatedOptions {
  /** of NCCL, such as 22809 */
  readonly version?: number
  readonly timeoutMs?: number
}

/** Devices, and a communicator on each. */
export class TestWorld implements Disposable {
  comms: Communicator[] = []

  private constructor(
    readonly driver: SimulatedDriver,
    readonly nccl: SimulatedNccl,
    readonly devices: Device[],
  ) {}

  /** Devices without communicators. */
  static open({ version, timeoutMs: _, ...options }: WorldOptions = {}): TestWorld {
    const driver = new SimulatedDriver({ devices: 2, ...options })
    const nccl = openSimulatedNccl(driver, version === undefined ? {} : { version })
    useNccl(driver, nccl)
    return new TestWorld(driver, nccl, openDevices(driver))
  }

  static async join(options: WorldOptions = {}): Promise<TestWorld> {
    const world = TestWorld.open(options)
    const { timeoutMs = 5000 } = options
    world.comms = await Communicator.joinAll(world.devices, { timeoutMs })
    return world
  }

  /** Makes a call on each rank, in a group. */
  all(call: (comm: Communicator, rank: number) => void): void {
    Communicator.group(() => this.comms.forEach(call))
  }

  /** An array on each device, by the maker. */
  arrays<T>(make: (device: Device, rank: number) => T): T[] {
    return this.devices.map(make)
  }

  /** Closes all communicators. */
  async close(): Promise<void> {
    await Promise.all(this.comms.map(comm => comm.close()))
  }

  [Symbol.dispose](): void {
    this.nccl.clearFaults()
    this.driver.clearFaults()
    for (const comm of this.comms) comm.abort()
    for (const device of this.devices) device.close()
    assert.equal(this.nccl.registered, 0, 'nothing stays registered')
    for (const [ordinal] of this.devices.entries()) assert.equal(this.driver.usedBytes(ordinal), 0, 'no memory is left')
  }
}

/** The elements of arrays, rank by rank. */
export async function elements(arrays: readonly DeviceArray[]): Promise<number[][]> {
  return await Promise.all(arrays.map(async array => Array.from(await array.read(), Number)))
}

/** The error of a call, which must throw. */
export function errorOf(call: () => unknown): Error {
  try {
    call()
  } catch (error) {
    return error as Error
  }
  assert.fail('the call was not refused')
}
