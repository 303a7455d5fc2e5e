import { type ByteSize, limitOf } from '../../base/byte-size.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { CountingPool } from './counting-pool.js'
import { checkIsPool } from './wrapper.js'

/**
 * Wraps `upstream` with a limit on the requested bytes of live buffers. Throws RangeError unless `maxPoolBytes` is a
 * size or Infinity.
 */
export function limited(upstream: Pool, maxPoolBytes: ByteSize): LimitedPool {
  checkIsPool(upstream, 'upstream')
  return new LimitedPool(upstream, limitOf(maxPoolBytes, 'limited: maxPoolBytes', upstream.context))
}

/** A pool with a limit on the bytes handed out; beyond it, allocations fail as out of memory. Made by `limited()`. */
export class LimitedPool extends CountingPool {
  private readonly counters: Counters

  constructor(upstream: Pool, maxPoolBytes: number) {
    super(upstream)
    this.counters = new Counters(() => this.settle(), maxPoolBytes)
  }

  /**
   * The most requested bytes that may be live at a time. It can be set at any time; below what is live, nothing is
   * allocated until enough was freed. Throws like `limited` for a bad value.
   */
  get maxPoolBytes(): number {
    return this.counters.maxPoolBytes
  }

  /** Changes the limit. */
  set maxPoolBytes(limit: ByteSize) {
    this.counters.maxPoolBytes = limitOf(limit, 'limited: maxPoolBytes', this.context)
  }

  /** Requested bytes of the live buffers. */
  get handedOutBytes(): number {
    return this.counters.bytes.current
  }

  protected account(): Counters {
    return this.counters
  }
}
