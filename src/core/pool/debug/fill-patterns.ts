// Memory filled with one byte value, so that a later change is found. The values are unlikely data: fresh memory is
// NaN for every float type. Freed memory is NaN or huge as a float, and far beyond any array as an index.

import { MiB } from '../../base/bytes.js'
import { relaxed } from '../../order/relaxed.js'
import { StagedCopy } from '../../order/staged-copy.js'
import type { Stream } from '../../order/stream.js'

export const enum Pattern {
  fresh = 0xff,
  freed = 0x7f,
  redzone = 0xbd,
}

/** Bytes read back at a time. */
const CHUNK_BYTES = 4 * MiB

/** Fills `bytes` of memory at `ptr`, in the order of `stream`. */
export function fillPattern(ptr: number, bytes: number, pattern: Pattern, stream: Stream): void {
  if (bytes === 0) return
  const driver = stream.context.activate()
  stream.submit('fill', handle => driver.cuMemsetD8Async(ptr, pattern, bytes, handle))
}

/** Waits on the host for `stream` without telling the clocks, because the program itself has not waited. */
export function waitUnnoticed(stream: Stream): void {
  const driver = stream.context.activate()
  relaxed(driver, () => stream.submit('wait', handle => driver.cuStreamSynchronize(handle)))
}

/** Waits for `stream`, and returns the offset of the first byte that differs from the pattern, or -1. */
export function firstChange(ptr: number, bytes: number, pattern: Pattern, stream: Stream): number {
  using copy = new StagedCopy(stream, Math.min(bytes, CHUNK_BYTES))
  for (let done = 0; done < bytes; done += CHUNK_BYTES) {
    const partBytes = Math.min(CHUNK_BYTES, bytes - done)
    copy.start(ptr + done, partBytes)
    waitUnnoticed(stream)
    const part = copy.arrived(partBytes)
    // All bytes of a part are equal if the part equals itself shifted by one byte.
    const isSame = part[0] === Number(pattern) && Buffer.compare(part.subarray(1), part.subarray(0, -1)) === 0
    if (!isSame) return done + part.findIndex(byte => byte !== Number(pattern))
  }
  return -1
}
