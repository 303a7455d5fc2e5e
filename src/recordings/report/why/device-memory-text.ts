// The memory of the GPU outside of the recording, for a reader who gives its size.

import { formatBytes } from '../../../core/base/bytes.js'
import type { RecordedOutOfMemory } from '../../trace/failures/out-of-memory.js'
import type { Trace } from '../../trace/trace.js'
import { RECORDERS } from '../recorders.js'

const OTHERS = 'other programs, libraries with memory of their own (NCCL, cuBLAS) and CUDA itself'

type Recorded = Pick<Trace, 'recorder' | 'recordedPeakReservedBytes'>
type Failed = Pick<RecordedOutOfMemory, 'deviceFreeBytes' | 'reservedBytes' | 'deviceHadRoom'>

/**
 * Of a GPU of `deviceBytes`, what the allocator neither reserved nor left free at the failed request, or without one
 * what it never reserved; below 0 if the GPU must be larger, null if unknown.
 */
export function outsideBytes(
  { recordedPeakReservedBytes }: Pick<Recorded, 'recordedPeakReservedBytes'>,
  failed: Failed | null | undefined,
  deviceBytes: number,
): number | null {
  const { deviceFreeBytes = null, reservedBytes = null } = failed ?? {}
  if (deviceFreeBytes !== null && reservedBytes !== null) return deviceBytes - deviceFreeBytes - reservedBytes
  return recordedPeakReservedBytes === null ? null : deviceBytes - recordedPeakReservedBytes
}

/** `deviceBytes` is the size of the GPU, null if unknown. At most one sentence. */
export function deviceMemoryLines(
  { recorder, recordedPeakReservedBytes }: Recorded,
  failed: Failed | undefined,
  deviceBytes: number | null,
): string[] {
  const { allocator } = RECORDERS[recorder]
  const { deviceFreeBytes = null, reservedBytes = null, deviceHadRoom } = failed ?? {}
  const isKnown = deviceFreeBytes !== null && reservedBytes !== null
  if (deviceBytes === null) {
    const matters = isKnown && deviceHadRoom === false
    return matters ? [`What ${OTHERS} held then: --device-memory with the size of the GPU tells.`] : []
  }
  const size = formatBytes(deviceBytes)
  const outside = outsideBytes({ recordedPeakReservedBytes }, failed, deviceBytes)
  if (outside === null) return [`What is left of ${size} is not known: what was reserved is not told.`]
  if (isKnown) {
    const sum = `${formatBytes(reservedBytes)} reserved and ${formatBytes(deviceFreeBytes)} free`
    if (outside < 0) return [`--device-memory ${size} is too small: at the failed request the GPU had ${sum}.`]
    return [
      `Of ${size}, ${sum} at the failed request leave ${formatBytes(outside)} outside of ${allocator}: ${OTHERS}.`,
    ]
  }
  const most = formatBytes(recordedPeakReservedBytes ?? 0)
  if (outside < 0) return [`--device-memory ${size} is too small: ${allocator} reserved ${most}.`]
  return [`Of ${size}, ${formatBytes(outside)} are left beside the ${most} that ${allocator} reserved, for ${OTHERS}.`]
}
