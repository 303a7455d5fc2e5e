// Which other processes hold memory of a device, and what is kept there: for out-of-memory errors and `cuda-mempool
// info`.

import { readFileSync } from 'node:fs'
import { formatBytes } from '../base/bytes.js'
import type { DeviceProcess } from '../base/errors.js'
import { shown } from '../base/shown-text.js'
import { unusedText } from '../keeper/kept-memory.js'
import type { Context } from './context.js'
import { uuidText } from './uuid-text.js'

/** Who uses a device beside this process, and whether it keeps its state without them. */
export interface DeviceUsers {
  /** the other processes that hold memory, most bytes first; empty if their ids are those of another PID namespace */
  readonly processes: readonly DeviceProcess[]
  /** false if the driver gives the device up, and all its memory, when the last process ends; null if unknown */
  readonly persistenceMode: boolean | null
}

/** The users of a context's device; null if its driver does not know them. Never throws. May take milliseconds. */
export function usersOf({ driver, device }: Pick<Context, 'driver' | 'device'>): DeviceUsers | null {
  try {
    const users = driver.usersOf?.(device) ?? null
    if (users === null) return null
    const { processes, persistenceMode } = users
    // This process has a context there. In a container NVML may list it, and all others, by ids of the host.
    if (!processes.some(({ pid }) => pid === process.pid)) return { processes: [], persistenceMode }
    const others = processes.filter(({ pid, bytes }) => pid !== process.pid && bytes !== 0)
    others.sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))
    return { processes: others.map(({ pid, bytes }) => ({ pid, name: nameOf(pid), bytes })), persistenceMode }
  } catch {
    return null // the users are a help only: an error here would hide the caller's own
  }
}

/**
 * The other processes that hold memory of a device, and the end of a message: `; ` with each sentence about them and
 * about memory that is kept without readers. Never throws. May take milliseconds.
 */
export function holdersOf(context: Pick<Context, 'driver' | 'device'>, mostNamed: number) {
  const processes = usersOf(context)?.processes ?? []
  const sentences = [usersText(processes, mostNamed), keptText(context)].filter(text => text !== null)
  return { processes, text: sentences.map(each => `; ${each}`).join('') }
}

function keptText({ driver, device }: Pick<Context, 'driver' | 'device'>): string | null {
  try {
    return unusedText(() => uuidText(driver.cuDeviceGetUuid(device)))
  } catch {
    return null // as above
  }
}

function nameOf(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trimEnd()
  } catch {
    return null // the process has ended, or belongs to another system
  }
}

/** `other processes hold 61.3 GiB: 4711 python 40.2 GiB, 4712 node 21.1 GiB`; null without any. */
export function usersText(processes: readonly DeviceProcess[], mostNamed = Infinity): string | null {
  if (processes.length === 0) return null
  const bytesOf = (some: readonly DeviceProcess[]) => some.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0)
  const held = bytesOf(processes)
  const amount = (bytes: number | null) => (bytes ? [formatBytes(bytes)] : [])
  const named = processes
    .slice(0, mostNamed)
    .map(({ pid, name, bytes }) => [pid, ...(name === null ? [] : [shown(name)]), ...amount(bytes)].join(' '))
  const rest = processes.slice(mostNamed)
  if (rest.length > 0) named.push([`${rest.length} more`, ...amount(bytesOf(rest))].join(' '))
  return `other processes ${held > 0 ? `hold ${formatBytes(held)}` : 'use it'}: ${named.join(', ')}`
}
