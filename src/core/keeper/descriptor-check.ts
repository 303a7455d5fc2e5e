// A keeper keeps descriptors of exported device memory only. Those of a GPU's memory are NVIDIA's device files, and
// those of the simulated device's are plain files. Regions of the host are sealed files in memory.

import { fstatSync, readFileSync } from 'node:fs'
import { KeepError } from '../base/errors.js'
import { isSealed } from '../libraries/sealed-memory.js'
import { MOST_DIRECTORY_BYTES } from './messages.js'
import { HOST, type KeptDevice } from './region.js'

/** The device number of nvidiactl and the GPUs, by Linux' list of devices. */
const NVIDIA_MAJOR = 195

function isNvidias(major: number): boolean {
  return major === NVIDIA_MAJOR || nvidiaMajors(readFileSync('/proc/devices', 'utf8')).has(major)
}

/** The major numbers of NVIDIA's character devices, by the text of /proc/devices. */
export function nvidiaMajors(devices: string): Set<number> {
  const [characters] = devices.split('Block devices:')
  return new Set([...characters.matchAll(/^ *(\d+) nvidia/gm)].map(([, major]) => Number(major)))
}

/** Throws KeepError 'protocol' unless a descriptor is of exported memory of the device. */
export function checkPiece(descriptor: number, device: KeptDevice): void {
  const stats = fstatSync(descriptor)
  if (device.uuid === HOST) {
    if (stats.isFile() && isSealed(descriptor)) return
    throw new KeepError('a piece is no file in memory with all seals; seal it before the commit', 'protocol')
  }
  if (device.simulated) {
    if (stats.isFile()) return
    throw new KeepError('a piece is no file of a simulated device; export it by the driver', 'protocol')
  }
  if (!stats.isCharacterDevice() || !isNvidias(majorOf(stats.rdev)))
    throw new KeepError('a piece is no exported memory of a GPU; export it by the driver', 'protocol')
}

/** Throws KeepError unless a descriptor is of a directory: a sealed file in memory that is not too long. */
export function checkDirectory(descriptor: number): void {
  const stats = fstatSync(descriptor)
  if (!stats.isFile() || !isSealed(descriptor))
    throw new KeepError('the directory of a region must be a file in memory with all seals', 'protocol')
  if (stats.size <= MOST_DIRECTORY_BYTES) return
  const bytes = `${stats.size} bytes, more than ${MOST_DIRECTORY_BYTES}`
  throw new KeepError(`the directory of a region has ${bytes}; keep fewer arrays in a region`, 'size')
}

/** The driver of a device number, as Linux encodes it. */
function majorOf(device: number): number {
  const number = BigInt(device)
  return Number(((number >> 8n) & 0xfffn) | ((number >> 32n) & ~0xfffn))
}
