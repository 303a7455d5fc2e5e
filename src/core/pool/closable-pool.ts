// The base of pools that are closed as a whole and notice stale buffers.

import { formatBytes } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import type { Clocks } from '../order/clocks.js'
import { checkStreamOf, type Stream } from '../order/stream.js'
import { signalOf, type WaitOptions } from '../order/wait-options.js'
import { Pool } from './pool.js'

/** The report of `close`. */
export interface CloseReport {
  /** buffers that were still held; they are invalid from now on */
  readonly heldBuffers: number
  /** the requested bytes of these buffers */
  readonly heldBytes: number
}

/** The error for a call on a closed pool. */
export function closedError(call: string): PoolError {
  return new PoolError(`${call}: the pool is closed; create another`, 'ERR_POOL_CLOSED')
}

/** The error for the close of a pool that threads with these ids use, too. */
export function inUseError(others: readonly number[]): PoolError {
  const count = others.length === 1 ? '1 other thread' : `${others.length} other threads`
  const remedy = `close it there first, or end ${others.length === 1 ? 'that thread' : 'them'}`
  return new PoolError(`close: the pool is in use by ${count} (${others.join(', ')}); ${remedy}`, 'ERR_POOL_IN_USE')
}

const MOST_LABELS = 5

/** The process warning for buffers that a `using` block has lost; none if it lost none. */
export function warnOfHeld(
  pool: string,
  { heldBuffers, heldBytes }: CloseReport,
  labels: readonly string[],
  isHost = false,
): void {
  if (heldBuffers === 0) return
  const held = heldBuffers === 1 ? '1 buffer was held' : `${heldBuffers} buffers were held`
  const more = labels.length > MOST_LABELS ? ` and ${labels.length - MOST_LABELS} more labels` : ''
  const named = labels.length === 0 ? '' : `, among them ${labels.slice(0, MOST_LABELS).join(', ')}${more},`
  process.emitWarning(
    `${held}, ${formatBytes(heldBytes)} in all${named}${named === '' ? ',' : ''} when their ${pool} was closed; free them before, or declare them by using. ` +
      `${isHost ? '' : 'A caching pool with { debug: true } names the places. '}pool.warnOnHeld = false ends this warning`,
    'PoolWarning',
  )
}

export abstract class ClosablePool extends Pool implements Disposable, AsyncDisposable {
  /** @internal */
  readonly context: Context
  /** the clocks of the streams to allocate for; null as soon as `close` invalidates the buffers */
  protected acceptedClocks: Clocks | null
  /** whether a process warning tells of buffers that were held when a `using` block closed the pool */
  warnOnHeld = true
  /** the device has the memory back */
  protected givenBack = false
  /** why a buffer of an open pool is stale */
  protected abstract readonly staleReason: string

  constructor(
    protected readonly clocks: Clocks,
    /** the stream of allocations that name none */
    readonly defaultStream: Stream,
  ) {
    super()
    this.context = clocks.context
    this.acceptedClocks = clocks
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.givenBack
  }

  /**
   * Waits for pending work, gives all memory back and invalidates buffers still held; returns how many. A second
   * close does nothing.
   */
  abstract close(): CloseReport

  /**
   * `close()` at the end of a `using` block. Where that throws, this warns by `process.emitWarning`, and closes the
   * pool once the cause is gone. It warns of buffers that were still held, too, unless `warnOnHeld` is false.
   */
  [Symbol.dispose](): void {
    disposeOf(this, () => {
      const labels = this.heldLabels()
      const report = this.close()
      if (this.warnOnHeld) warnOfHeld(this.constructor.name, report, labels)
    })
  }

  /**
   * Waits for pending work as `device.finished()` does, and then closes; Node goes on meanwhile. Resolves to the report
   * of `close`, and rejects like it, or with the reason of `signal` when it is aborted: the pool stays open then.
   */
  async drain(options: WaitOptions = {}): Promise<CloseReport> {
    await this.clocks.finishForClose(signalOf('drain', options))
    return this.close()
  }

  /** Waits for pending work as `device.finished()` does, and then closes as at the end of a `using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.clocks.finishForClose()
    this[Symbol.dispose]()
  }

  /** The labels of live buffers. */
  protected heldLabels(): string[] {
    return []
  }

  /** @internal */
  override get drops(): number {
    return this.isAccepting ? 0 : 1
  }

  /**
   * Throws PoolError: only a pool of `createSharedPool` and its siblings can be shared.
   * @internal
   */
  share(): unknown {
    throw new PoolError('share: the pool is one of this thread; make it with createSharedPool')
  }

  /** False as soon as `close` invalidates the buffers. */
  protected get isAccepting(): boolean {
    return this.acceptedClocks !== null
  }

  /**
   * Throws PoolError in the name of `call` for a closed pool.
   * @internal
   */
  checkOpen(call: string): void {
    if (!this.isAccepting) throw closedError(call)
  }

  /** Refuses a stream of another device, and one that takes no work. */
  protected checkStream(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkOpen(call)
  }

  /** @internal */
  refuseStale(call: string): never {
    if (!this.isAccepting)
      throw new PoolError(`${call}: the buffer's pool is closed; allocate from an open one`, 'ERR_POOL_CLOSED')
    throw new PoolError(`${call}: ${this.staleReason}`, 'ERR_BUFFER_FREED')
  }
}
