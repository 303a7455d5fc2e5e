// Limits of a device's memory that others set for this process, by environment variables: CUDA's multi-process service
// (MPS), HAMi and KAI, which share GPUs among containers. A MIG instance is a device of its own size.
//
// An unreadable variable throws nothing, since another tool may own it: `cuda-mempool info` shows it.

import { MiB, parseBytes } from '../base/bytes.js'

/** A limit of a device's memory for this process. */
export interface PlatformLimit {
  /** the tool that sets it */
  readonly by: 'MPS' | 'HAMi' | 'KAI' | 'MIG'
  /** the environment variable; null where the device's name tells */
  readonly variable: string | null
  /** the variable's value, or the device's name */
  readonly value: string
  /** null for a value without a readable size */
  readonly bytes: number | null
}

/** The limited device. `uuid` is called only if a variable names a device by it. */
export interface LimitedDevice {
  readonly ordinal: number
  readonly name: string
  readonly totalBytes: number
  uuid(): string
}

/** The least that can be mapped. A smaller number counts MiB, or is a mistake. */
const LEAST_BYTES = 2 * MiB
/** HAMi writes zero for an absent limit. */
const NONE = /^0+[a-z]*$/i

/** The limits that the environment of the process sets for a device, in no order. */
export function platformLimits(env: NodeJS.ProcessEnv, device: LimitedDevice): PlatformLimit[] {
  const { ordinal } = device
  const limits: PlatformLimit[] = []
  const note = (by: PlatformLimit['by'], variable: string, text = env[variable]) => {
    const value = text?.trim() ?? ''
    if (value !== '' && !NONE.test(value)) limits.push({ by, variable, value, bytes: sizeOf(value) })
  }
  note('MPS', 'CUDA_MPS_PINNED_DEVICE_MEM_LIMIT', mpsLimit(env['CUDA_MPS_PINNED_DEVICE_MEM_LIMIT'], device))
  const own = `CUDA_DEVICE_MEMORY_LIMIT_${ordinal}`
  note('HAMi', env[own] === undefined ? 'CUDA_DEVICE_MEMORY_LIMIT' : own)
  note('KAI', 'GPU_MEMORY_LIMIT')
  const visible = env['CUDA_VISIBLE_DEVICES']?.split(',')[ordinal]?.trim() ?? ''
  const mig = visible.startsWith('MIG-') ? 'CUDA_VISIBLE_DEVICES' : null
  if (mig !== null || /\bMIG \d/.test(device.name)) {
    limits.push({ by: 'MIG', variable: mig, value: mig === null ? device.name : visible, bytes: device.totalBytes })
  }
  return limits
}

/** The most that this process may take of the device. */
export function memoryLimitOf(limits: readonly PlatformLimit[], totalBytes: number): number {
  return Math.min(totalBytes, ...limits.map(({ bytes }) => bytes ?? Infinity))
}

/** The part of '0=2G,1=512M' for a device, by its number or uuid; the whole text if it has another form. */
function mpsLimit(text: string | undefined, device: LimitedDevice): string | undefined {
  const entries = (text ?? '').split(',').map(entry => /^\s*([^=\s]+)\s*=\s*(\S+)\s*$/.exec(entry))
  if (!entries.every(entry => entry !== null)) return text
  const isOwn = (name: string) =>
    name === String(device.ordinal) || (/^(GPU|MIG)-/.test(name) && name.slice(4) === device.uuid())
  return entries.find(([, name]) => isOwn(name))?.[2] ?? ''
}

function sizeOf(value: string): number | null {
  try {
    const bytes = parseBytes(value)
    return bytes < LEAST_BYTES ? null : bytes
  } catch {
    return null
  }
}
