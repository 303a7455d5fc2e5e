// How the bytes of one block grow with a size that the program varies, such as its batch. Two recordings tell two
// points. Most tensors lie on a straight line through both; the others get a range.

/** The bytes of a block at a third size. */
export interface GrownBytes {
  readonly low: number
  readonly estimate: number
  readonly high: number
  /** whether the two points tell the third: the block keeps its bytes, or grows by whole bytes a unit */
  readonly isLine: boolean
}

/** A size of the program, and the bytes that a block has with it. */
export type Point = readonly [size: number, bytes: number]

/** A library may choose an algorithm without work space at another size, or one with more. */
const MOST_WORK_SPACE = 2

/** What the life of a block tells. */
export interface Life {
  /** freed at once: one that does not grow as a tensor does is the work space of a library */
  readonly isBrief: boolean
  /** of the model, and not of its input: such a block has its bytes at every size */
  readonly isOfModel: boolean
}

/**
 * The bytes of a block at `size`, by two points of rising size. One with the same bytes at both may have reached a
 * most, as a buffer that takes its input in parts, and be less below them.
 */
export function grownBytes(first: Point, second: Point, size: number, { isBrief, isOfModel }: Life): GrownBytes {
  const [firstSize, firstBytes] = first
  const [secondSize, secondBytes] = second
  if (firstBytes === secondBytes) {
    const isSure = isOfModel || size >= firstSize
    return { ...sure(firstBytes), low: isSure ? firstBytes : Math.round((firstBytes * size) / firstSize) }
  }
  const slope = (secondBytes - firstBytes) / (secondSize - firstSize)
  const constant = firstBytes - slope * firstSize
  const line = Math.max(0, Math.round(constant + slope * size))
  // A product of two varied dimensions, as of attention: linear · size + bend · size², through both points.
  const bend = (secondBytes / secondSize - firstBytes / firstSize) / (secondSize - firstSize)
  const linear = firstBytes / firstSize - bend * firstSize
  const square = Math.round(linear * size + bend * size * size)
  const isTensor = constant === 0 || Math.abs(linear) < bend
  if (isBrief && !isTensor) return workSpaceBytes(first, second, constant > 0 ? line : null, size)
  if (constant >= 0 && slope > 0 && Number.isInteger(slope)) return sure(line)
  if (slope > 0 && constant < 0) return range(line, square, square)
  const proportional = Math.round((secondBytes * size) / secondSize)
  return range(Math.min(firstBytes, secondBytes, line), secondBytes, Math.max(firstBytes, secondBytes, proportional))
}

/** From none to twice the recorded bytes: the line if there is one, else the bytes at the nearer size. */
function workSpaceBytes([firstSize, firstBytes]: Point, second: Point, line: number | null, size: number): GrownBytes {
  const [secondSize, secondBytes] = second
  const nearer = Math.abs(size - firstSize) < Math.abs(size - secondSize) ? firstBytes : secondBytes
  const most = Math.max(firstBytes, secondBytes) * Math.max(1, size / secondSize)
  return range(0, line ?? nearer, Math.round(MOST_WORK_SPACE * most))
}

/** The bytes of a block that only the recording of one size has. */
export function unmatchedBytes(recordedSize: number, bytes: number, size: number): GrownBytes {
  return range(0, bytes, Math.round((bytes * size) / recordedSize))
}

function sure(bytes: number): GrownBytes {
  return { low: bytes, estimate: bytes, high: bytes, isLine: true }
}

function range(one: number, estimate: number, other: number): GrownBytes {
  return {
    low: Math.max(0, Math.min(one, estimate, other)),
    estimate: Math.max(0, estimate),
    high: Math.max(0, one, estimate, other),
    isLine: false,
  }
}
