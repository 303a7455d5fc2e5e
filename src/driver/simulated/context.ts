import type { SimulatedDevice } from './device.js'
import type { DeviceMemory } from './device-memory.js'
import { StreamGroup } from './stream-queue.js'

/** The primary context of one device: its streams, and its memory as work on the device sees it. */
export class SimulatedContext extends StreamGroup {
  retained = 0

  constructor(
    handle: number,
    readonly device: SimulatedDevice,
    readonly memory: DeviceMemory,
    nextStreamId: () => number,
  ) {
    super(handle, nextStreamId)
  }
}
