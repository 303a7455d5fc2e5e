// The JSON of `/stats`, which `top` and the live page show.

import { isDriverError } from '../core/base/thrown.js'
import type { Context } from '../core/driver/context.js'
import type { PoolStats } from '../core/pool/pool.js'
import type { TagStats } from '../core/pool/wrappers/counters.js'
import type { RegionFigures } from './kept-regions.js'
import type { PoolFigures, PoolList, ShelfFigures } from './watched-pools.js'

/** JSON has no Infinity: null stands for it. */
type InJson<Stats extends { readonly maxPoolBytes: number }> = Omit<Stats, 'maxPoolBytes'> & {
  readonly maxPoolBytes: number | null
}

/** A pool in `/stats`. */
export interface ServedStats extends Omit<PoolFigures, 'stats' | 'tags'> {
  readonly stats: InJson<PoolStats>
  readonly tags: Readonly<Record<string, InJson<TagStats>>> | null
}

/** A device in `/stats`. */
export interface ServedDevice {
  readonly ordinal: number
  /** says so if the driver does not tell it, as on a lost device */
  readonly name: string
}

/** The body of `/stats`, and the data of each event of `/events`. */
export interface ProcessStats {
  /** version of this format */
  readonly version: 1
  readonly pid: number
  /** the command line, shortened */
  readonly command: string
  /** milliseconds since 1970 */
  readonly timeMs: number
  readonly devices: readonly ServedDevice[]
  readonly pools: readonly ServedStats[]
  readonly shelves: readonly ShelfFigures[]
  /** those of the keepers that the process is connected to */
  readonly regions: readonly RegionFigures[]
}

/** In place of a name, which may be known later. */
const NO_NAME = 'name unknown, as the driver does not answer'
const MOST_LETTERS = 200
const deviceNames = new WeakMap<object, string>()

export function statsOf(list: PoolList): ProcessStats {
  const devices = new Map<number, ServedDevice>()
  const watched = [...list.open().map(({ pool }) => pool), ...list.openShelves().map(({ shelf }) => shelf)]
  for (const { context } of watched) {
    devices.set(context.ordinal, { ordinal: context.ordinal, name: nameOf(context) })
  }
  const { pools: read, ...others } = list.figures()
  const pools = read.map(({ stats, tags, ...figures }) => ({
    ...figures,
    stats: inJson(stats),
    tags:
      tags === null
        ? null
        : Object.fromEntries(Object.entries(tags).map(([tag, each]) => [tag, inJson(each)] as const)),
  }))
  const command = process.argv.join(' ').slice(0, MOST_LETTERS)
  const head = { version: 1, pid: process.pid, command, timeMs: Date.now() } as const
  return { ...head, devices: [...devices.values()], pools, ...others }
}

/** The name of a device. A timer asks for it, so an error of the driver would end the process. */
function nameOf(context: Context): string {
  try {
    const name = deviceNames.get(context) ?? context.driver.cuDeviceGetName(context.device)
    deviceNames.set(context, name)
    return name
  } catch (error) {
    if (isDriverError(error)) return NO_NAME
    throw error
  }
}

function inJson<Stats extends { readonly maxPoolBytes: number }>(stats: Stats): InJson<Stats> {
  return { ...stats, maxPoolBytes: stats.maxPoolBytes === Infinity ? null : stats.maxPoolBytes }
}

/** The share of a pool's requests that no cache served. A shared pool may count a miss that it refuses afterwards. */
export function missShare({ cacheMisses, allocations }: Pick<PoolStats, 'cacheMisses' | 'allocations'>): number {
  return cacheMisses === 0 ? 0 : cacheMisses / Math.max(cacheMisses, allocations)
}
