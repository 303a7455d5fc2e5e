import { type ByteSize, bytesOfSize } from '../../base/byte-size.js'
import { checkByteCount } from '../../base/bytes.js'
import type { Pool, PoolStats } from '../pool.js'
import { Counters } from './counters.js'
import { CountingPool } from './counting-pool.js'

/**
 * Wraps `upstream` with a limit on the requested bytes of live buffers. Throws RangeError unless `limitBytes` is a
 * size or Infinity.
 */
export function limited(upstream: Pool, limitBytes: ByteSize): LimitedPool {
  return new LimitedPool(upstream, checkedLimit(limitBytes))
}

function checkedLimit(limitBytes: ByteSize): number {
  const bytes = bytesOfSize(limitBytes, 'limited: limitBytes')
  if (bytes !== Infinity) checkByteCount(bytes, 'limited: limitBytes')
  return bytes
}

/** A pool with a limit on the bytes handed out; beyond it, allocations fail as out of memory. Made by `limited()`. */
export class LimitedPool extends CountingPool {
  private readonly counters: Counters

  constructor(upstream: Pool, limitBytes: number) {
    super(upstream)
    this.counters = new Counters(() => this.settle(), limitBytes)
  }

  /**
   * The most requested bytes that may be live at a time. It can be set at any time; below what is live, nothing is
   * allocated until enough was freed. Throws like `limited` for a bad value.
   */
  get limitBytes(): number {
    return this.counters.limitBytes
  }

  /** Changes the limit. */
  set limitBytes(limit: ByteSize) {
    this.counters.limitBytes = checkedLimit(limit)
  }

  /** Requested bytes of the live buffers. */
  get handedOutBytes(): number {
    return this.counters.bytes.current
  }

  /** The upstream's counters, with this pool's limit. */
  override stats(): PoolStats {
    return { ...super.stats(), limitBytes: this.limitBytes }
  }

  protected account(): Counters {
    return this.counters
  }
}
