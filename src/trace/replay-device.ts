import type { Driver } from '../driver/driver.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import type { Module } from '../kernel/module.js'
import type { Stream } from '../order/stream.js'
import type { CachingPool } from '../pool/caching/caching-pool.js'
import type { PoolOptions } from '../pool/caching/options.js'
import type { DriverPool } from '../pool/driver-owned/driver-pool.js'
import type { Pool } from '../pool/pool.js'

export type { SimulatedDriver }

/** What a replay needs of a device; `Device` is one. A simulated one should make progress 'eager'. */
export interface ReplayDevice {
  /** the driver that it was opened with */
  readonly driver: Driver
  /** the device's name */
  readonly name: string
  /** true if no GPU is behind it */
  readonly simulated: boolean
  /** As of `Device`. */
  createStream(): Stream
  /** As of `Device`. */
  createPool(options: PoolOptions): CachingPool
  /** As of `Device`. */
  createPlainPool(): Pool
  /** As of `Device`. */
  defaultDriverPool(): DriverPool
  /** As of `Device`. */
  loadModule(ptx: string): Module
  /** As of `Device`. */
  synchronize(): void
  /** As of `Device`. */
  close(): void
}

/** The simulated driver of a device, or null on a GPU. */
export function simulatedDriverOf(device: ReplayDevice): SimulatedDriver | null {
  return device.driver instanceof SimulatedDriver ? device.driver : null
}

/** How often each driver function was called since this was made; on a GPU counting costs each call some 60 ns. */
export function countCalls(driver: Driver): () => Record<string, number> {
  if (driver instanceof NativeDriver) driver.countCalls()
  const before = new Map(driver.calls)
  return () => {
    const counts = [...driver.calls].map(([name, count]): [string, number] => [name, count - (before.get(name) ?? 0)])
    return Object.fromEntries(counts.filter(([, count]) => count > 0))
  }
}
