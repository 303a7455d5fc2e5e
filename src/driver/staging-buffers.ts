// Host memory that the device can write while Node goes on: array buffers registered with the driver once and used
// again, because registering costs more than most copies. Sizes are powers of two; beyond KEPT_BYTES a buffer lives for
// one copy only.

import { MiB } from '../base/bytes.js'
import type { Context } from './context.js'

const LEAST_BYTES = 64 * 1024
const KEPT_BYTES = 64 * MiB

const stagings = new WeakMap<Context, StagingBuffers>()

export class StagingBuffers {
  private readonly registered = new Set<Uint8Array>()
  private readonly spare: Uint8Array[] = []
  private keptBytes = 0
  /** given back while a copy may still be to come */
  private awaited: { memory: Uint8Array; isOver: () => boolean }[] = []

  private constructor(private readonly context: Context) {}

  static of(context: Context): StagingBuffers {
    const staging = stagings.get(context) ?? new StagingBuffers(context)
    stagings.set(context, staging)
    return staging
  }

  /** Registered memory of at least `bytes`, to be given back. */
  take(bytes: number): Uint8Array {
    for (const each of this.awaited.filter(({ isOver }) => isOver())) {
      this.giveBack(each.memory)
      this.awaited = this.awaited.filter(other => other !== each)
    }
    const size = 2 ** Math.ceil(Math.log2(Math.max(bytes, LEAST_BYTES)))
    const index = this.spare.findIndex(memory => memory.byteLength === size)
    if (index !== -1) {
      this.keptBytes -= size
      return this.spare.splice(index, 1)[0]
    }
    const memory = new Uint8Array(new SharedArrayBuffer(size)) // a simulated device of another thread reaches no other
    this.context.activate().cuMemHostRegister(memory, 0)
    this.registered.add(memory)
    return memory
  }

  /** Takes memory back that no copy uses any more. */
  giveBack(memory: Uint8Array): void {
    if (!this.registered.has(memory)) return // closed meanwhile
    if (this.keptBytes + memory.byteLength > KEPT_BYTES) {
      this.unregister(memory)
      return
    }
    this.keptBytes += memory.byteLength
    this.spare.push(memory)
  }

  /** Takes memory back as soon as `isOver` says that no copy uses it any more; that is asked when memory is taken. */
  giveBackOnce(memory: Uint8Array, isOver: () => boolean): void {
    this.awaited.push({ memory, isOver })
  }

  /** Unregisters everything, also what was not given back; no copy may be under way. */
  close(): void {
    this.spare.length = 0
    this.awaited.length = 0
    this.keptBytes = 0
    for (const memory of this.registered) this.unregister(memory)
  }

  private unregister(memory: Uint8Array): void {
    this.context.activate().cuMemHostUnregister(memory)
    this.registered.delete(memory)
  }
}
