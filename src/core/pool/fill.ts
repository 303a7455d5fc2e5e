import type { Driver } from '../driver/driver.js'

/**
 * Fills `bytes` bytes at `target`, in stream order, with the bytes of one element. The driver fills by 1, 2 and 4
 * bytes. An element of 8 bytes is written once, and copies double what is there: a capture takes no data of the host.
 */
export function fillWithElement(
  driver: Driver,
  target: number,
  bytes: number,
  element: ArrayBufferView,
  stream: number,
): void {
  const { buffer, byteOffset, byteLength } = element
  const values = new DataView(buffer, byteOffset, byteLength)
  if (byteLength === 1) driver.cuMemsetD8Async(target, values.getUint8(0), bytes, stream)
  else if (byteLength === 2) driver.cuMemsetD16Async(target, values.getUint16(0, true), bytes / 2, stream)
  else if (byteLength === 4) driver.cuMemsetD32Async(target, values.getUint32(0, true), bytes / 4, stream)
  else {
    const [low, high] = [values.getUint32(0, true), values.getUint32(4, true)]
    if (low === high) {
      driver.cuMemsetD32Async(target, low, bytes / 4, stream)
      return
    }
    driver.cuMemsetD32Async(target, low, 1, stream)
    driver.cuMemsetD32Async(target + 4, high, 1, stream)
    for (let done = 8; done < bytes; done *= 2) {
      driver.cuMemcpyDtoDAsync(target + done, target, Math.min(done, bytes - done), stream)
    }
  }
}
