// The bytes that describe a block of a shared pool to another process. They are the driver's exported bytes, then the
// facts that the driver leaves out: the pool's id, the buffer's length, and its offset in the driver's block.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { checkByteCount, describe } from '../../base/bytes.js'
import { type Bytes, isUint8Array } from '../../base/typed-arrays.js'

const DRIVER_BYTES = 64
const ID_BYTES = 36
const LENGTH = 104
const OFFSET = 112
const ALL_BYTES = 120

/** A block of a shared pool, as sent to another process. */
interface ExportedPointer {
  readonly driverBytes: Bytes
  /** the pool's UUID, as announced when it was shared */
  readonly poolId: string
  readonly byteLength: number
  readonly offset: number
}

export function encodePointer({ driverBytes, poolId, byteLength, offset }: ExportedPointer): Bytes {
  const bytes = new Uint8Array(ALL_BYTES)
  const view = new DataView(bytes.buffer)
  bytes.set(driverBytes)
  bytes.set(Buffer.from(poolId, 'latin1'), DRIVER_BYTES)
  view.setFloat64(LENGTH, byteLength)
  view.setFloat64(OFFSET, offset)
  return bytes
}

/** Throws TypeError or RangeError for bytes that `encodePointer` did not make. */
export function decodePointer(bytes: unknown): ExportedPointer {
  if (!isUint8Array(bytes)) {
    throw new WrongTypeError(`importBuffer: bytes must be the Uint8Array of exportPointer, not ${describe(bytes)}`)
  }
  if (bytes.length !== ALL_BYTES) {
    throw new OutOfRangeError(`importBuffer: bytes must be the ${ALL_BYTES} of exportPointer, not ${bytes.length}`)
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const [byteLength, offset] = [view.getFloat64(LENGTH), view.getFloat64(OFFSET)]
  checkByteCount(byteLength, 'importBuffer: the length in bytes')
  checkByteCount(offset, 'importBuffer: the offset in bytes', 0)
  const poolId = Buffer.from(bytes.subarray(DRIVER_BYTES, DRIVER_BYTES + ID_BYTES)).toString('latin1')
  return { driverBytes: new Uint8Array(bytes.subarray(0, DRIVER_BYTES)), poolId, byteLength, offset }
}
