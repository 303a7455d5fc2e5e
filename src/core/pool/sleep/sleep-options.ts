import { WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import type { Context } from '../../driver/context.js'
import type { HostMemory } from './host-pieces.js'

/** How far the copies of a sleep or a wake have come. */
export interface SleepProgress {
  /** bytes that have arrived */
  readonly copiedBytes: number
  /** bytes that are copied in all */
  readonly totalBytes: number
}

/** Options of `sleep`; defaults are in parentheses. */
export interface SleepOptions {
  /** 'host': the contents are copied to pinned host memory; 'nothing': they are lost ('host') */
  readonly keep?: 'host' | 'nothing'
  /**
   * a host pool of the same device, which the copies take their memory from (memory that is pinned now, which takes
   * most of the time)
   */
  readonly into?: HostMemory
  /**
   * true: no buffer was written since the last `wake({ keepCopy: true })`. Buffers that have a copy from then are not
   * copied again (false)
   */
  readonly unchanged?: boolean
  /** called as copies arrive, and once with all bytes; an error that it throws ends the sleep, and nothing changes */
  readonly onProgress?: (progress: SleepProgress) => void
}

/** Options of `wake`; defaults are in parentheses. */
export interface WakeOptions {
  /** true: the host keeps the copies, for `sleep({ unchanged: true })` (false) */
  readonly keepCopy?: boolean
  /**
   * 'host': the promise waits for the contents. 'streams': it resolves once all copies are submitted, and all streams
   * of the device wait, also those made later; a captured one waits when its capture ends. Where another device has
   * access, or another thread captures a stream or has its own default stream, this is the same as 'host' ('host')
   */
  readonly wait?: 'host' | 'streams'
  /**
   * called as copies arrive, and once with all bytes; an error that it throws ends the wake, and all sleeps on. After a
   * wake that streams wait for has resolved, the error is an uncaught exception, and the copies go on
   */
  readonly onProgress?: (progress: SleepProgress) => void
}

/** Options with their defaults, of which each getter was asked once. Those without a default may be undefined. */
type Read<Options, Optional extends keyof Options> = Required<Omit<Options, Optional>> & {
  readonly [Name in Optional]: Options[Name] | undefined
}

/** The options that were given. Throws TypeError or PoolError, naming the option. */
export function readSleepOptions(options: SleepOptions, context: Context): Read<SleepOptions, 'into' | 'onProgress'> {
  checkOptionNames('sleep', options, ['keep', 'into', 'unchanged', 'onProgress'])
  const { keep = 'host', into, unchanged = false, onProgress } = options
  if (keep !== 'host' && keep !== 'nothing') {
    throw new WrongTypeError(`sleep: keep must be 'host' or 'nothing', not ${describe(keep)}`)
  }
  checkFlag('sleep: unchanged', unchanged)
  checkCallback('sleep: onProgress', onProgress)
  if (keep === 'nothing' && (into !== undefined || unchanged)) {
    throw new WrongTypeError(
      `sleep: keep 'nothing' makes no copies; leave out ${into === undefined ? 'unchanged' : 'into'}`,
    )
  }
  if (into !== undefined) checkHostMemory('sleep: into', into, context)
  return { keep, into, unchanged, onProgress }
}

/** The options that were given. Throws TypeError, naming the option. */
export function readWakeOptions(options: WakeOptions): Read<WakeOptions, 'onProgress'> {
  checkOptionNames('wake', options, ['keepCopy', 'wait', 'onProgress'])
  const { keepCopy = false, wait = 'host', onProgress } = options
  checkFlag('wake: keepCopy', keepCopy)
  checkCallback('wake: onProgress', onProgress)
  if (wait !== 'host' && wait !== 'streams') {
    throw new WrongTypeError(`wake: wait must be 'host' or 'streams', not ${describe(wait)}`)
  }
  return { keepCopy, wait, onProgress }
}

/** Throws TypeError or PoolError, in the name of `option`, unless `into` is an open host pool of the device. */
export function checkHostMemory(option: string, into: HostMemory, context: Context): void {
  const [call] = option.split(':')
  // Host pools alone find pinned memory by its address.
  const { memory } = (into ?? {}) as { readonly memory?: { readonly bytesAt?: unknown } }
  if (typeof memory?.bytesAt !== 'function') {
    throw new WrongTypeError(`${option} must be a host pool, of device.createHostPool, not ${describe(into)}`)
  }
  if (into.closed) throw new PoolError(`${call}: the host pool is closed; create another`, 'ERR_POOL_CLOSED')
  if (into.context !== context) {
    throw new PoolError(`${call}: the host pool belongs to another device; use one of this device`, 'ERR_OTHER_DEVICE')
  }
}

function checkCallback(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== 'function') {
    throw new WrongTypeError(`${name} must be a function, not ${describe(value)}`)
  }
}
