// What `replay` opens for each pass: a GPU, or a simulated device with room for the recording.

import { bytesOf, type FixedSize } from '../../core/base/byte-size.js'
import { GiB } from '../../core/base/bytes.js'
import type { Device } from '../../core/device/device.js'
import { openDevice } from '../../core/device/open.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { notTrace, type Trace } from './trace.js'

/** Bytes of a simulated device, unless a recording needs more. */
const SIMULATED_BYTES = 140 * GiB

/**
 * The function `open` for `replay(trace, open)`: it opens the simulated device, or the GPU of that number. A simulated
 * device has `capacityBytes`, or by default room for the recording, whatever GPU it comes from; there only the
 * recording's own work is pending. Throws TypeError or RangeError for a bad trace or capacity, and `open` throws like
 * `openDevice`.
 */
export function replayDevices(
  trace: Pick<Trace, 'recordedPeakReservedBytes' | 'peakWithFailedBytes'>,
  choice: number | 'simulated' = 'simulated',
  capacityBytes?: FixedSize,
): (searchedBytes?: number) => Device {
  if (typeof trace?.peakWithFailedBytes !== 'number') throw notTrace('replayDevices', trace)
  const given = capacityBytes === undefined ? null : bytesOf(capacityBytes, 'capacityBytes', null)
  if (choice !== 'simulated') return () => openDevice(choice)
  const recorded = Math.max(trace.recordedPeakReservedBytes ?? 0, trace.peakWithFailedBytes)
  const bytes = given ?? Math.min(Math.max(SIMULATED_BYTES, 2 * recorded), Number.MAX_SAFE_INTEGER)
  return (searchedBytes = bytes) => openDevice(new SimulatedDriver({ progress: 'eager', capacityBytes: searchedBytes }))
}
