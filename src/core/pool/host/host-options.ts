import { totalmem } from 'node:os'
import { OutOfRangeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { formatBytes, GiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Context } from '../../driver/context.js'
import { nodeOf } from '../../driver/host-node.js'
import type { PinnedOptions } from '../backing/pinned-segments.js'
import { choice, type PoolConfig, sourcedConfig } from '../caching/options.js'
import { pinnedPolicy } from '../policy.js'

/** How a host pool behaves; every option may be left out. Defaults are in parentheses. */
export interface HostPoolOptions {
  /**
   * the most memory to pin: a size, a share of the host's memory such as '10%', or `Infinity`. The default is 1 GiB,
   * however much the host has (1 GiB)
   */
  readonly maxPoolBytes?: ByteSize
  /**
   * bytes pinned by one call, which takes 0.5 ms a MiB; a larger buffer gets a segment of its own (as many as the pool
   * has, from 256 KiB to 16 MiB)
   */
  readonly segmentBytes?: ByteSize
  /** the NUMA node of the host that the memory lies on; copies to other devices are slower (the device's own node) */
  readonly numaNode?: number
  /** true: kernels can access the memory, at a buffer's `devicePtr` (false) */
  readonly mapped?: boolean
}

const DEFAULT_LIMIT_BYTES = 1 * GiB
/** What a share of pinned memory is of. */
export const HOST = { totalBytes: totalmem() }
const KEYS = ['maxPoolBytes', 'segmentBytes', 'mapped', 'numaNode']

/** The limit of the pool, and how it pins; throws TypeError or RangeError naming the option. */
export function parseHostPoolOptions(
  call: string,
  context: Context,
  options: HostPoolOptions,
): PinnedOptions & { readonly maxPoolBytes: number } {
  checkOptionNames(call, options, KEYS)
  const maxPoolBytes = limitOf(options.maxPoolBytes ?? DEFAULT_LIMIT_BYTES, 'maxPoolBytes', HOST)
  const most = Math.min(pinnedPolicy.segmentBytes, maxPoolBytes)
  const segmentBytes = bytesOf(options.segmentBytes ?? most, 'segmentBytes', HOST)
  if (segmentBytes > maxPoolBytes) {
    throw new OutOfRangeError(
      `segmentBytes (${formatBytes(segmentBytes)}) is above maxPoolBytes (${formatBytes(maxPoolBytes)}); lower it`,
    )
  }
  const firstBytes = options.segmentBytes === undefined ? Math.min(pinnedPolicy.firstBytes, most) : segmentBytes
  const mapped = choice(options.mapped ?? false, 'mapped', [true, false])
  return { maxPoolBytes, firstBytes, segmentBytes, mapped, numaNode: nodeOf(context, options.numaNode) }
}

/**
 * Options of the caching pool under a host pool. The host writes memory in no stream's order, so it is not
 * stream-ordered.
 */
export function hostConfig(maxPoolBytes: number, backing: PoolConfig['backing']): PoolConfig {
  return sourcedConfig(maxPoolBytes, backing, false)
}
