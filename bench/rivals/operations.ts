// A file of operations: allocations and frees in their order, for programs of several languages. A pass is one run
// through all of them; it begins and ends with no buffer live.
//
// The file is an array of 64-bit floats in this machine's byte order:
//
//   FORMAT, streams, buffers, parts, operations    five counts
//   end of each part                               the number of the first operation that comes after it
//   buffer, bytes, stream                          for each operation; a free has 0 bytes
//
// Buffers and streams are numbered from 0. A buffer's number is used again after its free. Operations after the last
// part only empty the allocator: they count in a pass, and in no part.

import { readFileSync, writeFileSync } from 'node:fs'

/** The first number of each file. bench/rivals/rival.hpp has it too. */
const FORMAT = 180_001
const HEADER = 5
const FIELDS = 3

export interface Operations {
  readonly streams: number
  readonly buffers: number
  /** ascending; the number of the first operation after each part */
  readonly partEnds: readonly number[]
  readonly buffer: Int32Array
  /** 0 for a free */
  readonly bytes: Float64Array
  readonly stream: Int32Array
}

export function writeOperations(path: string, operations: Operations): void {
  const { streams, buffers, partEnds, buffer, bytes, stream } = operations
  const first = HEADER + partEnds.length
  const numbers = new Float64Array(first + FIELDS * buffer.length)
  numbers.set([FORMAT, streams, buffers, partEnds.length, buffer.length, ...partEnds])
  for (let operation = 0; operation < buffer.length; operation++) {
    const at = first + FIELDS * operation
    numbers[at] = buffer[operation]
    numbers[at + 1] = bytes[operation]
    numbers[at + 2] = stream[operation]
  }
  writeFileSync(path, numbers)
}

/** Throws Error, with the path, for a file that is not of this format. */
export function readOperations(path: string): Operations {
  const file = readFileSync(path)
  const numbers = new Float64Array(file.buffer.slice(file.byteOffset, file.byteOffset + (file.length & ~7)))
  const [format, streams, buffers, parts, count] = numbers
  const first = HEADER + parts
  if (format !== FORMAT || file.length !== 8 * (first + FIELDS * count)) {
    throw new Error(`${path} is no file of operations, or it is cut short; write it anew with bench/rivals/run.ts`)
  }
  const column = (field: number) => Array.from({ length: count }, (_, index) => numbers[first + FIELDS * index + field])
  return {
    streams,
    buffers,
    partEnds: [...numbers.subarray(HEADER, first)],
    buffer: Int32Array.from(column(0)),
    bytes: Float64Array.from(column(1)),
    stream: Int32Array.from(column(2)),
  }
}

/** The parts of a pass, and the rest, each as [first operation, first operation after it]. */
export function segmentsOf({ partEnds, buffer }: Operations): [from: number, to: number][] {
  const ends = partEnds.at(-1) === buffer.length ? partEnds : [...partEnds, buffer.length]
  return ends.map((end, index) => [index === 0 ? 0 : ends[index - 1], end])
}

/** The most bytes that are live at once: no allocator can do with less memory. */
export function peakLiveBytes({ buffers, buffer, bytes }: Operations): number {
  const sizes = new Float64Array(buffers)
  let live = 0
  let peak = 0
  for (let operation = 0; operation < buffer.length; operation++) {
    live += bytes[operation] - sizes[buffer[operation]]
    sizes[buffer[operation]] = bytes[operation]
    peak = Math.max(peak, live)
  }
  return peak
}
