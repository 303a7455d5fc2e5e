import { type ByteSize, bytesOfSize, readSizes } from '../../base/byte-size.js'
import { checkByteCount, describe, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames, withDefaults } from '../../base/option-names.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { SegmentPlan } from '../backing/segment-plan.js'
import type { SegmentSource } from '../backing/segment-source.js'
import { type ReservedChange, ReservedWatch } from '../reserved-watch.js'
import { type DebugConfig, type DebugOptions, parseDebugOptions } from './debug-options.js'

const CROSS_STREAM_REUSE = ['ordered', 'wait-before-grow', 'wait-before-oom'] as const
type CrossStreamReuse = (typeof CROSS_STREAM_REUSE)[number]

/** How a caching pool behaves; every option may be left out. Sizes are bytes, or text such as '4GiB'. */
export interface PoolOptions {
  /** the most that the pool may reserve: a size, `Infinity`, or a share of the device such as '80%' (4 GiB) */
  readonly maxPoolBytes?: ByteSize | `${number}%`
  /** the pool stops growing when the device has less than this free, whatever program uses the rest (0) */
  readonly leaveFreeBytes?: ByteSize
  /** sizes are rounded up to multiples of this power of two, 256 or more (256) */
  readonly minBlockBytes?: ByteSize
  /** 'powerOfTwo' rounds sizes up to powers of two from 512 B to 2 GiB, as simpler pools do ('sixteenPerOctave') */
  readonly sizeClasses?: 'sixteenPerOctave' | 'powerOfTwo'
  /** false: at each free, the caller promises that all work on the block is done (true) */
  readonly streamOrdered?: boolean
  /**
   * When a stream may get memory that another stream used last, if the pool does not know the order of the two.
   * 'ordered': once the host has seen the use complete. 'wait-before-oom': also before the pool reserves two steps
   * more than were ever in use, and when memory runs out; the stream is then made to wait for the use, which is better
   * than a wait of the host. A step is 56 MiB, or 1/128 of the memory that the pool may still take if that is less.
   * 'wait-before-grow': also before the pool takes any new memory; the host waits, too, before the pool exceeds those
   * two steps ('wait-before-oom')
   */
  readonly crossStreamReuse?: CrossStreamReuse
  /**
   * true: the pool's behaviour depends on the sequence of calls alone, not on the device's speed, except when streams
   * are closed. The pool does not ask the device how far work has come, and ignores the answers to `query` and
   * `finished` (false)
   */
  readonly deterministic?: boolean
  /**
   * `processDeferred` gives idle memory above this back to the device, out of the caches as well. So does each free of
   * a block that no stream caches, but it leaves the caches as they are (Infinity)
   */
  readonly releaseThresholdBytes?: ByteSize
  /**
   * in a shared pool: after it has answered, the pool server takes new memory ahead of demand. At least this much is
   * free then, and at most twice as much, as far as `maxPoolBytes`, `leaveFreeBytes` and `releaseThresholdBytes`
   * allow. `trimTo` gives the memory back; the next request that reaches the pool server takes it again. A pool of
   * one thread has no pool server and refuses the option: call `pool.reserve` (0)
   */
  readonly readyBytes?: ByteSize
  /**
   * 'virtual' takes memory in pieces and joins free ones for long blocks, by virtual memory management. 'segments'
   * takes plain driver allocations. 'managed' takes memory that moves between host and devices on use; a large
   * `maxPoolBytes` lets it exceed the device's memory ('auto')
   */
  readonly backing?: 'auto' | 'virtual' | 'segments' | 'managed'
  /** looks for mistakes in the use of memory, at the price of speed: `true`, or options; see DebugOptions (false) */
  readonly debug?: boolean | DebugOptions
  /** true: the pool can be used in several threads; see `pool.share()` (false) */
  readonly shared?: boolean
  /** memory that the pool takes when it is made, as by `pool.reserve` (0) */
  readonly initialBytes?: ByteSize
  /**
   * called when a call has made the pool take memory from the device, after that call has returned. A shared pool
   * calls it in the thread that made the pool, whichever thread's call it was, when that thread's event loop runs;
   * changes in quick succession may come as one (none)
   */
  readonly onGrow?: (change: ReservedChange) => void
  /** the same for memory that the pool has given back (none) */
  readonly onTrim?: (change: ReservedChange) => void
  /** whether a process warning tells of buffers that were held when a `using` block closed the pool (true) */
  readonly warnOnHeld?: boolean
}

