// The placements of a pool, seen at the driver: which addresses it maps, and where its buffers are.

import type { Driver } from '../../../core/driver/driver.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import { type Footprint, reservedBytesOf } from '../footprint.js'
import type { ReplayPassObserver } from '../replay-pass.js'
import type { Policy } from '../replay-result.js'
import type { Trace } from '../trace.js'
import { PlacementCollector, type Placements } from './placements.js'

export class PoolPlacements {
  private readonly collector: PlacementCollector
  /** the position of the memory of each handle */
  private readonly memoryOf = new Map<number, number>()
  /** bytes of allocations by the driver, by address */
  private readonly allocated = new Map<number, number>()

  constructor(
    trace: Trace,
    private readonly policy: Policy,
  ) {
    this.collector = new PlacementCollector(trace)
  }

  /** Follows the calls of a newly opened device, before its pool is made. The driver serves this pass only. */
  watch(driver: Driver): void {
    const { collector, memoryOf, allocated } = this
    follow(driver, 'cuMemCreate', (handle, bytes) => memoryOf.set(handle, collector.take(bytes)))
    follow(driver, 'cuMemMap', (_, ptr, bytes, handle) => collector.mapped(ptr, bytes, memoryOf.get(handle)))
    follow(driver, 'cuMemUnmap', (_, ptr, bytes) => collector.unmapped(ptr, bytes))
    follow(driver, 'cuMemAlloc', (ptr, bytes) => {
      allocated.set(ptr, bytes)
      collector.mapped(ptr, bytes)
    })
    follow(driver, 'cuMemFree', (_, ptr) => collector.unmapped(ptr, allocated.get(ptr) ?? 0))
  }

  /** An observer that follows the pool beside its footprint. */
  observer(footprint: Footprint, pool: Parameters<typeof reservedBytesOf>[0]): ReplayPassObserver {
    const { collector } = this
    return {
      allocated: (block: number, buffer: DeviceBuffer) => collector.place(block, buffer.ptr),
      event: event => {
        footprint.event(event)
        collector.after(event, reservedBytesOf(pool))
      },
      round: () => {
        footprint.round()
        collector.stop()
      },
    }
  }

  /** The driver's own policies have a curve only: their addresses are those of single buffers. */
  placements(): Placements {
    const placements = this.collector.placements()
    return this.policy.startsWith('driver-') ? { ...placements, address: null, ranges: null } : placements
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
