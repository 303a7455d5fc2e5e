import type { Driver } from '../../core/driver/driver.js'
import { NativeDriver } from '../../core/driver/native/native-driver.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import type { Module } from '../../core/kernel/module.js'
import type { Stream } from '../../core/order/stream.js'
import type { CachingPool } from '../../core/pool/caching/caching-pool.js'
import type { PoolOptions } from '../../core/pool/caching/options.js'
import type { DriverPool } from '../../core/pool/driver-owned/driver-pool.js'
import type { Pool } from '../../core/pool/pool.js'

export type { SimulatedDriver }

/**
 * The part of a device that a replay uses; every `Device` has it. Open a simulated device with the option `progress:
 * 'eager'`.
 */
export interface ReplayDevice {
  /** the driver, whose calls are counted */
  readonly driver: Driver
  /** the device's name */
  readonly name: string
  /** true for the simulated GPU, where work is modelled */
  readonly simulated: boolean
  /** a new stream for a stream of the recording */
  createStream(): Stream
  /** a caching pool to replay through */
  createPool(options: PoolOptions): CachingPool
  /** a pool with one driver allocation for each buffer */
  createPlainPool(): Pool
  /** the driver's default pool */
  defaultDriverPool(): DriverPool
  /** loads PTX, for verification */
  loadModule(ptx: string): Module
  /** blocks until all work is complete */
  synchronize(): void
  /** closes the device, after each pass */
  close(): void
}

/** The simulated driver of a device, or null on a GPU. */
export function simulatedDriverOf(device: ReplayDevice): SimulatedDriver | null {
  return device.driver instanceof SimulatedDriver ? device.driver : null
}

/** All memory of a device. */
export function totalBytesOf({ driver }: ReplayDevice): number {
  return driver.cuDeviceTotalMem(0)
}

/** Counts the calls of each driver function from now on. On a GPU, counting costs each call about 60 ns. */
export function countCalls(driver: Driver): () => Record<string, number> {
  if (driver instanceof NativeDriver) driver.countCalls()
  const before = new Map(driver.calls)
  return () => {
    const counts = [...driver.calls].map(([name, count]): [string, number] => [name, count - (before.get(name) ?? 0)])
    return Object.fromEntries(counts.filter(([, count]) => count > 0))
  }
}
