// Registered host memory for copies from the device (core/order/staged-copy.ts), which run while Node goes on.
// Registering costs more than most copies, so buffers are kept and used again. Sizes are powers of two.

import { MiB } from '../base/bytes.js'
import type { Context } from './context.js'
import { ownNode } from './host-node.js'

const LEAST_BYTES = 64 * 1024
/** Beyond this sum of kept bytes, a returned buffer is unregistered. */
const KEPT_BYTES = 64 * MiB

/** by context; the device closes its buffers */
const stagings = new WeakMap<Context, StagingBuffers>()

/** The staging buffers of one context. */
export class StagingBuffers {
  /** all buffers, in use or kept */
  private readonly registered = new Set<Uint8Array>()
  /** kept for the next copy */
  private readonly spare: Uint8Array[] = []
  /** bytes of `spare` */
  private keptBytes = 0
  /** returned by callers while a copy may still use them */
  private awaited: { memory: Uint8Array; isOver: () => boolean }[] = []

  private constructor(private readonly context: Context) {}

  /** The staging buffers of `context`, made at the first call. */
  static of(context: Context): StagingBuffers {
    const staging = stagings.get(context) ?? new StagingBuffers(context)
    stagings.set(context, staging)
    return staging
  }

  /** Registered memory of at least `bytes`; the caller returns it by `giveBack` or `giveBackOnce`. */
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
    // a simulated device of another thread reaches only shared memory
    const memory = new Uint8Array(new SharedArrayBuffer(size))
    const driver = this.context.activate()
    driver.placeHost(memory, ownNode(this.context))
    driver.cuMemHostRegister(memory, 0)
    this.registered.add(memory)
    return memory
  }

  /** Takes back memory that no copy uses any more. */
  giveBack(memory: Uint8Array): void {
    if (!this.registered.has(memory)) return // `close` has unregistered it
    if (this.keptBytes + memory.byteLength > KEPT_BYTES) {
      this.unregister(memory)
      return
    }
    this.keptBytes += memory.byteLength
    this.spare.push(memory)
  }

  /** Takes back memory once `isOver` returns true, which says that no copy uses it. `take` asks. */
  giveBackOnce(memory: Uint8Array, isOver: () => boolean): void {
    this.awaited.push({ memory, isOver })
  }

  /** Unregisters all buffers, even those in use. No copy may be pending. */
  close(): void {
    this.spare.length = 0
    this.awaited.length = 0
    this.keptBytes = 0
    for (const memory of this.registered) this.unregister(memory)
  }

  private unregister(memory: Uint8Array): void {
    const driver = this.context.activate()
    driver.cuMemHostUnregister(memory)
    driver.unplaceHost(memory)
    this.registered.delete(memory)
  }
}
