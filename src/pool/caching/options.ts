import { checkByteCount, describe, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { SegmentPlan } from '../backing/segment-plan.js'
import type { SegmentSource } from '../backing/segment-source.js'
import { type DebugConfig, type DebugOptions, parseDebugOptions } from './debug-options.js'

const CROSS_STREAM_REUSE = ['ordered', 'wait-before-grow', 'wait-before-oom'] as const
export type CrossStreamReuse = (typeof CROSS_STREAM_REUSE)[number]

/** How a caching pool behaves; everything may be left out. */
export interface PoolOptions {
  /** what the pool may reserve: bytes, `Infinity`, or a share of the device such as '80%' (4 GiB) */
  readonly maxPoolBytes?: number | `${number}%`
  /** stop growing when the device has less than this free, whoever uses it (0) */
  readonly leaveFreeBytes?: number
  /** sizes are rounded up to multiples of this power of two, 256 or more (256) */
  readonly minBlockBytes?: number
  /** 'powerOfTwo' rounds sizes up to powers of two from 512 B to 2 GiB, as simpler pools do ('sixteenPerOctave') */
  readonly sizeClasses?: 'sixteenPerOctave' | 'powerOfTwo'
  /** false: at each free, the caller promises that all work on the block is done (true) */
  readonly streamOrdered?: boolean
  /**
   * When a stream gets memory that another one has used last, and whose order the pool does not know: 'ordered' never before
   * the host has seen that use complete; 'wait-before-oom' when nothing else is left, by making the stream wait for it, which
   * is better than a wait of the host; 'wait-before-grow' rather than take new memory, and before more than a fifth of
   * what was live at most would lie idle, the host waits, too ('wait-before-oom')
   */
  readonly crossStreamReuse?: CrossStreamReuse
  /**
   * true: what the pool does depends on the sequence of calls alone, not on how fast the device is: it does not ask the
   * device how far work has come, and forgets what `query` and `finished` were answered. Closing streams apart (false)
   */
  readonly deterministic?: boolean
  /** at a settling, idle memory above this goes back to the device (Infinity) */
  readonly releaseThresholdBytes?: number
  /**
   * 'virtual' moves memory to where it is needed and wants virtual memory management; 'segments' takes plain driver
   * allocations; 'managed' takes memory that moves between host and devices as it is used, and with a `maxPoolBytes` that
   * says so more of it than the device has ('auto')
   */
  readonly backing?: 'auto' | 'virtual' | 'segments' | 'managed'
  /** looks for mistakes in the use of memory, at the price of speed: `true`, or how; see DebugOptions (false) */
  readonly debug?: boolean | DebugOptions
  /** true: the pool can be used in several threads; see `pool.share()` (false) */
  readonly shared?: boolean
}

/** The same with everything decided; sizes in bytes. */
export interface PoolConfig {
  readonly limitBytes: number
  readonly leaveFreeBytes: number
  readonly minBlockBytes: number
  readonly powerOfTwo: boolean
  readonly streamOrdered: boolean
  readonly crossStreamReuse: CrossStreamReuse
  readonly deterministic: boolean
  readonly releaseThresholdBytes: number
  /** a source of segments: of a pool in other memory than the device's; a plan of one where another thread makes it */
  readonly backing: 'auto' | 'virtual' | 'segments' | 'managed' | SegmentSource | SegmentPlan
  /** null: nothing is looked for */
  readonly debug: DebugConfig | null
}

const KEYS = [
  'maxPoolBytes',
  'leaveFreeBytes',
  'minBlockBytes',
  'sizeClasses',
  'streamOrdered',
  'crossStreamReuse',
  'deterministic',
  'releaseThresholdBytes',
  'backing',
  'debug',
  'shared',
]

/** Checks options against a device of `deviceBytes`; throws TypeError or RangeError naming the option. */
export function parsePoolOptions(options: PoolOptions, deviceBytes: number): PoolConfig {
  checkOptionNames('createPool', options, KEYS)
  const minBlockBytes = options.minBlockBytes ?? UNIT_BYTES
  checkByteCount(minBlockBytes, 'minBlockBytes')
  if (minBlockBytes < UNIT_BYTES || minBlockBytes > 2 * MiB || !Number.isInteger(Math.log2(minBlockBytes))) {
    throw new RangeError(`minBlockBytes must be a power of two from ${UNIT_BYTES} to 2 MiB, not ${minBlockBytes}`)
  }
  const limitBytes = limitOf(options.maxPoolBytes ?? 4 * GiB, deviceBytes)
  if (limitBytes < minBlockBytes) {
    throw new RangeError(
      `maxPoolBytes (${formatBytes(limitBytes)}) is below minBlockBytes (${formatBytes(minBlockBytes)}); raise it`,
    )
  }
  choice(options.shared ?? false, 'shared', [true, false])
  return {
    limitBytes,
    leaveFreeBytes: bytesOrZero(options.leaveFreeBytes ?? 0, 'leaveFreeBytes'),
    minBlockBytes,
    powerOfTwo:
      choice(options.sizeClasses ?? 'sixteenPerOctave', 'sizeClasses', ['sixteenPerOctave', 'powerOfTwo']) ===
      'powerOfTwo',
    streamOrdered: choice(options.streamOrdered ?? true, 'streamOrdered', [true, false]),
    crossStreamReuse: choice(options.crossStreamReuse ?? 'wait-before-oom', 'crossStreamReuse', CROSS_STREAM_REUSE),
    deterministic: choice(options.deterministic ?? false, 'deterministic', [true, false]),
    releaseThresholdBytes: bytesOrZero(options.releaseThresholdBytes ?? Infinity, 'releaseThresholdBytes'),
    backing: choice(options.backing ?? 'auto', 'backing', ['auto', 'virtual', 'segments', 'managed'] as const),
    debug: parseDebugOptions(options.debug ?? false, Math.min(limitBytes, deviceBytes)),
  }
}

/** Reads `maxPoolBytes` where there is `totalBytes`; Infinity stays. Throws TypeError or RangeError. */
export function limitOf(value: number | string, totalBytes: number): number {
  if (value === Infinity) return Infinity
  if (typeof value !== 'string') {
    checkByteCount(value, 'maxPoolBytes')
    return value
  }
  const percent = /^\s*(\d+(?:\.\d+)?)\s*%\s*$/.exec(value)
  const share = percent === null ? NaN : Number(percent[1]) / 100
  if (!(share > 0 && share <= 1)) {
    throw new RangeError(`maxPoolBytes must be bytes, Infinity or a share from '1%' to '100%', not '${value}'`)
  }
  return Math.floor(share * totalBytes)
}

function bytesOrZero(value: number, option: string): number {
  if (value !== 0 && value !== Infinity) checkByteCount(value, option)
  return value
}

/** Refuses what is none of the choices. */
export function choice<T>(value: T, option: string, choices: readonly T[]): T {
  if (!choices.includes(value)) {
    throw new TypeError(`${option} must be ${choices.map(describe).join(' or ')}, not ${describe(value)}`)
  }
  return value
}
