import { FormatError } from '../../../core/base/errors.js'
import { listed } from '../../../core/base/readable.js'
import type { OtherDevice } from '../trace.js'

/** Which events are read: those of a device by its number, of the device with the most events, or of each device. */
export type DeviceChoice = number | 'busiest' | 'all'

/** Called from time to time with the share that is done, up to 1. */
export type OnProgress = ((fraction: number) => void) | undefined

/** Options of the reader of a format. */
export interface FormatOptions {
  readonly device: DeviceChoice
  /** called from time to time with the bytes that are read */
  readonly onBytes: (bytesRead: number) => void
}

/** A device to read, and the others that have events. */
export interface ChosenDevice {
  readonly device: number
  readonly otherDevices: readonly OtherDevice[]
}

/** Four times the devices of the largest machines. A damaged file may name a million, each with its own trace. */
const MOST_DEVICES = 64

/** The devices to read, by rising number. `counts` has the number of events of each. Throws FormatError. */
export function chooseDevices(counts: ReadonlyMap<number, number>, choice: DeviceChoice): ChosenDevice[] {
  const all = [...counts].map(([device, events]) => ({ device, events })).sort((a, b) => a.device - b.device)
  return chosenOf(all, choice).map(device => ({ device, otherDevices: all.filter(other => other.device !== device) }))
}

function chosenOf(all: readonly OtherDevice[], choice: DeviceChoice): number[] {
  const numbers = all.map(({ device }) => device)
  if (choice === 'busiest') return [all.reduce((best, each) => (each.events > best.events ? each : best)).device]
  if (choice === 'all') {
    if (all.length <= MOST_DEVICES) return numbers
    throw new FormatError(
      `holds events of ${all.length} devices, and at most ${MOST_DEVICES} are read at once; choose one by --gpu, ` +
        'or by the option device of readRecording',
    )
  }
  if (numbers.includes(choice)) return [choice]
  throw new FormatError(`holds no events of device ${choice}; it has some of device ${listed(numbers)}`)
}
