import { FormatError } from '../../base/errors.js'
import type { OtherDevice } from '../trace.js'

/** Options of the reader of a format. */
export interface FormatOptions {
  /** read the events of this device; undefined for the busiest device */
  readonly device: number | undefined
  /** called from time to time with the bytes that are read */
  readonly onBytes: (bytesRead: number) => void
}

/** Throws FormatError unless the file has events of the device of the options. */
export function checkDevice({ device }: FormatOptions, devices: readonly number[]): void {
  if (device === undefined || devices.includes(device)) return
  throw new FormatError(`holds no events of device ${device}; it has some of device ${devices.join(', ')}`)
}

/** The device of the options, else the busiest device, and the other devices. Throws FormatError. */
export function chooseDevice(
  counts: ReadonlyMap<number, number>,
  options: FormatOptions,
): { device: number; otherDevices: OtherDevice[] } {
  const devices = [...counts].map(([device, events]) => ({ device, events })).sort((a, b) => a.device - b.device)
  checkDevice(
    options,
    devices.map(({ device }) => device),
  )
  const busiest = devices.reduce((best, each) => (each.events > best.events ? each : best))
  const device = options.device ?? busiest.device
  return { device, otherDevices: devices.filter(other => other.device !== device) }
}
