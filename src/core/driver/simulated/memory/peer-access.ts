// Access between devices. A device always reaches its own memory. It reaches memory of another device only after a
// grant: for cuMemAlloc memory by cuCtxEnablePeerAccess, for virtual memory by the mapping, for a pool by the pool.

import { RESULT } from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import { type PhysicalMemory, SimulatedDevice } from '../device.js'
import { bitOf } from './access-rights.js'

/** Grants of access between contexts, and the check that devices can reach each other. */
export class PeerAccess {
  /** by device: bits of the peers with memory to which it was given access before */
  private readonly granted: number[] = []

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly possible: boolean,
  ) {}

  /** Whether `device` can be given access to memory of `peer`. */
  canAccess(device: SimulatedDevice, peer: SimulatedDevice): boolean {
    return this.possible && device !== peer
  }

  /** Refuses the call if `device` can never access `memory`. */
  checkReachable(device: SimulatedDevice, memory: PhysicalMemory): void {
    if (!(memory instanceof SimulatedDevice) || memory === device || this.canAccess(device, memory)) return
    const fact = `device ${device.ordinal} cannot reach memory of ${memory.name}`
    throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_DEVICE, fact)
  }

  /** Gives `context` access to the linear memory of `peer`, present and future. */
  enable(context: SimulatedContext, peer: SimulatedContext): void {
    if (peer === context)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_CONTEXT, 'a context is no peer of its own')
    if (!this.canAccess(context.device, peer.device)) {
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 'cuDeviceCanAccessPeer says so')
    }
    const bit = bitOf(context.device)
    if (peer.access.devices & bit) throw this.interceptor.refuse(RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    peer.access.devices |= bit
  }

  /** Whether `device` gets access to another device for the first time, which costs more. Remembers the answer. */
  isFirstAccess(device: SimulatedDevice, memory: SimulatedDevice): boolean {
    const known = this.granted[device.ordinal] ?? 0
    this.granted[device.ordinal] = known | bitOf(memory)
    return device !== memory && (known & bitOf(memory)) === 0
  }
}
