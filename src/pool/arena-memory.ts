// What an arena stands on: one driver allocation, or a range of addresses into which memory is mapped from its start on,
// so that more memory never changes an address.

import { PoolError } from '../base/errors.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { isOutOfMemory, MOST_ALIGNMENT_BYTES, virtualMemoryObstacle } from './backing.js'
import { noRoomToBegin } from './out-of-memory.js'

export interface ArenaMemory {
  /** the address of its first byte */
  readonly base: number
  /** bytes from the base on that can be used */
  readonly committedBytes: number
  /** bytes held from the device; more than committed after a growth that the driver broke off */
  readonly reservedBytes: number
  /** Commits at least `bytes`; false when the device has no room for them. Throws CudaError for any other refusal. */
  growTo(bytes: number): boolean
  /** Gives everything back; no work may be pending. After a refusal, a second call goes on where the first stopped. */
  close(): void
}

/**
 * Memory for an arena of `bytes` that may grow to `maxBytes`. Throws OutOfMemoryError where the device has no room for
 * `bytes`, PoolError where it has no virtual memory to grow with.
 */
export function openArenaMemory(context: Context, bytes: number, maxBytes: number): ArenaMemory {
  const obstacle = maxBytes === bytes ? null : virtualMemoryObstacle(context)
  if (obstacle !== null) {
    throw new PoolError(
      `createArenaPool: growing to maxBytes needs virtual memory, which cannot be used here: ${obstacle}; leave maxBytes out and give bytes all that the arena will need`,
    )
  }
  try {
    if (maxBytes === bytes) return new FixedMemory(context, bytes)
    const memory = new GrowingMemory(context, maxBytes)
    let grown = false
    try {
      grown = memory.growTo(bytes)
    } finally {
      if (!grown) memory.close()
    }
    if (grown) return memory
  } catch (error) {
    if (!isOutOfMemory(error)) throw error
  }
  throw noRoomToBegin('createArenaPool', bytes, context)
}

/** One cuMemAlloc. Throws CudaError, also for want of memory. */
class FixedMemory implements ArenaMemory {
  readonly base: number
  reservedBytes: number

  constructor(
    private readonly context: Context,
    readonly committedBytes: number,
  ) {
    this.base = context.activate().cuMemAlloc(committedBytes)
    this.reservedBytes = committedBytes
  }

  growTo(bytes: number): boolean {
    return bytes <= this.committedBytes
  }

  close(): void {
    if (this.reservedBytes === 0) return
    this.context.activate().cuMemFree(this.base)
    this.reservedBytes = 0
  }
}

/** Memory that was mapped in one go. */
interface Part {
  readonly ptr: number
  readonly bytes: number
  readonly handle: number
  mapped: boolean
  accessible: boolean
}

/** An address range of `mostBytes` and as much memory in it as was needed so far, in whole granules. */
class GrowingMemory implements ArenaMemory {
  readonly base: number
  committedBytes = 0
  reservedBytes = 0
  private readonly granuleBytes: number
  private readonly rangeBytes: number
  private readonly parts: Part[] = []
  private reserved = true

  constructor(
    private readonly context: Context,
    mostBytes: number,
  ) {
    const driver = context.activate()
    this.granuleBytes = driver.cuMemGetAllocationGranularity(context.device)
    this.rangeBytes = this.wholeGranules(mostBytes)
    this.base = driver.cuMemAddressReserve(this.rangeBytes, Math.max(this.granuleBytes, MOST_ALIGNMENT_BYTES))
  }

  growTo(bytes: number): boolean {
    if (bytes > this.rangeBytes) return false
    try {
      while (this.committedBytes < bytes) this.commit(this.unfinishedPart() ?? this.createPart(bytes))
      return true
    } catch (error) {
      if (isOutOfMemory(error)) return false
      throw error
    }
  }

  close(): void {
    const driver = this.context.activate()
    for (let part = this.parts.at(-1); part !== undefined; part = this.parts.at(-1)) {
      if (part.mapped) driver.cuMemUnmap(part.ptr, part.bytes)
      part.mapped = false
      driver.cuMemRelease(part.handle)
      this.parts.pop()
      this.reservedBytes -= part.bytes
    }
    if (this.reserved) driver.cuMemAddressFree(this.base, this.rangeBytes)
    this.reserved = false
  }

  /** Memory that a refused growth obtained and could not finish; the next growth does. */
  private unfinishedPart(): Part | null {
    const last = this.parts.at(-1)
    return last === undefined || last.accessible ? null : last
  }

  /** Memory for what is missing to `bytes`. */
  private createPart(bytes: number): Part {
    const missing = this.wholeGranules(bytes - this.committedBytes)
    const handle = this.context.activate().cuMemCreate(missing, this.context.device, CU_MEM_HANDLE_TYPE_NONE)
    const ptr = this.base + this.committedBytes
    const part = { ptr, bytes: missing, handle, mapped: false, accessible: false }
    this.parts.push(part)
    this.reservedBytes += missing
    return part
  }

  private commit(part: Part): void {
    const driver = this.context.activate()
    if (!part.mapped) driver.cuMemMap(part.ptr, part.bytes, part.handle)
    part.mapped = true
    driver.cuMemSetAccess(part.ptr, part.bytes, [this.context.device])
    part.accessible = true
    this.committedBytes += part.bytes
  }

  private wholeGranules(bytes: number): number {
    return Math.ceil(bytes / this.granuleBytes) * this.granuleBytes
  }
}
