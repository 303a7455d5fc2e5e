// The sentences of refused requests: each names the region and the remedy.

import { formatBytes } from '../../base/bytes.js'
import { KeepError } from '../../base/errors.js'
import { listed } from '../../base/readable.js'
import { shownName } from '../../base/shown-text.js'
import type { KeptDevice, RegionInfo } from '../region.js'
import { forceCommand, pruneCommand } from './commands.js'
import { bytesIn, type Filled, type Generation, type Wanted } from './generation.js'

/** For a reader: nothing is ready that it wants, and no writer is about to make it ready. */
export function notThere({ name, version }: Wanted, ready: Generation | null, mark: RegionInfo | undefined): KeepError {
  if (ready !== null) {
    const text = `version ${shownName(version!)} of ${shownName(name)} is not kept, but ${shownName(ready.version)} is`
    return new KeepError(`${text}; fill it with region(), or attach without a version`, 'absent')
  }
  if (mark === undefined) return new KeepError(`${shownName(name)} is not kept; fill it with region()`, 'absent')
  const text = `${shownName(name)} is unfinished: process ${mark.writer} began it, and did not commit it`
  return new KeepError(`${text}; fill it with region()`, 'unfinished')
}

export function otherDevice({ name, device }: Generation, wanted: KeptDevice, socket: string | null): KeepError {
  const places = `lies on ${shownName(device.uuid)}, not on ${shownName(wanted.uuid)}`
  const remedy = `use another name for each device, or free it: ${pruneCommand(name, socket)}`
  return new KeepError(`${shownName(name)} ${places}; ${remedy}`, 'device')
}

export function tooManyWait({ name }: Wanted, most: number): KeepError {
  return new KeepError(`${shownName(name)}: ${most} requests of this process wait already; await some first`, 'quota')
}

/** For a name without a region that is ready: `others` are being filled, or dropped and still read. */
export function nothingToDrop(name: string, others: readonly Generation[], socket: string | null): KeepError {
  const [first] = others
  if (first === undefined)
    return new KeepError(`${shownName(name)} is not kept; cuda-mempool keep list shows the names`, 'absent')
  const pids = [...new Set([...first.readers.keys()].map(({ pid }) => pid))]
  const fact = first.isLeased
    ? `is not kept; process ${first.writer.pid} fills it`
    : `was dropped already, and stays until process ${listed(pids)} closes it`
  return new KeepError(`${shownName(name)} ${fact}; ${forceCommand(name, socket)} ends that`, 'absent')
}

export function notLeased(generation: number): KeepError {
  const text = `generation ${generation} is no longer leased to this process: its lease was ended by force`
  return new KeepError(`${text}, or by another keeper; begin again with region()`, 'gone')
}

export function outOfOrder({ name }: Generation): KeepError {
  return new KeepError(`pieces of ${shownName(name)} came out of order; send them in their order`, 'protocol')
}

/** Throws KeepError if a filled generation is not whole, or larger than its lease. */
export function checkFilled(generation: Generation, { bytes, pieces }: Filled): void {
  const { name, leasedBytes } = generation
  if (pieces !== generation.pieces.length || bytes > bytesIn(generation.pieces))
    throw new KeepError(`commit: ${shownName(name)} is not whole; send all its pieces first`, 'protocol')
  if (bytes <= leasedBytes) return
  const sizes = `${formatBytes(bytes)}, and ${formatBytes(leasedBytes)} were asked for`
  throw new KeepError(`commit: ${shownName(name)} has ${sizes}; ask for more bytes`, 'size')
}
