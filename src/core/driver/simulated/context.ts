// Primary contexts of simulated devices. calls.ts retains and releases them.

import type { PhysicalMemory, SimulatedDevice } from './device.js'
import { type AccessRights, bitOf } from './memory/access-rights.js'
import type { AddressSpace } from './memory/address-space.js'
import { DeviceMemory } from './memory/device-memory.js'
import { StreamGroup } from './streams/stream-queue.js'

const FIRST_HANDLE = 0x3000_0010
const STRIDE = 16

/** The primary context of one device: its streams, and the view of memory that work on the device has. */
export class SimulatedContext extends StreamGroup {
  /** retains without a release; the context lives while it is above 0 */
  retained = 0
  /** the devices with access to linear memory of this context */
  readonly access: AccessRights

  constructor(
    handle: number,
    readonly device: SimulatedDevice,
    readonly memory: DeviceMemory,
    nextStreamId: () => number,
  ) {
    super(handle, nextStreamId)
    this.access = { devices: bitOf(device) }
  }
}

/** The retained contexts, by handle. A handle is never used again. */
export class Contexts {
  private readonly contexts = new Map<number, SimulatedContext>()
  private made = 0

  constructor(
    private readonly space: AddressSpace,
    private readonly nextStreamId: () => number,
  ) {}

  /** Retains the context of `device`, and makes it at the first retain. */
  retain(device: SimulatedDevice): SimulatedContext {
    let context = this.primaryOf(device)
    if (context === undefined) {
      const handle = FIRST_HANDLE + this.made++ * STRIDE
      context = new SimulatedContext(handle, device, new DeviceMemory(this.space, device.ordinal), this.nextStreamId)
      this.contexts.set(handle, context)
    }
    context.retained++
    return context
  }

  get(handle: number): SimulatedContext | undefined {
    return this.contexts.get(handle)
  }

  /** The context of the device that `memory` belongs to. */
  primaryOf(memory: PhysicalMemory): SimulatedContext | undefined {
    for (const context of this.contexts.values()) if (context.device === memory) return context
    return undefined
  }

  /** Removes a context, and its access to linear memory of other contexts. */
  remove(context: SimulatedContext): void {
    this.contexts.delete(context.handle)
    for (const other of this.contexts.values()) other.access.devices &= ~bitOf(context.device)
  }
}
