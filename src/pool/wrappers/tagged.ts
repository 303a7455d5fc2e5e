// Who holds how much, by tags, each with a limit of its own. The tag is that of the scope around the call, so that code which
// knows nothing of tags is counted, too. A scope is a function and not a `using` block because of asynchronous code: while
// a function awaits, its caller goes on, and would go on in the block's scope. Node's AsyncLocalStorage keeps the two apart.
// Looking up the scope takes some 4 ns (0.4 ns before the first one), and remembering what a buffer counts for half a
// microsecond for each buffer; on Node 20 every await of the process takes some 100 ns more once there was a scope.

import { AsyncLocalStorage } from 'node:async_hooks'
import { checkByteCount, describe } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { overLimit } from '../out-of-memory.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { Wrapper } from './wrapper.js'

/** The tag of what is allocated outside of any scope; it may have a limit like any other. */
const UNTAGGED = 'untagged'

/** Options of `tagged`. */
export interface TaggedOptions {
  /** by tag, what may be handed out at a time, in bytes as asked for; a tag that is not named has no limit */
  readonly limits?: Readonly<Record<string, number>>
}

/** What one tag has been handed out; bytes as asked for. */
export interface TagStats {
  /** bytes held now */
  readonly requestedBytes: number
  /** most bytes held at once */
  readonly peakRequestedBytes: number
  /** buffers held now */
  readonly liveBuffers: number
  /** buffers handed out so far */
  readonly allocations: number
  /** most bytes that it may hold; Infinity without a limit */
  readonly limitBytes: number
}

/**
 * `upstream`, counted and limited by tags: what is allocated within `pool.inScope(tag, work)` counts for that tag until it
 * is freed, wherever that is, and for 'untagged' outside. Throws TypeError or RangeError for a bad limit, naming its tag.
 */
export function tagged(upstream: Pool, options: TaggedOptions = {}): TaggedPool {
  checkOptionNames('tagged', options, ['limits'])
  const limits = options.limits ?? {}
  if (typeof limits !== 'object') throw new TypeError(`tagged: limits must be an object, not ${describe(limits)}`)
  for (const [tag, bytes] of Object.entries(limits)) {
    if (bytes !== Infinity) checkByteCount(bytes, `tagged: the limit of '${tag}'`)
  }
  return new TaggedPool(upstream, new Map(Object.entries(limits)))
}

class Account extends Counters {
  constructor(
    readonly tag: string,
    readonly limitBytes: number,
  ) {
    super()
  }

  exceeds(bytes: number): boolean {
    checkByteCount(bytes, 'bytes')
    return this.bytes.current + bytes > this.limitBytes
  }
}

/** Made by `tagged`. */
export class TaggedPool extends Wrapper {
  private readonly accounts = new Map<string, Account>()
  private readonly scopes = new AsyncLocalStorage<Account>()
  /** for what a buffer counts; only its own tag's counters may change when it is freed */
  private readonly accountOf = new WeakMap<DeviceBuffer, Account>()

  constructor(
    upstream: Pool,
    private readonly limits: ReadonlyMap<string, number>,
  ) {
    super(upstream)
    for (const tag of limits.keys()) this.account(tag)
  }

  /**
   * Calls `work`; what it allocates, also after an `await`, counts for `tag`, or for that of a scope further inside. Returns
   * what `work` returns. A tag is remembered for good: name kinds of memory, not single requests.
   */
  inScope<R>(tag: string, work: () => R): R {
    if (typeof tag !== 'string' || tag === '') {
      throw new TypeError(`inScope: tag must be a name such as 'weights', not ${describe(tag)}`)
    }
    if (typeof work !== 'function') throw new TypeError(`inScope: work must be a function, not ${describe(work)}`)
    return this.scopes.run(this.account(tag), work)
  }

  /** By tag, for all that have a limit or were used. */
  statsByTag(): Record<string, TagStats> {
    const rows = Array.from(this.accounts.values(), ({ tag, bytes, allocations, limitBytes }): [string, TagStats] => [
      tag,
      {
        requestedBytes: bytes.current,
        peakRequestedBytes: bytes.peak,
        liveBuffers: allocations.current,
        allocations: allocations.total,
        limitBytes,
      },
    ])
    return Object.fromEntries(rows)
  }

  /** As of `Pool`. Throws OutOfMemoryError if the limit of a tag would be exceeded. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    const account = this.current()
    if (account.exceeds(bytes)) {
      throw overLimit(this.upstream, bytes, account.bytes.current, account.limitBytes, `tag '${account.tag}'`)
    }
    return super.allocate(bytes, stream, alignment)
  }

  /** As of `Pool`. Returns null if the limit of a tag would be exceeded. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    return this.current().exceeds(bytes) ? null : super.tryAllocate(bytes, stream, alignment)
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'free')
    super.release(buffer, stream)
    this.accountOf.get(buffer)?.noteFree(bytes)
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    const account = this.current()
    account.noteAllocation(buffer.byteLength)
    this.accountOf.set(buffer, account)
    return super.adopt(buffer)
  }

  /** That of the innermost scope. */
  private current(): Account {
    return this.scopes.getStore() ?? this.account(UNTAGGED)
  }

  private account(tag: string): Account {
    let account = this.accounts.get(tag)
    if (account === undefined) {
      account = new Account(tag, this.limits.get(tag) ?? Infinity)
      this.accounts.set(tag, account)
    }
    return account
  }
}