/** Options that act once, when a pool is made, or beside it. */
export interface PoolExtras {
  readonly initialBytes: number
  readonly watch: ReservedWatch
  readonly warnOnHeld: boolean
}

/** `PoolOptions` with the defaults filled in and sizes in bytes. */
export interface PoolConfig {
  readonly limitBytes: number
  readonly leaveFreeBytes: number
  readonly minBlockBytes: number
  readonly powerOfTwo: boolean
  readonly streamOrdered: boolean
  readonly crossStreamReuse: CrossStreamReuse
  readonly deterministic: boolean
  readonly releaseThresholdBytes: number
  readonly readyBytes: number
  /**
   * a source of segments is for memory that is not the device's; a plan describes a source that another thread makes
   */
  readonly backing: 'auto' | 'virtual' | 'segments' | 'managed' | SegmentSource | SegmentPlan
  /** null: no debug mode */
  readonly debug: DebugConfig | null
}

/** The values of options that are left out. */
const DEFAULTS = {
  maxPoolBytes: 4 * GiB,
  leaveFreeBytes: 0,
  minBlockBytes: UNIT_BYTES,
  sizeClasses: 'sixteenPerOctave',
  streamOrdered: true,
  crossStreamReuse: 'wait-before-oom',
  deterministic: false,
  releaseThresholdBytes: Infinity,
  readyBytes: 0,
  backing: 'auto',
  debug: false,
  shared: false,
  initialBytes: 0,
  onGrow: undefined,
  onTrim: undefined,
  warnOnHeld: true,
} as const

/** The configuration of a pool with a source of memory of its own: of host memory, or of blocks of one size. */
export function sourcedConfig(limitBytes: number, backing: PoolConfig['backing'], streamOrdered: boolean): PoolConfig {
  const defaults = parsePoolOptions({ streamOrdered, crossStreamReuse: 'ordered' }, Infinity)
  return { ...defaults, limitBytes, backing }
}

/** Checks options against a device of `deviceBytes`; throws TypeError or RangeError naming the option. */
export function parsePoolOptions(given: PoolOptions, deviceBytes: number): PoolConfig {
  checkOptionNames('createPool', given, Object.keys(DEFAULTS))
  const sized = readSizes(given, 'leaveFreeBytes', 'minBlockBytes', 'releaseThresholdBytes', 'readyBytes')
  const options = withDefaults(sized, DEFAULTS)
  const { minBlockBytes } = options
  checkByteCount(minBlockBytes, 'minBlockBytes')
  if (minBlockBytes < UNIT_BYTES || minBlockBytes > 2 * MiB || !Number.isInteger(Math.log2(minBlockBytes))) {
    throw new RangeError(`minBlockBytes must be a power of two from ${UNIT_BYTES} to 2 MiB, not ${minBlockBytes}`)
  }
  const limitBytes = limitOf(options.maxPoolBytes, deviceBytes)
  if (limitBytes < minBlockBytes) {
    throw new RangeError(
      `maxPoolBytes (${formatBytes(limitBytes)}) is below minBlockBytes (${formatBytes(minBlockBytes)}); raise it`,
    )
  }
  choice(options.shared, 'shared', [true, false])
  return {
    limitBytes,
    leaveFreeBytes: bytesOrZero(options.leaveFreeBytes, 'leaveFreeBytes'),
    minBlockBytes,
    powerOfTwo: choice(options.sizeClasses, 'sizeClasses', ['sixteenPerOctave', 'powerOfTwo']) === 'powerOfTwo',
    streamOrdered: choice(options.streamOrdered, 'streamOrdered', [true, false]),
    crossStreamReuse: choice(options.crossStreamReuse, 'crossStreamReuse', CROSS_STREAM_REUSE),
    deterministic: choice(options.deterministic, 'deterministic', [true, false]),
    releaseThresholdBytes: bytesOrZero(options.releaseThresholdBytes, 'releaseThresholdBytes'),
    readyBytes: readyBytesOf(options, limitBytes),
    backing: choice(options.backing, 'backing', ['auto', 'virtual', 'segments', 'managed']),
    debug: parseDebugOptions(options.debug, Math.min(limitBytes, deviceBytes)),
  }
}

