import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { describe, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkOptionNames, withDefaults } from '../../base/option-names.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { SegmentPlan } from '../backing/segment-plan.js'
import type { SegmentSource } from '../backing/segment-source.js'
import { type ReservedChange, ReservedWatch } from '../reserved-watch.js'
import { type DebugConfig, type DebugOptions, parseDebugOptions } from './debug-options.js'

const CROSS_STREAM_REUSE = ['ordered', 'wait-before-grow', 'wait-before-oom'] as const
type CrossStreamReuse = (typeof CROSS_STREAM_REUSE)[number]

/**
 * How a caching pool behaves; every option may be left out. Sizes are bytes, text such as '4GiB', or a share of the
 * device's memory such as '80%'.
 */
export interface PoolOptions {
  /**
   * the most that the pool may reserve, or `Infinity`. The default is 4 GiB, however large the device is: a server that
   * has the device for itself writes `maxPoolBytes: '80%'` (4 GiB, or `device.memoryLimit` if that is less)
   */
  readonly maxPoolBytes?: ByteSize
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
   * 'virtual' takes memory in pieces and joins free ones for long blocks, by virtual memory management. 'segments'
   * takes plain driver allocations. 'managed' takes memory that moves between host and devices on use; a large
   * `maxPoolBytes` lets it exceed the device's memory. 'registrable' takes segments that libraries such as NCCL can
   * register: each is mapped once and whole, and open to every device that can reach it ('auto')
   */
  readonly backing?: 'auto' | 'virtual' | 'segments' | 'managed' | 'registrable'
  /** looks for mistakes in the use of memory, at the price of speed: `true`, or options; see DebugOptions (false) */
  readonly debug?: boolean | DebugOptions
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

/** How a caching pool behaves that threads share; every option may be left out. */
export interface SharedPoolOptions extends Omit<PoolOptions, 'debug'> {
  /**
   * after it has answered, the pool server takes new memory ahead of demand. At least this much is free then, and at
   * most twice as much, as far as `maxPoolBytes`, `leaveFreeBytes` and `releaseThresholdBytes` allow. `trimTo` gives
   * the memory back; the next request that reaches the pool server takes it again (0)
   */
  readonly readyBytes?: ByteSize
}

/** Options that act once, when a pool is made, or beside it. */
export interface PoolExtras {
  readonly initialBytes: number
  readonly watch: ReservedWatch
  readonly warnOnHeld: boolean
}

/** `PoolOptions` with the defaults filled in and sizes in bytes. */
export interface PoolConfig {
  readonly maxPoolBytes: number
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
  readonly backing: Required<PoolOptions>['backing'] | SegmentSource | SegmentPlan
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
  backing: 'auto',
  debug: false,
  initialBytes: 0,
  onGrow: undefined,
  onTrim: undefined,
  warnOnHeld: true,
} as const

/** The configuration of a pool with a source of memory of its own: of host memory, or of blocks of one size. */
export function sourcedConfig(
  maxPoolBytes: number,
  backing: PoolConfig['backing'],
  streamOrdered: boolean,
): PoolConfig {
  const defaults = parsePoolOptions({ streamOrdered, crossStreamReuse: 'ordered' }, Infinity)
  return { ...defaults, maxPoolBytes, backing }
}

/**
 * Checks the options of a pool. `deviceBytes` is the device's memory, and `mostBytes` what this process may take of it:
 * it bounds the default limit. Throws TypeError or RangeError, naming the option, or `call` for an unknown one.
 */
export function parsePoolOptions(
  given: PoolOptions,
  deviceBytes: number,
  call = 'createPool',
  mostBytes = Infinity,
): PoolConfig {
  checkOptionNames(call, given, Object.keys(DEFAULTS))
  const options = withDefaults(given, { ...DEFAULTS, maxPoolBytes: Math.min(DEFAULTS.maxPoolBytes, mostBytes) })
  const size = (name: keyof typeof sizes) => limitOf(options[name], name, { totalBytes: deviceBytes }, sizes[name])
  const sizes = { maxPoolBytes: 1, leaveFreeBytes: 0, minBlockBytes: 1, releaseThresholdBytes: 0 } as const
  const [maxPoolBytes, minBlockBytes] = [size('maxPoolBytes'), size('minBlockBytes')]
  if (minBlockBytes < UNIT_BYTES || minBlockBytes > 2 * MiB || !Number.isInteger(Math.log2(minBlockBytes))) {
    throw new OutOfRangeError(`minBlockBytes must be a power of two from ${UNIT_BYTES} to 2 MiB, not ${minBlockBytes}`)
  }
  if (maxPoolBytes < minBlockBytes) {
    throw new OutOfRangeError(
      `maxPoolBytes (${formatBytes(maxPoolBytes)}) is below minBlockBytes (${formatBytes(minBlockBytes)}); raise it`,
    )
  }
  return {
    maxPoolBytes,
    leaveFreeBytes: size('leaveFreeBytes'),
    minBlockBytes,
    powerOfTwo: choice(options.sizeClasses, 'sizeClasses', ['sixteenPerOctave', 'powerOfTwo']) === 'powerOfTwo',
    streamOrdered: choice(options.streamOrdered, 'streamOrdered', [true, false]),
    crossStreamReuse: choice(options.crossStreamReuse, 'crossStreamReuse', CROSS_STREAM_REUSE),
    deterministic: choice(options.deterministic, 'deterministic', [true, false]),
    releaseThresholdBytes: size('releaseThresholdBytes'),
    readyBytes: 0,
    backing: choice(options.backing, 'backing', ['auto', 'virtual', 'segments', 'managed', 'registrable']),
    debug: parseDebugOptions(options.debug, Math.min(maxPoolBytes, deviceBytes), deviceBytes),
  }
}

/** As `parsePoolOptions`, for a pool that threads share. */
export function parseSharedPoolOptions(
  given: SharedPoolOptions,
  deviceBytes: number,
  mostBytes = Infinity,
): PoolConfig {
  checkOptionNames('createSharedPool', given, [...Object.keys(DEFAULTS), 'readyBytes'])
  const { readyBytes = 0, ...options } = given
  const config = parsePoolOptions(options, deviceBytes, 'createSharedPool', mostBytes)
  if (config.debug !== null) {
    throw new WrongTypeError('debug needs a pool of one thread: look for mistakes with createPool({ debug: true })')
  }
  const ahead = bytesOf(readyBytes, 'readyBytes', { totalBytes: deviceBytes }, 0)
  if (ahead > 0 && config.deterministic) {
    throw new WrongTypeError('readyBytes and deterministic exclude each other: when memory is added depends on time')
  }
  checkBelowLimit('readyBytes', ahead, config.maxPoolBytes)
  return { ...config, readyBytes: ahead }
}

/** Checks the options that `parsePoolOptions` leaves; throws TypeError or RangeError naming the option. */
export function parsePoolExtras(options: PoolOptions, maxPoolBytes: number, deviceBytes: number): PoolExtras {
  const initialBytes = bytesOf(options.initialBytes ?? 0, 'initialBytes', { totalBytes: deviceBytes }, 0)
  checkBelowLimit('initialBytes', initialBytes, maxPoolBytes)
  const { onGrow, onTrim } = options
  for (const [name, listener] of Object.entries({ onGrow, onTrim })) {
    if (listener === undefined) continue
    if (typeof listener !== 'function')
      throw new WrongTypeError(`${name} must be a function, not ${describe(listener)}`)
  }
  const warnOnHeld = choice(options.warnOnHeld ?? true, 'warnOnHeld', [true, false])
  return { initialBytes, watch: new ReservedWatch(onGrow, onTrim), warnOnHeld }
}

function checkBelowLimit(option: string, bytes: number, maxPoolBytes: number): void {
  if (bytes <= maxPoolBytes) return
  const excess = `${option} (${formatBytes(bytes)}) exceeds maxPoolBytes (${formatBytes(maxPoolBytes)})`
  throw new OutOfRangeError(`${excess}; lower it, or raise maxPoolBytes`)
}

/** Throws TypeError unless `value` is one of the choices. */
export function choice<T>(value: T, option: string, choices: readonly T[]): T {
  if (!choices.includes(value)) {
    throw new WrongTypeError(`${option} must be ${choices.map(describe).join(' or ')}, not ${describe(value)}`)
  }
  return value
}
