import { checkByteCount, describe, GiB, KiB, MiB } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { FaultRule } from './faults.js'

/** What kind of GPU is simulated; the default is one device the size of an H200. */
export interface SimulatedOptions {
  /** number of devices, 1 to 16; default 1 */
  readonly devices?: number
  /** memory of each device; default 140 GiB */
  readonly capacityBytes?: number
  /** granularity of virtual memory, a power of two from 64 KiB; default 2 MiB */
  readonly granularityBytes?: number
  /** false: the device attribute says 0 and the calls answer CUDA_ERROR_NOT_SUPPORTED; default true */
  readonly virtualMemory?: boolean
  /** the same for cuMemAllocAsync and the pools; default true */
  readonly memoryPools?: boolean
  /** the same for pools in host memory, of a NUMA node or of any; default true */
  readonly hostPools?: boolean
  /** the same for managed memory, and for pools of it; default true */
  readonly managedMemory?: boolean
  /** the same for sharing memory and pools as POSIX file descriptors; default true */
  readonly posixDescriptors?: boolean
  /** whether the devices can be given access to each other's memory; default true */
  readonly peerAccess?: boolean
  /** what all that is random depends on: the same seed and the same calls give the same run; default 1 */
  readonly seed?: number
  /**
   * 'seeded', the default: submitted work runs later, in a random order that its dependencies allow, some at each driver
   * call. 'eager': it runs as soon as its dependencies allow; only held operations keep it waiting.
   */
  readonly progress?: 'eager' | 'seeded'
  /** calls that fail, as by `failCall` */
  readonly faults?: readonly FaultRule[]
}

const DEFAULTS: Required<SimulatedOptions> = {
  devices: 1,
  capacityBytes: 140 * GiB,
  granularityBytes: 2 * MiB,
  virtualMemory: true,
  memoryPools: true,
  hostPools: true,
  managedMemory: true,
  posixDescriptors: true,
  peerAccess: true,
  seed: 1,
  progress: 'seeded',
  faults: [],
}

const SWITCHES = [
  'virtualMemory',
  'memoryPools',
  'hostPools',
  'managedMemory',
  'posixDescriptors',
  'peerAccess',
] as const

/** The name of an option that takes a feature away. */
export type Switch = (typeof SWITCHES)[number]

/** The options with their defaults; a TypeError or RangeError names the one that is wrong. */
export function completeOptions(options: SimulatedOptions): Required<SimulatedOptions> {
  checkOptionNames('a simulated driver', options, Object.keys(DEFAULTS))
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
  const complete: Required<SimulatedOptions> = { ...DEFAULTS, ...given }
  const { devices, granularityBytes, seed, progress } = complete
  if (!Number.isInteger(devices) || devices < 1 || devices > 16) {
    throw new RangeError(`devices must be a whole number from 1 to 16, not ${describe(devices)}`)
  }
  checkByteCount(complete.capacityBytes, 'capacityBytes')
  checkByteCount(granularityBytes, 'granularityBytes')
  if (granularityBytes < 64 * KiB || !Number.isInteger(Math.log2(granularityBytes))) {
    throw new RangeError(`granularityBytes must be a power of two from 65536, not ${granularityBytes}`)
  }
  for (const name of SWITCHES) {
    if (typeof complete[name] !== 'boolean') {
      throw new TypeError(`${name} must be true or false, not ${describe(complete[name])}`)
    }
  }
  if (!Number.isSafeInteger(seed)) throw new RangeError(`seed must be a whole number, not ${describe(seed)}`)
  if (progress !== 'eager' && progress !== 'seeded') {
    throw new RangeError(`progress must be 'eager' or 'seeded', not ${describe(progress)}`)
  }
  if (!Array.isArray(complete.faults)) throw new TypeError(`faults must be an array, not ${describe(complete.faults)}`)
  return complete
}
