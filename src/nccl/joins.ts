// Joins: ranks of this thread come to a world, and NCCL connects them with the others. A rank that does not arrive is
// aborted.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { Device } from '../core/device/device.js'
import { relaxed } from '../core/order/relaxed.js'
import type { Place } from './communicator-options.js'
import { Communicators, ranksHere } from './communicators.js'
import { NCCL_RESULT, UNIQUE_ID_BYTES } from './constants.js'
import { inOneGroup } from './group.js'
import { errorOf, JoinedRank, type Wait } from './joined-rank.js'
import type { Nccl } from './nccl.js'
import { ncclFor } from './nccl-for.js'

/** A rank that has joined. */
export interface Arrival {
  readonly device: Device
  readonly joined: JoinedRank
  /** the communicators of the device */
  readonly part: Communicators
}

/**
 * 128 bytes that name a new world of ranks, for `Communicator.join` on each of them. One rank makes it, and sends it to
 * the others over any channel of the program. It holds an address of this process, which must live until all ranks have
 * joined, and it is a secret. Throws NoLibraryError without NCCL 2.19 or later, and TypeError for anything but a
 * device.
 */
export function uniqueId(device: Device): Uint8Array {
  const nccl = openNccl('uniqueId', device)
  const id = new Uint8Array(UNIQUE_ID_BYTES)
  const result = nccl.ncclGetUniqueId(id)
  if (result === NCCL_RESULT.ncclSuccess) return id
  throw errorOf(nccl, 0, 'uniqueId', result, 'NCCL needs a network interface (NCCL_SOCKET_IFNAME names one)')
}

/** Joins as the rank of another process's or thread's world. */
export async function joinAlone(call: string, device: Device, place: Place, wait: Wait): Promise<Arrival> {
  const { id, rank, ranks } = place
  const joined = new JoinedRank(openNccl(call, device), device.context, worldOf(id), rank, ranks)
  if (ranksHere(joined.world).includes(rank)) {
    throw new PoolError(`${call}: rank ${rank} of this id is in this thread already; each rank has another number`)
  }
  return await arrive(call, device, joined, begin(joined, id), wait)
}

/** Joins as all ranks of a new world. Those that arrive are aborted if another rank does not. */
export async function joinTogether(call: string, devices: readonly Device[], wait: Wait): Promise<Arrival[]> {
  checkDevices(call, devices)
  const id = uniqueId(devices[0])
  const ranks = devices.map(
    (device, rank) => new JoinedRank(openNccl(call, device), device.context, worldOf(id), rank, devices.length),
  )
  const [{ nccl }] = ranks
  const { results, ended } = abortingIfThrown(ranks, () => inOneGroup(nccl, ranks, joined => begin(joined, id)))
  const arrivals = ranks.map(async (joined, rank) => {
    const result = [results[rank], ended].find(each => each !== NCCL_RESULT.ncclSuccess) ?? joined.ask()
    return await arrive(call, devices[rank], joined, result, wait)
  })
  const settled = await Promise.allSettled(arrivals)
  const arrived = settled.flatMap(each => (each.status === 'fulfilled' ? [each.value.joined] : []))
  return abortingIfThrown(arrived, () =>
    settled.map(each => {
      if (each.status === 'rejected') throw each.reason
      return each.value
    }),
  )
}

/** Begins the join of a rank; returns an ncclResult_t. */
function begin({ nccl, context, cell, rank, ranks }: JoinedRank, id: Uint8Array): number {
  return relaxed(context.activate(), () => nccl.ncclCommInitRankConfig(cell, ranks, id, rank))
}

/** Waits until all ranks have come. */
async function arrive(call: string, device: Device, joined: JoinedRank, result: number, wait: Wait): Promise<Arrival> {
  try {
    await joined.settle(call, result, wait)
    joined.hasArrived = true
    return { device, joined, part: device.partOf(call, Communicators) } // which refuses a device that was closed
  } catch (error) {
    abort(joined)
    throw error
  }
}

function abortingIfThrown<T>(ranks: readonly JoinedRank[], work: () => T): T {
  try {
    return work()
  } catch (error) {
    for (const joined of ranks) abort(joined)
    throw error
  }
}

function abort({ nccl, handle }: JoinedRank): void {
  if (handle !== 0) nccl.ncclCommAbort(handle)
}

function worldOf(id: Uint8Array): string {
  return Buffer.from(id).toString('hex')
}

/** The NCCL of an open device. */
function openNccl(call: string, device: Device): Nccl {
  if (!(device instanceof Device)) {
    throw new WrongTypeError(`${call}: device must be a Device, such as openDevice(0), not ${describe(device)}`)
  }
  device.partOf(call, Communicators) // which refuses a closed device
  return ncclFor(device.context.activate())
}

function checkDevices(call: string, devices: readonly Device[]): void {
  if (!Array.isArray(devices)) {
    throw new WrongTypeError(`${call}: devices must be an array, such as openDevices(), not ${describe(devices)}`)
  }
  if (devices.length === 0) throw new OutOfRangeError(`${call}: devices must have at least one device`)
  const libraries = devices.map(device => openNccl(call, device))
  const stranger = libraries.findIndex(nccl => nccl !== libraries[0])
  if (stranger !== -1) {
    throw new PoolError(
      `${call}: devices 0 and ${stranger} of the list are of two drivers, whose ranks cannot meet; open all by one openDevices()`,
      'ERR_OTHER_DEVICE',
    )
  }
  for (const [index, device] of devices.entries()) {
    const other = devices.findIndex(each => each.context.sharesDevice(device.context))
    if (other === index) continue
    throw new OutOfRangeError(`${call}: devices ${other} and ${index} of the list are the same; each rank has its own`)
  }
}
