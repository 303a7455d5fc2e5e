// The cost model: microseconds that each driver function takes of the calling thread, measured on an idle H200 with
// driver 580 (CUDA 13.0). call-interceptor.ts adds the costs up. A cost that depends on size is a list of [bytes,
// microseconds]. It is linear between the points, flat below the first, and continues with the last slope above the
// last.
//
// Two pairs were measured together and are split here. cuMemAlloc and cuMemFree of 1 MiB take 51 us; an allocation of
// 1 GiB alone takes 80 us, and frees are assumed to be independent of size. cuMemAllocAsync and cuMemFreeAsync take
// 0.454 us. Functions without a measured figure cost NOMINAL_US: queries of attributes, setters, and submitting
// copies and fills. Growth and release of the driver's own pools cost as much as virtual memory of the same size.
// Managed memory costs as much as cuMemAlloc, access to a pool as much as access to one mapping, and an exported or
// imported handle as much as cuMemCreate of 2 MiB. Work of the GPU, and waits of the host for it, are not modelled.

import { GiB, MiB } from '../../base/bytes.js'
import type { CallName } from '../driver.js'

/** Microseconds of one call, fixed or by size. */
type Cost = number | readonly (readonly [bytes: number, microseconds: number])[]

const NOMINAL_US = 0.1
/** creating, exporting or importing a handle */
const HANDLE_US = 5.4
const ALLOCATION: Cost = [
  [1 * MiB, 25],
  [1 * GiB, 80],
]

/** The extra cost of cuMemSetAccess when a device first gets access to memory of another device. */
export const FIRST_PEER_ACCESS_US = 1000

/** The cost of each function that does not cost NOMINAL_US. */
const COST_US: Readonly<Partial<Record<CallName, Cost>>> = {
  cuMemAlloc: ALLOCATION,
  cuMemFree: 26,
  cuMemAllocManaged: ALLOCATION,
  cuStreamQuery: 0.135,
  cuStreamWaitEvent: 0.1,
  cuEventRecord: 0.123,
  cuEventQuery: 0.107,
  cuMemPoolSetAccess: 15.8,
  cuMemPoolExportToShareableHandle: HANDLE_US,
  cuMemPoolImportFromShareableHandle: HANDLE_US,
  cuMemAllocFromPoolAsync: 0.227,
  cuMemAllocAsync: 0.227,
  cuMemFreeAsync: 0.227,
  cuMemAddressReserve: 0.3,
  cuMemCreate: [
    [2 * MiB, HANDLE_US],
    [20 * MiB, 8.3],
    [128 * MiB, 6.3],
    [1 * GiB, 30],
  ],
  cuMemRelease: [
    [2 * MiB, 7.1],
    [20 * MiB, 11],
    [128 * MiB, 32],
    [1 * GiB, 212],
  ],
  cuMemMap: [
    [2 * MiB, 0.5],
    [20 * MiB, 0.4],
    [128 * MiB, 0.5],
    [1 * GiB, 0.6],
  ],
  cuMemUnmap: [
    [2 * MiB, 11.4],
    [20 * MiB, 12],
    [128 * MiB, 19],
    [1 * GiB, 27],
  ],
  cuMemSetAccess: [
    [2 * MiB, 15.8],
    [20 * MiB, 16],
    [128 * MiB, 29],
    [1 * GiB, 52],
  ],
  cuMemExportToShareableHandle: HANDLE_US,
  cuMemImportFromShareableHandle: HANDLE_US,
  cuLaunchKernel: 2.5,
  cuLaunchCooperativeKernel: 2.5,
  cuGraphLaunch: 2.5,
}

/** The least cost of each mapping in a call on several mappings; measured with 512 mappings of 2 MiB. */
const LEAST_US_OF_MANY = { cuMemSetAccess: 20.7, cuMemUnmap: 13.2 } as const

/** The part of a cost that is known when the call begins, in microseconds; the rest depends on sizes. */
export function fixedCostUs(call: CallName): number {
  return typeof COST_US[call] === 'object' ? 0 : costUs(call, 0)
}

/** The cost of one call for `bytes`, in microseconds. */
export function costUs(call: CallName, bytes: number): number {
  const cost = COST_US[call] ?? NOMINAL_US
  if (typeof cost === 'number') return cost
  if (bytes <= cost[0][0]) return cost[0][1]
  let i = 1
  while (i < cost.length - 1 && bytes > cost[i][0]) i++
  const [lowBytes, lowUs] = cost[i - 1]
  const [highBytes, highUs] = cost[i]
  return lowUs + ((highUs - lowUs) * (bytes - lowBytes)) / (highBytes - lowBytes)
}

/** The cost for one mapping of `bytes` in a call on a range with `count` mappings, in microseconds. */
export function costOfMappingUs(call: 'cuMemSetAccess' | 'cuMemUnmap', bytes: number, count: number): number {
  const alone = costUs(call, bytes)
  return count === 1 ? alone : Math.max(alone, LEAST_US_OF_MANY[call])
}
