// The memory of the GPU outside of the recording, for a reader who gives its size.

import { formatBytes } from '../../../core/base/bytes.js'
import type { RecordedOutOfMemory } from '../../trace/failures/out-of-memory.js'
import type { Trace } from '../../trace/trace.js'
import { RECORDERS } from '../recorders.js'

const OTHERS = 'other programs, libraries with memory of their own (NCCL, cuBLAS) and CUDA itself'

/** `deviceBytes` is the size of the GPU, null if unknown. At most one sentence. */
export function deviceMemoryLines(
  { recorder, recordedPeakReservedBytes }: Pick<Trace, 'recorder' | 'recordedPeakReservedBytes'>,
  failed: Pick<RecordedOutOfMemory, 'deviceFreeBytes' | 'reservedBytes' | 'deviceHadRoom'> | undefined,
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
  if (isKnown) {
    const outside = deviceBytes - deviceFreeBytes - reservedBytes
    const sum = `${formatBytes(reservedBytes)} reserved and ${formatBytes(deviceFreeBytes)} free`
    if (outside < 0) return [`--device-memory ${size} is too small: at the failed request the GPU had ${sum}.`]
    return [
      `Of ${size}, ${sum} at the failed request leave ${formatBytes(outside)} outside of ${allocator}: ${OTHERS}.`,
    ]
  }
  if (recordedPeakReservedBytes === null) {
    return [`What is left of ${size} is not known: what was reserved is not told.`]
  }
  const left = deviceBytes - recordedPeakReservedBytes
  const most = formatBytes(recordedPeakReservedBytes)
  if (left < 0) return [`--device-memory ${size} is too small: ${allocator} reserved ${most}.`]
  return [`Of ${size}, ${formatBytes(left)} are left beside the ${most} that ${allocator} reserved, for ${OTHERS}.`]
}
