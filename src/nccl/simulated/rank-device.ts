// The device of a rank. This file alone knows the simulated driver.

import { threadId } from 'node:worker_threads'
import type { LibraryDevice } from '../../core/driver/simulated/library-device.js'
import type { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'

export type { LibraryDevice as RankDevice, MemoryPart } from '../../core/driver/simulated/library-device.js'
export type { SimulatedDriver }
/** A stream of a device, a step of work for it, or work that was submitted to it. */
export type RankQueue = NonNullable<ReturnType<LibraryDevice['queue']>>
export type RankStep = ReturnType<Parameters<LibraryDevice['submitSteps']>[1]>[number]
export type RankWork = ReturnType<LibraryDevice['submitted']>

/** by driver of this thread: its number */
const drivers = new WeakMap<SimulatedDriver, number>()
let made = 0

/** Tells devices apart, in all processes. Drivers that are opened on one machine have the same devices. */
export function keyOf(driver: SimulatedDriver, { machineId, ordinal }: LibraryDevice): string {
  if (machineId !== null) return `machine ${machineId}, device ${ordinal}`
  const number = drivers.get(driver) ?? ++made
  drivers.set(driver, number)
  return `process ${process.pid}, thread ${threadId}, driver ${number}, device ${ordinal}`
}
