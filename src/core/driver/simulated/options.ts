// The options of a simulated driver, and their defaults. simulation.ts reads them.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { bytesOf, type FixedSize } from '../../base/byte-size.js'
import { describe, GiB, KiB, MiB } from '../../base/bytes.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import { passesDescriptors } from '../../libraries/system-calls.js'
import type { FaultRule } from './faults.js'

/** Options of a simulated driver. The default is one device with the memory of an H200. */
export interface SimulatedOptions {
  /** number of devices, 1 to 16; default 1 */
  readonly devices?: number
  /** memory of each device; default 140 GiB */
  readonly capacityBytes?: FixedSize
  /** granularity of virtual memory, a power of two from 64 KiB; default 2 MiB */
  readonly granularityBytes?: FixedSize
  /** false: the device attribute is 0, and the calls fail with CUDA_ERROR_NOT_SUPPORTED; default true */
  readonly virtualMemory?: boolean
  /** the same for cuMemAllocAsync and the pools; default true */
  readonly memoryPools?: boolean
  /** the same for pools in host memory, on one NUMA node or on any; default true */
  readonly hostPools?: boolean
  /** NUMA nodes of the host, 0 to 16; the devices are near the last one. 0: a host without nodes; default 1 */
  readonly numaNodes?: number
  /** false: the system refuses to bind host memory to a node, as in some containers; default true */
  readonly numaBinding?: boolean
  /** the same for managed memory, and for pools of managed memory; default true */
  readonly managedMemory?: boolean
  /** the same for advice, prefetch and discard of managed memory; default true */
  readonly concurrentManagedAccess?: boolean
  /** the same for sharing memory and pools as POSIX file descriptors; default true on Linux, and false elsewhere */
  readonly posixDescriptors?: boolean
  /**
   * whether memory can be shared as fabric handles between hosts. 'refused': the device attribute is 1, and cuMemCreate
   * answers CUDA_ERROR_NOT_PERMITTED, as where the process has no IMEX channel; default false
   */
  readonly fabricHandles?: boolean | 'refused'
  /** whether network cards can use memory of cuMemCreate; default true */
  readonly gpuDirectRdma?: boolean
  /** whether devices can be given access to memory of other devices; default true */
  readonly peerAccess?: boolean
  /** the seed of all random choices: the same seed and the same calls give the same run; default 1 */
  readonly seed?: number
  /**
   * 'seeded', the default: submitted work runs later, in a random order that its dependencies allow, some of it at
   * each driver call. 'eager': submitted work runs as soon as its dependencies allow; only held operations delay it.
   */
  readonly progress?: 'eager' | 'seeded'
  /**
   * path of a folder, such as /dev/shm/NAME, which makes the devices those of one machine: all processes that name it
   * share their memory. The folder must exist, and belong to this user alone. Linux only
   */
  readonly machine?: string
  /** calls that fail, as with `failCall` */
  readonly faults?: readonly FaultRule[]
}

/** The options with their defaults, and sizes in bytes. */
export interface CompleteOptions extends Omit<Required<SimulatedOptions>, 'machine'> {
  readonly machine: string | null
  readonly capacityBytes: number
  readonly granularityBytes: number
}

const DEFAULTS: CompleteOptions = {
  devices: 1,
  capacityBytes: 140 * GiB,
  granularityBytes: 2 * MiB,
  virtualMemory: true,
  memoryPools: true,
  hostPools: true,
  numaNodes: 1,
  numaBinding: true,
  managedMemory: true,
  concurrentManagedAccess: true,
  posixDescriptors: true,
  fabricHandles: false,
  gpuDirectRdma: true,
  peerAccess: true,
  seed: 1,
  progress: 'seeded',
  machine: null,
  faults: [],
}

const SWITCHES = [
  'virtualMemory',
  'memoryPools',
  'hostPools',
  'numaBinding',
  'managedMemory',
  'concurrentManagedAccess',
  'posixDescriptors',
  'gpuDirectRdma',
  'peerAccess',
] as const

/** The name of an option that removes a feature. */
export type Switch = (typeof SWITCHES)[number]

/** The options with their defaults; throws TypeError or RangeError that names a wrong option. */
export function completeOptions(options: SimulatedOptions): CompleteOptions {
  checkOptionNames('a simulated driver', options, Object.keys(DEFAULTS))
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
  const wanted = { ...DEFAULTS, ...given }
  const capacityBytes = bytesOf(wanted.capacityBytes, 'capacityBytes', null)
  const granularityBytes = bytesOf(wanted.granularityBytes, 'granularityBytes', null)
  const complete: CompleteOptions = { ...wanted, capacityBytes, granularityBytes }
  const { devices, numaNodes, seed, progress, machine } = complete
  if (!Number.isInteger(devices) || devices < 1 || devices > 16) {
    throw new OutOfRangeError(`devices must be a whole number from 1 to 16, not ${describe(devices)}`)
  }
  if (!Number.isInteger(numaNodes) || numaNodes < 0 || numaNodes > 16) {
    throw new OutOfRangeError(`numaNodes must be a whole number from 0 to 16, not ${describe(numaNodes)}`)
  }
  if (granularityBytes < 64 * KiB || !Number.isInteger(Math.log2(granularityBytes))) {
    throw new OutOfRangeError(`granularityBytes must be a power of two from 65536, not ${granularityBytes}`)
  }
  for (const name of SWITCHES) checkFlag(name, complete[name])
  if (complete.fabricHandles !== 'refused') checkFlag('fabricHandles', complete.fabricHandles)
  if (!Number.isSafeInteger(seed)) throw new OutOfRangeError(`seed must be a whole number, not ${describe(seed)}`)
  if (progress !== 'eager' && progress !== 'seeded') {
    throw new OutOfRangeError(`progress must be 'eager' or 'seeded', not ${describe(progress)}`)
  }
  if (machine !== null && typeof machine !== 'string') {
    throw new WrongTypeError(`machine must be the path of a folder, not ${describe(machine)}`)
  }
  if (!Array.isArray(complete.faults))
    throw new WrongTypeError(`faults must be an array, not ${describe(complete.faults)}`)
  return { ...complete, posixDescriptors: complete.posixDescriptors && passesDescriptors() }
}
