// Reads the CSV files of RMM's logging_resource_adaptor: one line for each call, in the order of the calls.

import { FormatError } from '../../../core/base/errors.js'
import { isTimeUs } from '../pytorch/data-checks.js'
import type { Trace } from '../trace.js'
import { AddressEvents } from './address-events.js'
import { headerOf, readRows } from './csv-rows.js'
import { chooseDevices, type FormatOptions } from './format-options.js'

const COLUMNS = ['Thread', 'Time', 'Action', 'Pointer', 'Size', 'Stream']
/** Hours, minutes, seconds and microseconds; some versions of the logger write a colon before the microseconds. */
const TIME_OF_DAY = /^(\d{1,2}):(\d{2}):(\d{2})[.:](\d{1,6})$/
const SECONDS = /^\d+\.\d+$/
const POINTER = /^(?:0x)?[0-9a-f]{1,16}$/i
const NULL_POINTERS = ['(nil)', '(null)', 'nullptr']
const DAY_US = 24 * 3600 * 1e6
/** Lines of several threads can change places, and clocks are set back for the winter; more is the next day. */
const MOST_BACK_US = 2 * 3600 * 1e6
/** RMM logs no device. */
const DEVICE = 0

/** Whether a file begins as RMM's. */
export function isRmmHeader(start: Buffer): boolean {
  return headerOf(start).join() === COLUMNS.join()
}

/** The only trace of a log. Throws FormatError naming the first bad line. */
export function readRmm(bytes: Buffer, file: string, options: FormatOptions): Trace[] {
  const [chosen] = chooseDevices(new Map([[DEVICE, 1]]), options.device)
  const events = new AddressEvents()
  const clock = new Clock()
  const cutShort = readRows(
    bytes,
    COLUMNS.length,
    ([, time, action, pointer, size, stream], line) => {
      const address = pointerOf(pointer, `line ${line}: Pointer`)
      const handle = pointerOf(stream, `line ${line}: Stream`)
      const byteCount = sizeOf(size, line)
      const timeUs = clock.read(time, line)
      if (action === 'allocate failure') events.fail(byteCount, handle, timeUs)
      else if (action !== 'allocate' && action !== 'free' && action !== 'deallocate') {
        throw new FormatError(`line ${line}: Action must be allocate, allocate failure or free, not '${short(action)}'`)
      } else if (address === 0)
        events.skipped++ // a request for 0 bytes has no memory
      else if (action === 'allocate') events.allocate(address, byteCount, handle, timeUs)
      else events.free(address, byteCount, handle, timeUs)
    },
    options.onBytes,
  )
  events.skipped += cutShort
  if (events.count === 0) throw new FormatError('holds no events; RMM writes them through a LoggingResourceAdaptor')
  return [events.build({ file, ...chosen, recorder: 'RMM' })]
}

/** Microseconds from the midnight before the first line; the log has no dates. */
class Clock {
  private last = 0

  read(text: string, line: number): number {
    const timeUs = SECONDS.test(text) ? Number(text) * 1e6 : this.ofDay(text, line)
    if (isTimeUs(timeUs)) return timeUs
    throw new FormatError(`line ${line}: Time must be below 2^53 microseconds, not '${short(text)}'`)
  }

  private ofDay(text: string, line: number): number {
    const match = TIME_OF_DAY.exec(text)
    if (match === null) throw new FormatError(`line ${line}: Time must be like 13:05:59.123456, not '${short(text)}'`)
    const [hours, minutes, seconds] = match.slice(1, 4).map(Number)
    const timeUs = ((hours * 60 + minutes) * 60 + seconds) * 1e6 + Number(match[4].padEnd(6, '0'))
    const days = Math.max(0, Math.ceil((this.last - MOST_BACK_US - timeUs) / DAY_US))
    this.last = days * DAY_US + timeUs
    return this.last
  }
}

function pointerOf(text: string, place: string): number {
  if (NULL_POINTERS.includes(text)) return 0
  const value = POINTER.test(text) ? Number.parseInt(text, 16) : NaN
  if (!Number.isSafeInteger(value))
    throw new FormatError(`${place} must be an address like 0x7f00, not '${short(text)}'`)
  return value
}

function sizeOf(text: string, line: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (!Number.isSafeInteger(value)) throw new FormatError(`line ${line}: Size must be bytes, not '${short(text)}'`)
  return value
}

function short(text: string): string {
  return text.slice(0, 40)
}
