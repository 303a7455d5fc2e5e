// Whether virtual memory works on a device, found by using it once, because its attribute does not promise that. A
// refusal for another reason is not remembered: the next call may succeed. No memory is lost by a refusal.

import { CudaError } from '../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { isUnsupported } from '../../driver/unsupported.js'
import { isOutOfMemory } from './backing.js'

/** Attempts of one call, because a pool keeps the answer for life. */
const ATTEMPTS = 2

const probes = new WeakMap<Context, Probe>()

/** The reason why virtual memory cannot be used on this device, as known now; null if it can. */
export function virtualMemoryObstacle(context: Context): string | null {
  const probe = probes.get(context) ?? new Probe(context)
  probes.set(context, probe)
  return probe.obstacle()
}

class Probe {
  /** the final answer */
  private answer: string | null | undefined
  private bytes = 0
  /** handles that the driver has not taken back yet; 0 for none */
  private ptr = 0
  private handle = 0
  private isMapped = false

  constructor(private readonly context: Context) {}

  obstacle(): string | null {
    let refusal = ''
    for (let attempt = 0; attempt < ATTEMPTS && (this.answer === undefined || this.ptr !== 0); attempt++) {
      try {
        this.answer = this.answer === undefined ? this.use() : this.answer
        this.giveBack()
      } catch (error) {
        if (!(error instanceof CudaError)) throw error
        refusal = error.message
        // A full device says nothing about virtual memory; a pool that needs memory will report it.
        if (isOutOfMemory(error)) this.answer ??= null
        else if (isUnsupported(error)) this.answer ??= refusal
      }
    }
    if (this.ptr !== 0) this.context.discard(() => this.giveBack())
    return this.answer === undefined ? refusal : this.answer
  }

  /** Resumes at the call that was refused. */
  private use(): string | null {
    const { context } = this
    const driver = context.activate()
    if (context.attribute('CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED') !== 1)
      return 'the device does not offer it'
    if (this.bytes === 0) this.bytes = driver.cuMemGetAllocationGranularity(context.device)
    if (this.ptr === 0) this.ptr = driver.cuMemAddressReserve(this.bytes, 0)
    if (this.handle === 0) this.handle = driver.cuMemCreate(this.bytes, context.device, CU_MEM_HANDLE_TYPE_NONE)
    if (!this.isMapped) driver.cuMemMap(this.ptr, this.bytes, this.handle)
    this.isMapped = true
    driver.cuMemSetAccess(this.ptr, this.bytes, [context.device])
    return null
  }

  private giveBack(): void {
    const driver = this.context.activate()
    if (this.isMapped) driver.cuMemUnmap(this.ptr, this.bytes)
    this.isMapped = false
    if (this.handle !== 0) driver.cuMemRelease(this.handle)
    this.handle = 0
    if (this.ptr !== 0) driver.cuMemAddressFree(this.ptr, this.bytes)
    this.ptr = 0
  }
}
