import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { describe, formatBytes, GiB, MiB } from '../../base/bytes.js'
import { checkFlag, checkOptionNames, withDefaults } from '../../base/option-names.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'

/** How a caching pool in debug mode looks for mistakes; every option may be left out. */
export interface DebugOptions {
  /** the pool remembers the call sites of every n-th allocation, some 2 µs each; 0: of none (1) */
  readonly sites?: number
  /** calls of each call site, from the innermost one of the program on, 1 to 16 (1) */
  readonly frames?: number
  /** guard bytes before and behind each buffer, a multiple of 256 (256) */
  readonly redzoneBytes?: ByteSize
  /** freed memory kept from use to detect late writes (a quarter of the pool's limit, at most 1 GiB) */
  readonly quarantineBytes?: ByteSize
  /** false: other libraries order the streams, too, so uses on several streams are not checked (true) */
  readonly order?: boolean
  /**
   * true: a process warning for each buffer that was lost without a free, and for buffers still held at `close`
   * (false)
   */
  readonly warnOnLeak?: boolean
}

/** `DebugOptions` with the defaults filled in. */
export interface DebugConfig extends Required<DebugOptions> {
  readonly redzoneBytes: number
  readonly quarantineBytes: number
}

const DEFAULTS: DebugConfig = {
  sites: 1,
  frames: 1,
  redzoneBytes: UNIT_BYTES,
  quarantineBytes: 1 * GiB,
  order: true,
  warnOnLeak: false,
}
const MOST_REDZONE_BYTES = 2 * MiB
const MOST_FRAMES = 16

/** Null for `false`; throws TypeError or RangeError naming the option. */
export function parseDebugOptions(
  options: boolean | DebugOptions,
  reservableBytes: number,
  deviceBytes: number,
): DebugConfig | null {
  if (options === false) return null
  if (options !== true && (typeof options !== 'object' || options === null)) {
    throw new WrongTypeError(`debug must be true, false or an object of options, not ${describe(options)}`)
  }
  const named: DebugOptions = options === true ? {} : options
  checkOptionNames('debug', named, Object.keys(DEFAULTS))
  const mostBytes = Math.min(DEFAULTS.quarantineBytes, Math.floor(reservableBytes / 4))
  const config = withDefaults(named, { ...DEFAULTS, quarantineBytes: mostBytes })
  if (!Number.isSafeInteger(config.sites) || config.sites < 0) {
    throw new OutOfRangeError(`debug: sites must be a whole number from 0, not ${describe(config.sites)}`)
  }
  if (!Number.isInteger(config.frames) || config.frames < 1 || config.frames > MOST_FRAMES) {
    throw new OutOfRangeError(
      `debug: frames must be a whole number from 1 to ${MOST_FRAMES}, not ${describe(config.frames)}`,
    )
  }
  const redzoneBytes = bytesOf(config.redzoneBytes, 'debug: redzoneBytes', null, 0)
  if (redzoneBytes % UNIT_BYTES !== 0 || redzoneBytes > MOST_REDZONE_BYTES) {
    throw new OutOfRangeError(
      `debug: redzoneBytes must be a multiple of ${UNIT_BYTES} of at most ${formatBytes(MOST_REDZONE_BYTES)}, not ${redzoneBytes}`,
    )
  }
  const whole = { totalBytes: deviceBytes }
  const quarantineBytes = limitOf(config.quarantineBytes, 'debug: quarantineBytes', whole, 0)
  for (const name of ['order', 'warnOnLeak'] as const) checkFlag(`debug: ${name}`, config[name])
  return { ...config, redzoneBytes, quarantineBytes }
}
