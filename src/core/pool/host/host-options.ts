import { totalmem } from 'node:os'
import { type ByteSize, readSizes } from '../../base/byte-size.js'
import { checkByteCount, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import { choice, limitOf, type PoolConfig, sourcedConfig } from '../caching/options.js'

/** How a host pool behaves; every option may be left out. Defaults are in parentheses. */
export interface HostPoolOptions {
  /** the most memory to pin: a size, `Infinity`, or a share of the host's memory such as '10%' (1 GiB) */
  readonly maxPoolBytes?: ByteSize | `${number}%`
  /**
   * bytes pinned by one call, which takes milliseconds; a larger buffer gets a segment of its own (16 MiB, or the
   * limit)
   */
  readonly segmentBytes?: ByteSize
  /** true: the memory lies in SharedArrayBuffers, and several threads can use the pool; see `pool.share()` (false) */
  readonly shared?: boolean
  /** true: kernels can access the memory, at a buffer's `devicePtr` (false) */
  readonly mapped?: boolean
}

const DEFAULT_LIMIT_BYTES = 1 * GiB
const DEFAULT_SEGMENT_BYTES = 16 * MiB
const KEYS = ['maxPoolBytes', 'segmentBytes', 'shared', 'mapped']

/** The options with defaults filled in; throws TypeError or RangeError naming the option. */
export function parseHostPoolOptions(options: HostPoolOptions) {
  checkOptionNames('createHostPool', options, KEYS)
  const limitBytes = limitOf(options.maxPoolBytes ?? DEFAULT_LIMIT_BYTES, totalmem())
  const segmentBytes = readSizes(options, 'segmentBytes').segmentBytes ?? Math.min(DEFAULT_SEGMENT_BYTES, limitBytes)
  checkByteCount(segmentBytes, 'segmentBytes')
  if (segmentBytes > limitBytes) {
    throw new RangeError(
      `segmentBytes (${formatBytes(segmentBytes)}) is above maxPoolBytes (${formatBytes(limitBytes)}); lower it`,
    )
  }
  return {
    limitBytes,
    segmentBytes,
    shared: choice(options.shared ?? false, 'shared', [true, false]),
    mapped: choice(options.mapped ?? false, 'mapped', [true, false]),
  }
}

/**
 * Options of the caching pool under a host pool. The host writes memory in no stream's order, so it is not
 * stream-ordered.
 */
export function hostConfig(limitBytes: number, backing: PoolConfig['backing']): PoolConfig {
  return sourcedConfig(limitBytes, backing, false)
}
