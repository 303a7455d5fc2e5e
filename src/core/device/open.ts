// Opens devices: by number, by the kind of driver, or on a custom driver.

import { isMainThread } from 'node:worker_threads'
import { OutOfRangeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError, NoDeviceError, NoLibraryError } from '../base/errors.js'
import { RESULT } from '../driver/constants.js'
import { Context } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Device } from './device.js'
import { WarmUp } from './warm-up.js'

const warmUp = new WarmUp() // once a process

/**
 * A device to open: a GPU by its number, 'simulated' for the simulated GPU, 'auto' for GPU 0 or else the simulated
 * GPU, or a custom driver. The environment variable CUDA_MEMPOOL_SIMULATED names a folder, such as /dev/shm/NAME: the
 * simulated GPUs of all processes that name it are those of one machine.
 */
export type DeviceChoice = number | 'auto' | 'simulated' | Driver

/**
 * Opens a device; by default GPU 0. `ordinal` is the number of the device on a custom or simulated driver (0). Throws
 * NoDeviceError, with the reasons, if the device does not exist. 'auto' falls back to the simulated device in that
 * case only: another failure of the driver is thrown. So is a NoDeviceError because koffi is missing, since the machine
 * may have a GPU. Throws RangeError for a bad choice.
 */
export function openDevice(choice: DeviceChoice = 0, ordinal = 0): Device {
  if (choice === 'simulated') return openOn(simulatedDriver(), ordinal)
  if (choice === 'auto') {
    try {
      return openOn(NativeDriver.open(), 0)
    } catch (error) {
      if (!isWithoutGpu(error)) throw error
      return openOn(simulatedDriver(), 0)
    }
  }
  if (isDriver(choice)) return openOn(choice, ordinal)
  if (typeof choice !== 'number' || !Number.isInteger(choice) || choice < 0) {
    throw new OutOfRangeError(
      `openDevice: choose a device number, 'auto', 'simulated' or a driver, not ${describe(choice)}`,
    )
  }
  return openOn(NativeDriver.open(), choice)
}

/**
 * Opens all GPUs on one driver, or all devices of a custom driver. 'simulated' opens two simulated devices, and
 * 'auto' opens them if there is no GPU. If one device cannot be opened, the others are closed again. Throws like
 * `openDevice`.
 */
export function openDevices(choice: 'simulated'): [Device, Device]
export function openDevices(choice?: 'auto' | 'simulated' | Driver): Device[]
export function openDevices(choice?: 'auto' | 'simulated' | Driver): Device[] {
  if (choice === 'auto') {
    try {
      return openDevices()
    } catch (error) {
      if (!isWithoutGpu(error)) throw error
      return openDevices('simulated')
    }
  }
  if (choice !== undefined && choice !== 'simulated' && !isDriver(choice)) {
    throw new OutOfRangeError(`openDevices: choose 'auto', 'simulated' or a driver, not ${describe(choice)}`)
  }
  const driver = choice === 'simulated' ? simulatedDriver(2) : (choice ?? NativeDriver.open())
  const devices = [openOn(driver, 0)]
  try {
    const count = driver.cuDeviceGetCount()
    while (devices.length < count) devices.push(openOn(driver, devices.length))
  } catch (error) {
    for (const device of devices) device.close()
    throw error
  }
  return devices
}

/**
 * Whether an error of opening GPU 0 says that there is none. A NoDeviceError because a library is missing, as its
 * cause says, does not.
 */
export function isWithoutGpu(error: unknown): error is NoDeviceError {
  return error instanceof NoDeviceError && !(error.cause instanceof NoLibraryError)
}

/** A simulated driver, on the machine that CUDA_MEMPOOL_SIMULATED names, if it does. */
function simulatedDriver(devices = 1): SimulatedDriver {
  const machine = process.env['CUDA_MEMPOOL_SIMULATED']
  return new SimulatedDriver({ devices, ...(machine && { machine }) })
}

function isDriver(choice: unknown): choice is Driver {
  return typeof (choice as Partial<Driver> | null | undefined)?.cuInit === 'function'
}

function openOn(driver: Driver, ordinal: number): Device {
  try {
    if (isBesideDriver(driver)) warmUp.runWhile(driver.startInit())
    driver.cuInit()
  } catch (error) {
    if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_NO_DEVICE) throw error
    throw new NoDeviceError(`the driver finds no GPU (${error.message}); use openDevice('simulated') to go without`)
  }
  if (!Number.isInteger(ordinal) || ordinal < 0) {
    throw new OutOfRangeError(`openDevice: ordinal must be a device number from 0, not ${describe(ordinal)}`)
  }
  const count = driver.cuDeviceGetCount()
  if (count === 0) throw new NoDeviceError("the driver finds no GPU; use openDevice('simulated') to go without")
  if (ordinal >= count) {
    throw new NoDeviceError(`device ${ordinal} does not exist: the driver finds ${count}, numbered from 0`)
  }
  if (!isBesideDriver(driver)) return new Device(Context.open(driver, ordinal))
  const early = driver.startPrimaryContext(driver.cuDeviceGet(ordinal))
  try {
    warmUp.runWhile(() => !early.isReady)
    return new Device(Context.open(driver, ordinal))
  } finally {
    early.drop()
  }
}

/** Whether this thread can work while the driver initialises itself in another. A worker may be ended meanwhile. */
function isBesideDriver(driver: Driver): driver is NativeDriver {
  return driver instanceof NativeDriver && isMainThread
}
