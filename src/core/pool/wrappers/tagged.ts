// Memory use by tag, each tag with a limit of its own. The tag comes from the scope around the call, so that code
// without tags is counted, too. A scope is a function and not a `using` block because of asynchronous code: while a
// function awaits, its caller would go on in the block's scope. Node's AsyncLocalStorage keeps both apart. An
// allocation with its free takes 32 ns where the upstream alone takes 14; 4 of them look up the scope. On Node 20,
// after the first scope every await of the process takes about 100 ns more.

import { AsyncLocalStorage } from 'node:async_hooks'
import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, limitOf } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { checkFlag, checkOptionNames, didYouMean } from '../../base/option-names.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Counters, type TagStats } from './counters.js'
import { CountingPool } from './counting-pool.js'
import { checkIsPool, Wrapper } from './wrapper.js'

/** The tag of allocations outside of all scopes; it may have a limit like any other tag. */
const UNTAGGED = 'untagged'

/** Options of `tagged()`. */
export interface TaggedOptions<T extends string = string> {
  /** the most requested bytes that may be live at a time, by tag; `Infinity` for a tag without a limit */
  readonly limits?: Readonly<Record<T, ByteSize>>
  /** whether other tags than those of `limits` can be used, without a limit (true without `limits`, else false) */
  readonly open?: boolean
}

/**
 * Wraps `upstream` so that memory is counted and limited by tag. An allocation within `pool.inScope(tag, work)`
 * counts for that tag until its free, wherever the free is. Outside of all scopes it counts for 'untagged', which has
 * no limit unless `limits` names it. With `limits`, only their tags can be used, unless `open` is true: a misspelt tag
 * would have no limit. Throws TypeError or RangeError for a bad limit, naming its tag.
 */
export function tagged(upstream: Pool): TaggedPool
export function tagged(upstream: Pool, options: TaggedOptions & { readonly open: true }): TaggedPool
export function tagged<T extends string>(upstream: Pool, options: TaggedOptions<T>): TaggedPool<T>
export function tagged(upstream: Pool, options: TaggedOptions = {}): TaggedPool {
  checkIsPool(upstream, 'upstream')
  checkOptionNames('tagged', options, ['limits', 'open'])
  const { limits = {} } = options
  // A Map has no entries of its own, so its limits would be ignored.
  if (typeof limits !== 'object' || limits === null || Symbol.iterator in limits) {
    throw new WrongTypeError(`tagged: limits must be an object such as { weights: '2GiB' }, not ${describe(limits)}`)
  }
  const { open = Object.keys(limits).length === 0 } = options
  checkFlag('tagged: open', open)
  const byTag = new Map<string, number>()
  for (const [tag, limit] of Object.entries(limits)) {
    byTag.set(tag, limitOf(limit, `tagged: the limit of '${tag}'`, upstream.context))
  }
  return new TaggedPool(upstream, byTag, open)
}

/** A pool that counts and limits memory by tag. Made by `tagged()`. */
export class TaggedPool<T extends string = string> extends CountingPool {
  private readonly byTag = new Map<string, Counters>()
  /** the account of UNTAGGED, from its first use on */
  private outside: Counters | null = null
  /** of buffers, which may be freed in another scope; a WeakMap would take 0.4 µs a buffer */
  private readonly byRecord: Counters[] = []
  private readonly scopes = new AsyncLocalStorage<{ readonly tag: string; readonly account: Counters }>()

  constructor(
    upstream: Pool,
    private readonly limits: ReadonlyMap<string, number>,
    private readonly isOpen: boolean,
  ) {
    super(upstream)
    for (const tag of limits.keys()) this.accountFor(tag)
  }

  /**
   * Calls `work` and returns its result. Allocations within, also after an `await`, count for `tag`, or for the tag
   * of a scope further inside. Tags are never forgotten: name kinds of memory, not single requests. Throws TypeError
   * for an empty tag, RangeError for one without a limit unless the pool is open, and out of memory errors beyond the
   * tag's limit.
   */
  inScope<R>(tag: T | typeof UNTAGGED, work: () => R): R {
    if (typeof tag !== 'string' || tag === '') {
      throw new WrongTypeError(`inScope: tag must be a name such as 'weights', not ${describe(tag)}`)
    }
    if (!this.isOpen && tag !== UNTAGGED && !this.limits.has(tag)) throw this.unknownTag('inScope', tag)
    if (typeof work !== 'function') throw new WrongTypeError(`inScope: work must be a function, not ${describe(work)}`)
    return this.scopes.run({ tag, account: this.accountFor(tag) }, work)
  }

  /**
   * The tag of the innermost scope; null outside of all scopes.
   * @internal
   */
  get currentTag(): string | null {
    return this.scopes.getStore()?.tag ?? null
  }

  /**
   * Changes the limit of a tag; below the live bytes, nothing is allocated for it until enough was freed. Throws as
   * `tagged` for a bad limit, and RangeError for an unknown tag.
   */
  setLimit(tag: T | typeof UNTAGGED, limit: ByteSize): void {
    const account = tag === UNTAGGED ? this.untagged() : this.byTag.get(tag)
    if (account === undefined) throw this.unknownTag('setLimit', tag)
    account.maxPoolBytes = limitOf(limit, `setLimit: the limit of '${tag}'`, this.context)
  }

  /** The figures by tag, for all tags that have a limit or were used. */
  statsByTag(): Readonly<Record<T, TagStats> & Record<string, TagStats>> {
    return Object.fromEntries(this.parts()) as Record<T, TagStats> & Record<string, TagStats>
  }

  /** @internal */
  override parts(): [string, TagStats][] {
    return Array.from(this.byTag, ([tag, account]) => [tag, account.stats()])
  }

  /** The account of the innermost scope. */
  protected account(): Counters {
    return this.scopes.getStore()?.account ?? this.untagged()
  }

  protected override accounts(): Iterable<Counters> {
    return this.byTag.values()
  }

  protected override remember(buffer: DeviceBuffer, account: Counters): void {
    while (this.byRecord.length < buffer.record) this.byRecord.push(account)
    this.byRecord[buffer.record] = account
  }

  protected override accountOf({ record }: DeviceBuffer): Counters {
    return this.byRecord[record]
  }

  private unknownTag(call: string, tag: string): RangeError {
    const tags = [...this.byTag.keys()]
    return new OutOfRangeError(
      `${call}: there is no tag '${tag}'; the tags are ${tags.join(', ')}${didYouMean(tag, tags)}; name it in limits, or pass open: true`,
    )
  }

  private untagged(): Counters {
    this.outside ??= this.accountFor(UNTAGGED)
    return this.outside
  }

  private accountFor(tag: string): Counters {
    let account = this.byTag.get(tag)
    if (account === undefined) {
      account = new Counters(() => this.settle(), this.limits.get(tag) ?? Infinity, `tag '${tag}'`)
      this.byTag.set(tag, account)
    }
    return account
  }
}

/** The outermost tagged pool among a pool and the pools that it wraps; null for none. */
export function taggedPoolOf(pool: Pool): TaggedPool | null {
  if (pool instanceof TaggedPool) return pool
  return pool instanceof Wrapper ? taggedPoolOf(pool.upstream) : null
}
