import { FormatError } from '../../../core/base/errors.js'
import { listed } from '../../../core/base/readable.js'
import type { OtherDevice } from '../trace.js'

/** The events to read: of a device by its number, of the device that `chooseDevices` prefers, or of each. */
export type DeviceChoice = number | 'preferred' | 'all'

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

/** The requests of a device that failed. */
export interface DeviceFailures {
  readonly count: number
  /** the time of the first one, by a clock that all devices share */
  readonly firstUs: number
}

/** Four times the devices of the largest machines. A damaged file may name a million, each with its own trace. */
const MOST_DEVICES = 64

/**
 * The devices to read, by rising number. `counts` has the number of events of each. Preferred is the device that
 * failed first; if none failed, the busiest one. Throws FormatError.
 */
export function chooseDevices(
  counts: ReadonlyMap<number, number>,
  choice: DeviceChoice,
  failures: ReadonlyMap<number, DeviceFailures> = new Map(),
): ChosenDevice[] {
  const all = [...counts]
    .map(([device, events]) => ({ device, events, ...failedRequestsOf(failures.get(device)) }))
    .sort((a, b) => a.device - b.device)
  const preferred = () => failedFirst(failures) ?? busiest(all)
  const chosen = choice === 'preferred' ? [preferred()] : chosenOf(all, choice)
  return chosen.map(device => ({ device, otherDevices: all.filter(other => other.device !== device) }))
}

function failedRequestsOf(failures: DeviceFailures | undefined): Pick<OtherDevice, 'failedRequests'> {
  return failures === undefined ? {} : { failedRequests: failures.count }
}

function failedFirst(failures: ReadonlyMap<number, DeviceFailures>): number | undefined {
  const inOrder = [...failures].sort(([a, first], [b, second]) => first.firstUs - second.firstUs || a - b)
  return inOrder[0]?.[0]
}

function busiest(all: readonly OtherDevice[]): number {
  return all.reduce((best, each) => (each.events > best.events ? each : best)).device
}

function chosenOf(all: readonly OtherDevice[], choice: number | 'all'): number[] {
  const numbers = all.map(({ device }) => device)
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
