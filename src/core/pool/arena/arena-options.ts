// The options of arenas, and their defaults.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { formatBytes, GiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Context } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { DeviceArray } from '../array.js'
import type { DeviceBuffer } from '../buffer.js'
import { choice } from '../caching/options.js'

const MOST_BYTES = 511 * GiB // 2^31 units, less the largest number of the first unit

/** Options of `createArenaPool`. */
export interface ArenaOptions {
  /** memory that the arena takes from the device at once, rounded up to 256 */
  readonly bytes: ByteSize
  /** size that it may grow to without moving, which needs virtual memory (`bytes`) */
  readonly maxPoolBytes?: ByteSize
  /**
   * 'registrable' takes one segment that libraries such as NCCL can register, as the option of `createPool` does. It
   * cannot grow, and `bytes` is rounded up to whole granules, usually of 2 MiB ('auto')
   */
  readonly backing?: 'auto' | 'registrable'
}

/** Options of `createArenaPool` for an arena in memory of another pool. */
export interface RegionArenaOptions {
  /**
   * the buffer or array that the arena hands out, which stays the caller's: close the arena first, and then free it.
   * The last bytes are left over unless it is a multiple of 256 bytes
   */
  readonly region: DeviceBuffer | DeviceArray
}

/** Memory of a device that another library has allocated. */
export interface BorrowedRange {
  /** the address of its first byte, a multiple of 256 */
  readonly ptr: number
  /** its length in bytes, 256 at least; the last bytes are left over unless it is a multiple of 256 */
  readonly byteLength: number
}

/** Options of `createArenaPool` for an arena in memory of this device that another library has allocated. */
export interface BorrowedArenaOptions {
  /**
   * the memory that the arena hands out, such as that of `nvshmem_malloc` or `ncclMemAlloc`. It stays the caller's, and
   * must stay allocated until the arena is closed; no earlier work may use it. The arena never frees it
   */
  readonly over: BorrowedRange
}

/** All options by name, as `createArenaPool` looks at them. */
export type AnyArenaOptions = ArenaOptions | RegionArenaOptions | BorrowedArenaOptions

/** The options of an arena of its own memory, with the defaults filled in and sizes in bytes. */
export interface ArenaConfig {
  readonly bytes: number
  readonly maxPoolBytes: number
  readonly backing: 'auto' | 'registrable'
}

type Given = Partial<ArenaOptions & RegionArenaOptions & BorrowedArenaOptions>

/** Throws TypeError for unknown names, and for others beside a region or memory that is lent. */
export function checkArenaOptions(options: Given): void {
  checkOptionNames('createArenaPool', options, ['bytes', 'maxPoolBytes', 'backing', 'region', 'over'])
  const given = (['over', 'region', 'bytes', 'maxPoolBytes', 'backing'] as const).filter(
    name => options[name] !== undefined,
  )
  const [first, second] = given
  if (second === undefined || (first !== 'region' && first !== 'over')) return
  const fact = first === 'region' ? 'its whole region, in one thread' : 'all of that memory, and no other'
  throw new WrongTypeError(`${first} and ${second} exclude each other: the arena has ${fact}`)
}

/** Fills in the defaults; throws TypeError or RangeError naming the option. */
export function parseArenaOptions(context: Context, options: ArenaOptions): ArenaConfig {
  const bytes = bytesOf(options.bytes, 'bytes', context)
  const maxPoolBytes = bytesOf(options.maxPoolBytes ?? bytes, 'maxPoolBytes', context)
  if (maxPoolBytes < bytes) {
    throw new OutOfRangeError(
      `maxPoolBytes (${formatBytes(maxPoolBytes)}) is below bytes (${formatBytes(bytes)}); raise it`,
    )
  }
  checkMost(maxPoolBytes)
  const backing = choice(options.backing ?? 'auto', 'backing', ['auto', 'registrable'] as const)
  if (backing === 'registrable' && maxPoolBytes > bytes) {
    throw new WrongTypeError(
      "maxPoolBytes above bytes and backing 'registrable' exclude each other: what is registered is one mapping, which cannot grow; give bytes all that the arena will need",
    )
  }
  return { bytes: wholeUnits(bytes), maxPoolBytes: wholeUnits(maxPoolBytes), backing }
}

/** Throws RangeError for more bytes than an arena can have. */
export function checkMost(bytes: number): void {
  if (bytes <= MOST_BYTES) return
  throw new OutOfRangeError(`an arena has at most ${formatBytes(MOST_BYTES)}, not ${formatBytes(bytes)}`)
}

/** `bytes`, rounded up to a multiple of 256. */
function wholeUnits(bytes: number): number {
  return Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES
}
