// A ledger of the driver's objects, counted at its own calls: none may be left when everything is closed.

import type { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'

type Call = Extract<keyof SimulatedDriver, `cu${string}`>

/** The calls that make and end each kind of object. */
const OBJECTS: readonly (readonly [made: Call, ended: Call])[] = [
  ['cuMemAlloc', 'cuMemFree'],
  ['cuMemHostRegister', 'cuMemHostUnregister'],
  ['cuMemCreate', 'cuMemRelease'],
  ['cuMemAddressReserve', 'cuMemAddressFree'],
  ['cuMemPoolCreate', 'cuMemPoolDestroy'],
  ['cuMemAllocFromPoolAsync', 'cuMemFreeAsync'],
  ['cuModuleLoadData', 'cuModuleUnload'],
  ['cuStreamCreate', 'cuStreamDestroy'],
  ['cuEventCreate', 'cuEventDestroy'],
  ['cuStreamEndCapture', 'cuGraphDestroy'],
  ['cuGraphInstantiate', 'cuGraphExecDestroy'],
]

export class Ledger {
  private readonly counts = new Map<string, number>()

  constructor(driver: SimulatedDriver) {
    for (const [made, ended] of OBJECTS) {
      this.watch(driver, made, () => this.add(made, 1))
      this.watch(driver, ended, () => this.add(made, -1))
    }
    // One call may unmap the memory of several mappings.
    this.watch(driver, 'cuMemMap', (_address, bytes) => this.add('mapped bytes', bytes))
    this.watch(driver, 'cuMemUnmap', (_address, bytes) => this.add('mapped bytes', -bytes))
  }

  /** The objects left, by the call that made them. */
  left(): Record<string, number> {
    return Object.fromEntries([...this.counts].filter(([, count]) => count !== 0))
  }

  private add(name: string, count: number): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + count)
  }

  /** Notes the calls that succeed. */
  private watch(driver: SimulatedDriver, name: Call, note: (...args: number[]) => void): void {
    const call = driver[name] as (...args: unknown[]) => unknown
    const watched = (...args: unknown[]) => {
      const result = call.apply(driver, args)
      note(...(args as number[]))
      return result
    }
    Object.defineProperty(driver, name, { value: watched, configurable: true })
  }
}
