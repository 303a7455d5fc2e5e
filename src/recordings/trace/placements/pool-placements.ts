// The placements of a pool, seen at the driver: which addresses it maps.

import type { Driver } from '../../../core/driver/driver.js'
import { PlacementCollector } from './placements.js'

export class PoolPlacements extends PlacementCollector {
  /** Follows the calls of a newly opened device, before its pool is made. The driver serves this pass only. */
  watch(driver: Driver): void {
    /** the position of the memory of each handle */
    const memoryOf = new Map<number, number>()
    /** bytes of allocations by the driver, by address */
    const allocated = new Map<number, number>()
    follow(driver, 'cuMemCreate', (handle, bytes) => memoryOf.set(handle, this.take(bytes)))
    follow(driver, 'cuMemMap', (_, ptr, bytes, handle) => this.mapped(ptr, bytes, memoryOf.get(handle)))
    follow(driver, 'cuMemUnmap', (_, ptr, bytes) => this.unmapped(ptr, bytes))
    follow(driver, 'cuMemAlloc', (ptr, bytes) => {
      allocated.set(ptr, bytes)
      this.mapped(ptr, bytes)
    })
    follow(driver, 'cuMemFree', (_, ptr) => this.unmapped(ptr, allocated.get(ptr) ?? 0))
  }
}

type Watched = 'cuMemCreate' | 'cuMemMap' | 'cuMemUnmap' | 'cuMemAlloc' | 'cuMemFree'

/** Calls `then` with the result and the arguments of each successful call. */
function follow<K extends Watched>(
  driver: Driver,
  name: K,
  then: (result: ReturnType<Driver[K]>, ...parameters: Parameters<Driver[K]>) => void,
): void {
  const call = driver[name].bind(driver) as (...parameters: Parameters<Driver[K]>) => ReturnType<Driver[K]>
  const followed = (...parameters: Parameters<Driver[K]>) => {
    const result = call(...parameters)
    then(result, ...parameters)
    return result
  }
  Object.defineProperty(driver, name, { value: followed })
}
