import { totalmem } from 'node:os'
import { OutOfRangeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import { choice, type PoolConfig, sourcedConfig } from '../caching/options.js'

/** How a host pool behaves; every option may be left out. Defaults are in parentheses. */
export interface HostPoolOptions {
  /**
   * the most memory to pin: a size, a share of the host's memory such as '10%', or `Infinity`. The default is 1 GiB,
   * however much the host has (1 GiB)
   */
  readonly maxPoolBytes?: ByteSize
  /**
   * bytes pinned by one call, which takes milliseconds; a larger buffer gets a segment of its own (16 MiB, or the
   * limit)
   */
  readonly segmentBytes?: ByteSize
  /** true: kernels can access the memory, at a buffer's `devicePtr` (false) */
  readonly mapped?: boolean
}

const DEFAULT_LIMIT_BYTES = 1 * GiB
const DEFAULT_SEGMENT_BYTES = 16 * MiB
/** What a share of pinned memory is of. */
export const HOST = { totalBytes: totalmem() }
const KEYS = ['maxPoolBytes', 'segmentBytes', 'mapped']

/** The options with defaults filled in; throws TypeError or RangeError naming the option. */
export function parseHostPoolOptions(call: string, options: HostPoolOptions) {
  checkOptionNames(call, options, KEYS)
  const maxPoolBytes = limitOf(options.maxPoolBytes ?? DEFAULT_LIMIT_BYTES, 'maxPoolBytes', HOST)
  const wanted = options.segmentBytes ?? Math.min(DEFAULT_SEGMENT_BYTES, maxPoolBytes)
  const segmentBytes = bytesOf(wanted, 'segmentBytes', HOST)
  if (segmentBytes > maxPoolBytes) {
    throw new OutOfRangeError(
      `segmentBytes (${formatBytes(segmentBytes)}) is above maxPoolBytes (${formatBytes(maxPoolBytes)}); lower it`,
    )
  }
  return {
    maxPoolBytes,
    segmentBytes,
    mapped: choice(options.mapped ?? false, 'mapped', [true, false]),
  }
}

/**
 * Options of the caching pool under a host pool. The host writes memory in no stream's order, so it is not
 * stream-ordered.
 */
export function hostConfig(maxPoolBytes: number, backing: PoolConfig['backing']): PoolConfig {
  return sourcedConfig(maxPoolBytes, backing, false)
}