/** Checks the options that `parsePoolOptions` leaves; throws TypeError or RangeError naming the option. */
export function parsePoolExtras(options: PoolOptions, limitBytes: number): PoolExtras {
  const { initialBytes = 0 } = readSizes(options, 'initialBytes')
  checkByteCount(initialBytes, 'initialBytes', 0)
  if (initialBytes > limitBytes) {
    const excess = `initialBytes (${formatBytes(initialBytes)}) exceeds maxPoolBytes (${formatBytes(limitBytes)})`
    throw new RangeError(`${excess}; lower it, or raise maxPoolBytes`)
  }
  const { onGrow, onTrim } = options
  for (const [name, listener] of Object.entries({ onGrow, onTrim })) {
    if (listener === undefined) continue
    if (typeof listener !== 'function') throw new TypeError(`${name} must be a function, not ${describe(listener)}`)
  }
  const warnOnHeld = choice(options.warnOnHeld ?? true, 'warnOnHeld', [true, false])
  return { initialBytes, watch: new ReservedWatch(onGrow, onTrim), warnOnHeld }
}

/** Parses `maxPoolBytes` for a device of `totalBytes`; Infinity stays. Throws TypeError or RangeError. */
export function limitOf(value: number | string, totalBytes: number): number {
  if (value === Infinity) return Infinity
  if (typeof value !== 'string' || !value.includes('%')) {
    const bytes = bytesOfSize(value as ByteSize, 'maxPoolBytes')
    checkByteCount(bytes, 'maxPoolBytes')
    return bytes
  }
  const percent = /^\s*(\d+(?:\.\d+)?)\s*%\s*$/.exec(value)
  const share = percent === null ? NaN : Number(percent[1]) / 100
  if (!(share > 0 && share <= 1)) {
    throw new RangeError(`maxPoolBytes must be a size, Infinity or a share from '1%' to '100%', not '${value}'`)
  }
  return Math.floor(share * totalBytes)
}

function readyBytesOf(
  { readyBytes = 0, shared, deterministic }: { readyBytes?: number; shared?: boolean; deterministic?: boolean },
  limitBytes: number,
): number {
  if (readyBytes === 0) return 0
  checkByteCount(readyBytes, 'readyBytes')
  if (shared !== true) {
    throw new TypeError('readyBytes needs the pool server of a shared pool: pass shared: true, or call pool.reserve')
  }
  if (deterministic === true) {
    throw new TypeError('readyBytes and deterministic exclude each other: when memory is added depends on time')
  }
  if (readyBytes <= limitBytes) return readyBytes
  const excess = `readyBytes (${formatBytes(readyBytes)}) exceeds maxPoolBytes (${formatBytes(limitBytes)})`
  throw new RangeError(`${excess}; lower it, or raise maxPoolBytes`)
}

function bytesOrZero(value: number, option: string): number {
  if (value !== Infinity) checkByteCount(value, option, 0)
  return value
}

/** Throws TypeError unless `value` is one of the choices. */
export function choice<T>(value: T, option: string, choices: readonly T[]): T {
  if (!choices.includes(value)) {
    throw new TypeError(`${option} must be ${choices.map(describe).join(' or ')}, not ${describe(value)}`)
  }
  return value
}
