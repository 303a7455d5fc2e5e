// The arithmetic of reductions: elements of all ranks combined into one, by element type. Sums of whole numbers wrap
// around, as on a GPU. Numbers of 16 bits are added in 32 bits, and rounded once.

import { bfloat16, float16, type SmallFloat } from '../../core/base/small-floats.js'
import { NCCL_OPS, NCCL_TYPES, type NcclOp, type NcclType } from '../constants.js'

type Numbers = Int8Array | Uint8Array | Int32Array | Uint32Array | Float32Array | Float64Array
type BigNumbers = BigInt64Array | BigUint64Array

const NUMBERS = {
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float32: Float32Array,
  float64: Float64Array,
} as const
const BIG_NUMBERS = { int64: BigInt64Array, uint64: BigUint64Array } as const
const SMALL_FLOATS = { float16, bfloat16 } as const

/** The name of an ncclDataType_t; undefined for none. */
export function typeNamed(type: number): NcclType | undefined {
  return (Object.keys(NCCL_TYPES) as NcclType[]).find(name => NCCL_TYPES[name].type === type)
}

/** The name of an ncclRedOp_t; undefined for none. */
export function opNamed(op: number): NcclOp | undefined {
  return (Object.keys(NCCL_OPS) as NcclOp[]).find(name => NCCL_OPS[name] === op)
}

/** Combines the elements of all ranks. Each of `inputs` has the bytes of one rank, all of one length. */
export function reduce(type: NcclType, op: NcclOp, inputs: readonly Uint8Array[]): Uint8Array {
  if (type in BIG_NUMBERS) {
    const kind = BIG_NUMBERS[type as keyof typeof BIG_NUMBERS]
    return bytesOf(
      reduceBig(
        op,
        inputs.map(input => new kind(aligned(input))),
      ),
    )
  }
  if (type in SMALL_FLOATS) {
    const format: SmallFloat = SMALL_FLOATS[type as keyof typeof SMALL_FLOATS]
    const sums = reduceNumbers(
      op,
      inputs.map(input => format.decode(new Uint16Array(aligned(input)))),
    )
    return bytesOf(format.encode(sums))
  }
  const kind = NUMBERS[type as keyof typeof NUMBERS]
  return bytesOf(
    reduceNumbers(
      op,
      inputs.map(input => new kind(aligned(input))),
    ),
  )
}

function reduceNumbers<T extends Numbers>(op: NcclOp, inputs: readonly T[]): T {
  const total = inputs[0].slice() as T
  const isInteger = !(total instanceof Float32Array || total instanceof Float64Array)
  const times = isInteger ? Math.imul : (a: number, b: number) => a * b
  for (const input of inputs.slice(1)) {
    for (let i = 0; i < total.length; i++) {
      const [a, b] = [total[i], input[i]]
      if (op === 'prod') total[i] = times(a, b)
      else if (op === 'max') total[i] = Math.max(a, b)
      else if (op === 'min') total[i] = Math.min(a, b)
      else total[i] = a + b
    }
  }
  if (op === 'avg') {
    for (let i = 0; i < total.length; i++) {
      const mean = total[i] / inputs.length
      total[i] = isInteger ? Math.trunc(mean) : mean
    }
  }
  return total
}

function reduceBig<T extends BigNumbers>(op: NcclOp, inputs: readonly T[]): T {
  const total = inputs[0].slice() as T
  for (const input of inputs.slice(1)) {
    for (let i = 0; i < total.length; i++) {
      const [a, b] = [total[i], input[i]]
      if (op === 'prod') total[i] = a * b
      else if (op === 'max' || op === 'min') total[i] = a > b === (op === 'max') ? a : b
      else total[i] = a + b
    }
  }
  if (op === 'avg') for (let i = 0; i < total.length; i++) total[i] /= BigInt(inputs.length)
  return total
}

/** The bytes in a buffer of their own. */
function aligned(bytes: Uint8Array): ArrayBuffer {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer
}

function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}
