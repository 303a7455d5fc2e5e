import { OutOfRangeError, WrongTypeError } from '../../core/base/argument-errors.js'
import { type FixedSize, limitOf } from '../../core/base/byte-size.js'
import { describe } from '../../core/base/bytes.js'
import { checkFlag, checkOptionNames } from '../../core/base/option-names.js'
import type { PoolOptions } from '../../core/pool/caching/options.js'
import type { Lag } from './modelled-work.js'
import { pytorchSettingsOf } from './pytorch/named-settings.js'
import { DEFAULT_POLICIES, type NamedPolicy, POLICIES, type Policy } from './replay-result.js'

const DEFAULT_LAG = 8

/** Options of `replay()`; every one may be left out. */
export interface ReplayOptions {
  /** the policies, in this order; default `DEFAULT_POLICIES` */
  readonly policies?: readonly Policy[]
  /** events of a stream after which its modelled work completes, Infinity for never; default 8, no effect on a GPU */
  readonly lag?: Lag
  /** the most bytes that each policy may reserve; default no limit */
  readonly capacityBytes?: FixedSize
  /**
   * options of the caching pool that the policy 'cuda-mempool' replays through, but for `debug`;
   * `capacityBytes` goes before its `maxPoolBytes`, whose default is no limit here
   */
  readonly pool?: PoolOptions
  /** whether to fill every block with a stamp, and compare it before the free; default false */
  readonly verify?: boolean
  /** whether to run passes that time each call; default false */
  readonly latency?: boolean
  /**
   * whether to search the least capacity at which each policy serves everything, once through the trace; default false.
   * A policy of the driver's own is left out on a GPU.
   */
  readonly leastCapacity?: boolean
  /**
   * whether to collect where each policy placed the blocks, and which memory existed when: `ReplayRun.placements`;
   * default false
   */
  readonly placements?: boolean
  /** how often each pass goes through the trace; default 1 */
  readonly repeat?: number
  /** called from time to time with the share that is done and the name of the current work */
  readonly onProgress?: (fraction: number, what: string) => void
}

/** All options, with an Infinity for no limit. */
export type Settings = Required<Omit<ReplayOptions, 'capacityBytes'>> & { readonly capacityBytes: number }

const NAMES = [
  'policies',
  'lag',
  'capacityBytes',
  'pool',
  'verify',
  'latency',
  'leastCapacity',
  'placements',
  'repeat',
  'onProgress',
] as const satisfies readonly (keyof ReplayOptions)[]

/** Throws RangeError or TypeError for a bad option. */
export function settingsOf(options: ReplayOptions): Settings {
  checkOptionNames('replay', options, NAMES)
  const { policies = DEFAULT_POLICIES, lag = DEFAULT_LAG, repeat = 1 } = options
  if (!Array.isArray(policies)) throw new WrongTypeError(`policies must be a list of names, not ${describe(policies)}`)
  for (const policy of policies) {
    if (pytorchSettingsOf(policy) !== null || POLICIES.includes(policy as NamedPolicy)) continue
    throw new OutOfRangeError(
      `policies: there is no '${policy}'; there are ${POLICIES.join(', ')}, and pytorch:SETTINGS`,
    )
  }
  if (lag !== Infinity && (!Number.isInteger(lag) || lag < 0 || lag > 1e6)) {
    throw new OutOfRangeError(`lag must be a whole number of events to 1,000,000, or Infinity, not ${describe(lag)}`)
  }
  const capacityBytes = limitOf(options.capacityBytes ?? Infinity, 'capacityBytes', null)
  if (!Number.isInteger(repeat) || repeat < 1) {
    throw new OutOfRangeError(`repeat must be a whole number of at least 1, not ${describe(repeat)}`)
  }
  const { pool = {} } = options
  if (typeof pool !== 'object' || pool === null)
    throw new WrongTypeError(`pool must be options of createPool, not ${describe(pool)}`)
  for (const name of ['shared', 'debug']) {
    if (name in pool) throw new WrongTypeError(`pool: a replay takes no '${name}'; leave it out`)
  }
  const { verify = false, latency = false, leastCapacity = false, placements = false } = options
  const { onProgress = () => {} } = options
  for (const [name, value] of Object.entries({ verify, latency, leastCapacity, placements })) {
    checkFlag(name, value)
  }
  if (typeof onProgress !== 'function')
    throw new WrongTypeError(`onProgress must be a function, not ${describe(onProgress)}`)
  return { policies, lag, capacityBytes, pool, repeat, verify, latency, leastCapacity, placements, onProgress }
}
