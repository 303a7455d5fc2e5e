import { totalmem } from 'node:os'
import { checkByteCount, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { choice, limitOf, type PoolConfig } from '../caching/options.js'

/** How a host pool behaves; everything may be left out. */
export interface HostPoolOptions {
  /** what may be pinned: bytes, `Infinity`, or a share of the host's memory such as '10%' (1 GiB) */
  readonly maxPoolBytes?: number | `${number}%`
  /** pinned at a time, which takes milliseconds; a larger buffer gets a segment of its own (16 MiB, or the limit) */
  readonly segmentBytes?: number
  /** true: the memory is in SharedArrayBuffers, and the pool can be used in several threads; see `pool.share()` (false) */
  readonly shared?: boolean
  /** true: kernels reach the memory, at a buffer's `devicePtr` (false) */
  readonly mapped?: boolean
}

const DEFAULT_LIMIT_BYTES = 1 * GiB
const DEFAULT_SEGMENT_BYTES = 16 * MiB
const KEYS = ['maxPoolBytes', 'segmentBytes', 'shared', 'mapped']

/** The same with everything decided; throws TypeError or RangeError naming the option. */
export function parseHostPoolOptions(options: HostPoolOptions) {
  checkOptionNames('createHostPool', options, KEYS)
  const limitBytes = limitOf(options.maxPoolBytes ?? DEFAULT_LIMIT_BYTES, totalmem())
  const segmentBytes = options.segmentBytes ?? Math.min(DEFAULT_SEGMENT_BYTES, limitBytes)
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

/** The caching pool under a host pool: what is done with memory of the host is in nobody's stream order. */
export function hostConfig(limitBytes: number, backing: PoolConfig['backing']): PoolConfig {
  return {
    limitBytes,
    leaveFreeBytes: 0,
    minBlockBytes: UNIT_BYTES,
    powerOfTwo: false,
    streamOrdered: false,
    crossStreamReuse: 'ordered',
    deterministic: false,
    releaseThresholdBytes: Infinity,
    backing,
    debug: null,
  }
}
