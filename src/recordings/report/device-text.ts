// The report on a device as text.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import type { PlatformLimit } from '../../core/device/platform-limits.js'
import { type DeviceUsers, usersText } from '../../core/driver/device-users.js'
import type { KeptMemory } from '../../core/keeper/kept-memory.js'
import { formatCount, formatTime } from './number-format.js'
import { type Column, type Paint, tableText, wrapText } from './table.js'

/** A feature that needs the driver, and whether it works. */
export interface FeatureReport {
  readonly name: string
  /** the CUDA version of the oldest driver with this feature */
  readonly leastDriver: string
  readonly supported: boolean
  /** the reason why it does not work; null if it does */
  readonly obstacle: string | null
  /** the loss without the feature */
  readonly without: string
}

/** The features of a device, as `cuda-mempool info --json` prints it. */
export interface DeviceReport {
  /** the versions of this package and of Node */
  readonly version: string
  readonly node: string
  /** the reason why no GPU can be used; null if a GPU is used, or another device was chosen */
  readonly noGpu: string | null
  readonly driver: {
    /** path of the library that was opened, or the name of the simulation */
    readonly origin: string
    readonly simulated: boolean
    /** the CUDA version that the driver supports */
    readonly version: string
  }
  /** the compiler of CUDA C++, or the reason why none works with this driver */
  readonly nvrtc: { readonly path: string; readonly version: string } | { readonly obstacle: string }
  readonly devices: readonly {
    readonly ordinal: number
    readonly name: string
    readonly computeCapability: string
    readonly totalBytes: number
  }[]
  /** the device that was opened */
  readonly device: {
    readonly ordinal: number
    readonly name: string
    readonly simulated: boolean
    readonly freeBytes: number
    readonly totalBytes: number
    /** bytes of one step of virtual memory; null without virtual memory */
    readonly granularityBytes: number | null
    /** what MPS, HAMi, KAI and MIG set for this process */
    readonly limits: readonly PlatformLimit[]
    /** the other processes there and the persistence mode; null without NVML */
    readonly users: DeviceUsers | null
  }
  /** the memory that this user's keeper keeps; null without a keeper */
  readonly kept: KeptMemory | null
  readonly features: readonly FeatureReport[]
}

/** The report in lines of at most `width` columns. */
export function deviceText(report: DeviceReport, { width, paint }: { width: number; paint: Paint }): string {
  const { driver, device, features } = report
  const missing = features.filter(feature => !feature.supported)
  return [
    `${paint.bold(`cuda-mempool ${report.version}`)} on Node ${report.node}`,
    ...(report.noGpu === null ? [] : [wrapText(`No GPU: ${report.noGpu}.`, width), wrapText(INSTEAD, width)]),
    factLines(report)
      .map(([name, value]) => wrapText(`${`${name}:`.padEnd(10)}${value}`, width, ' '.repeat(10)))
      .join('\n'),
    tableText(features, COLUMNS, { width, paint, tone: feature => (feature.supported ? line => line : paint.red) }),
    ...missing.map(({ name, obstacle, without }) =>
      paint.red(wrapText(`✗ ${name}: ${obstacle}; without it: ${without}`, width, '  ')),
    ),
    ...(missing.length > 0
      ? []
      : [wrapText(`Everything works on ${driver.simulated ? 'the ' : ''}${device.name}.`, width)]),
  ].join('\n\n')
}

const INSTEAD =
  "Programs that open 'auto', and these commands, use the simulated device instead: a GPU in memory, for tests and for " +
  'replaying recordings. No time measured on it is a GPU’s.'

const NO_NVRTC =
  'none was found for this driver; compileKernels needs it, loadModule (PTX) does not. --json says where it was looked for'

const PERSISTENT = 'persistence mode is on: the device stays ready while no process uses it'
const NOT_PERSISTENT =
  'persistence mode is off: when the last process ends, the driver gives up the device and all its memory'
const KEPT_AT_RISK = ', perhaps kept memory, too; switch it on: sudo nvidia-smi -pm 1'

const COLUMNS: readonly Column<FeatureReport>[] = [
  { title: 'feature', align: 'left', cell: feature => feature.name },
  { title: 'least\ndriver', align: 'right', cell: feature => `CUDA ${feature.leastDriver}` },
  { title: 'here', align: 'left', cell: feature => (feature.supported ? 'yes' : 'no') },
  { title: 'without it', align: 'left', cell: feature => feature.without },
]

function factLines({ driver, devices, device, nvrtc, kept }: DeviceReport): [string, string][] {
  const { freeBytes, totalBytes, granularityBytes, limits, users } = device
  const others = usersText(users?.processes ?? [])
  const mode = users?.persistenceMode ?? null
  const unused = kept === null ? null : unusedLine(kept, Date.now())
  const risk = kept !== null && kept.deviceBytes > 0 ? KEPT_AT_RISK : ''
  const steps = granularityBytes === null ? '' : `, mapped in steps of ${formatBytes(granularityBytes)}`
  return [
    ['driver', `CUDA ${driver.version}, ${driver.origin}`],
    ...devices.map(({ ordinal, name, computeCapability, totalBytes }): [string, string] => {
      const chosen = ordinal === device.ordinal && devices.length > 1 ? ' (the one below)' : ''
      return [
        `device ${ordinal}`,
        `${name}, compute capability ${computeCapability}, ${formatBytes(totalBytes)}${chosen}`,
      ]
    }),
    ['NVRTC', 'obstacle' in nvrtc ? NO_NVRTC : `CUDA ${nvrtc.version}, ${nvrtc.path}`],
    ['memory', `${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} free${steps}`],
    ...limits.map((limit): [string, string] => ['limit', limitText(limit)]),
    ...(others === null ? [] : [['users', others] satisfies [string, string]]),
    ...(kept === null || kept.regions === 0 ? [] : [['kept', keptLine(kept)] satisfies [string, string]]),
    ...(unused === null ? [] : [['unused', unused] satisfies [string, string]]),
    ...(mode === null ? [] : [['mode', mode ? PERSISTENT : NOT_PERSISTENT + risk] satisfies [string, string]]),
  ]
}

/** `2.93 GiB by HAMi (CUDA_DEVICE_MEMORY_LIMIT_0=3000m)`; pools of the default size keep within it. */
function limitText({ by, variable, value, bytes }: PlatformLimit): string {
  const source = shown(variable === null ? value : `${variable}=${value}`)
  if (bytes !== null) return `${formatBytes(bytes)} by ${by} (${source})`
  return `ignored: ${source} is no size of at least 2 MiB; ${by} writes '3000m' or bytes`
}

/** `40 GiB in 2 regions, 8 GiB of it on this device` */
function keptLine({ bytes, regions, deviceBytes }: KeptMemory): string {
  const part = deviceBytes === bytes ? 'all' : formatBytes(deviceBytes)
  return `${sumText(bytes, regions)}, ${part} of it on this device; cuda-mempool keep list shows them`
}

/** `8 GiB in 1 region without readers, unused for 3 h`, and what frees it; null if all regions have readers. */
export function unusedLine({ unused: { bytes, regions, since } }: KeptMemory, now: number): string | null {
  if (since === null) return null
  const longest = regions === 1 ? 'unused' : 'the longest unused'
  const frees = 'cuda-mempool keep prune --unused 1h frees those unused for an hour'
  return `${sumText(bytes, regions)} without readers, ${longest} for ${formatTime(now - since)}; ${frees}`
}

function sumText(bytes: number, regions: number): string {
  return `${formatBytes(bytes)} in ${formatCount(regions)} region${regions === 1 ? '' : 's'}`
}
