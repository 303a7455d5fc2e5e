// `cuda-mempool info`: the devices, and which features work. Each is found by one use, since some platforms refuse what
// attributes and versions promise.

import { formatBytes } from '../../core/base/bytes.js'
import { CudaError, NoDeviceError, NoLibraryError } from '../../core/base/errors.js'
import type { Device } from '../../core/device/device.js'
import { type DeviceChoice, isWithoutGpu, openDevice } from '../../core/device/open.js'
import { DEVICE_ATTRIBUTE } from '../../core/driver/constants.js'
import { usersOf } from '../../core/driver/device-users.js'
import type { Driver } from '../../core/driver/driver.js'
import { DRIVER_TABLE } from '../../core/driver/table.js'
import { keptMemory } from '../../core/keeper/kept-memory.js'
import { listNow } from '../../core/keeper/list-now.js'
import { usualSocketPath } from '../../core/keeper/socket-path.js'
import { openNvrtc } from '../../core/libraries/nvrtc.js'
import { type DeviceReport, deviceText, type FeatureReport } from '../../recordings/report/device-text.js'
import { answer, type UsableGpu } from '../answers.js'
import { chosenDevice } from '../device-option.js'
import { STATUS, UsageError } from '../exit.js'
import { print, printJson } from '../terminal.js'
import { FEATURES, type Feature } from './features.js'

/** A keeper that does not answer is stopped. The longest list takes half a second. */
const KEEPER_MS = 2000
const IN_CONTAINER = 'a container sees GPUs only if it is given them, as by docker run --gpus all'

export interface InfoOptions {
  readonly device?: string
  readonly json?: boolean
  /** only whether a GPU can be used */
  readonly check?: boolean
}

/** Prints the devices, and the features that work on one; or whether there is a GPU. */
export function info({ device, json, check }: InfoOptions, version: string): number {
  const choice = chosenDevice(device)
  if (check) {
    const gpu = usableGpu(choice)
    if (json) printJson(answer('gpu', gpu))
    else print(() => gpuText(gpu))
    return STATUS.done
  }
  const report = inspectDevice(choice, version)
  if (json) printJson(answer('info', report))
  else print(style => deviceText(report, style))
  return STATUS.done
}

/** Opens a GPU, for health checks; it tries no feature, so that it is quick. Throws if it cannot be used. */
export function usableGpu(choice: DeviceChoice): UsableGpu {
  if (choice === 'simulated') {
    throw new UsageError('--check: the simulated device is no GPU; name none by --device or CUDA_MEMPOOL_DEVICE')
  }
  try {
    using device = openDevice(choice === 'auto' ? 0 : choice)
    const { driver, ordinal, name } = device
    const version = versionText(driver.cuDriverGetVersion())
    return { driver: { origin: driver.origin, version }, device: { ordinal, name, ...device.memoryInfo() } }
  } catch (error) {
    if (!(error instanceof NoDeviceError)) throw error
    // The error offers the simulated device, which does not help here.
    const message = error.message.replace(/[,;] (or )?use openDevice.*/, '')
    throw new NoDeviceError(/no CUDA driver|finds no GPU/.test(message) ? `${message}; ${IN_CONTAINER}` : message)
  }
}

function gpuText({ driver, device }: UsableGpu): string {
  const { ordinal, name, freeBytes, totalBytes } = device
  return `GPU ${ordinal}: ${name}, ${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} free, driver for CUDA ${driver.version}`
}

/**
 * Opens the chosen device and reports on it and on all devices. For 'auto' without a GPU, `noGpu` is the reason.
 * `version` is the version of this package.
 */
export function inspectDevice(choice: DeviceChoice, version: string): DeviceReport {
  let noGpu: string | null = null
  let device: Device
  try {
    device = openDevice(choice === 'auto' ? 0 : choice)
  } catch (error) {
    if (choice !== 'auto' || !isWithoutGpu(error)) throw error
    noGpu = error.message
    device = openDevice('simulated')
  }
  try {
    const { driver, name, simulated, ordinal, context } = device
    const features = FEATURES.map(feature => report(feature, device))
    const hasVirtual = features.some(feature => feature.name === 'virtual memory' && feature.supported)
    return {
      version,
      node: process.version,
      noGpu,
      driver: { origin: driver.origin, simulated, version: versionText(driver.cuDriverGetVersion()) },
      nvrtc: nvrtcFor(driver),
      devices: devicesOf(driver),
      device: {
        ordinal,
        name,
        simulated,
        ...device.memoryInfo(),
        limits: device.platformLimits,
        users: usersOf(context),
        granularityBytes: hasVirtual ? driver.cuMemGetAllocationGranularity(context.device) : null,
      },
      kept: keptBy(device.properties.uuid),
      features,
    }
  } finally {
    device.close()
  }
}

function keptBy(uuid: string): DeviceReport['kept'] {
  const regions = listNow(usualSocketPath(), KEEPER_MS)
  return regions === null ? null : keptMemory(regions, uuid)
}

function report({ name, functions, since = '0', without, use }: Feature, device: Device): FeatureReport {
  const leastDriver = [...FEATURES[0].functions, ...functions].map(each => DRIVER_TABLE[each][2]).reduce(later, since)
  const obstacle = obstacleOf(() => use(device))
  return { name, leastDriver, supported: obstacle === null, obstacle, without }
}

function obstacleOf(use: () => string | null | undefined): string | null {
  try {
    return use() ?? null
  } catch (error) {
    if (error instanceof CudaError || error instanceof NoLibraryError) return error.message
    throw error
  }
}

function nvrtcFor(driver: Driver): DeviceReport['nvrtc'] {
  try {
    const { path, version } = openNvrtc(driver.cuDriverGetVersion())
    return { path, version }
  } catch (error) {
    if (error instanceof NoLibraryError) return { obstacle: error.message }
    throw error
  }
}

function devicesOf(driver: Driver): DeviceReport['devices'] {
  return Array.from({ length: driver.cuDeviceGetCount() }, (_, ordinal) => {
    const device = driver.cuDeviceGet(ordinal)
    const [major, minor] = [
      DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
      DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    ].map(attribute => driver.cuDeviceGetAttribute(attribute, device))
    return {
      ordinal,
      name: driver.cuDeviceGetName(device),
      computeCapability: `${major}.${minor}`,
      totalBytes: driver.cuDeviceTotalMem(device),
    }
  })
}

/** `12040` → `12.4` */
function versionText(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
}

function later(a: string, b: string): string {
  return a.localeCompare(b, 'en', { numeric: true }) >= 0 ? a : b
}
