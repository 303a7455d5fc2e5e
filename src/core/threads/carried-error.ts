// Errors on their way to another thread. Structured clone keeps JavaScript's own error classes, but of ours only the
// message.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { CudaError, DeviceLostError, PoolError, type PoolErrorCode } from '../base/errors.js'

interface Refusal {
  readonly call: string
  readonly result: number
  readonly resultName: string
  readonly message: string
}

export type CarriedError =
  | { readonly kind: 'refused' | 'lost'; readonly refusal: Refusal }
  | { readonly kind: 'pool'; readonly message: string; readonly code: PoolErrorCode }
  | { readonly kind: 'type' | 'range' | 'other'; readonly message: string }

/** A thrown value in a form that can be sent. */
export function carry(error: unknown): CarriedError {
  if (error instanceof CudaError) return { kind: 'refused', refusal: refusalOf(error) }
  if (error instanceof DeviceLostError) return { kind: 'lost', refusal: refusalOf(error.first) }
  if (error instanceof PoolError) return { kind: 'pool', message: error.message, code: error.code }
  if (error instanceof TypeError) return { kind: 'type', message: error.message }
  if (error instanceof RangeError) return { kind: 'range', message: error.message }
  return { kind: 'other', message: String(error) }
}

/** The same error here. */
export function uncarry(carried: CarriedError): Error {
  switch (carried.kind) {
    case 'refused':
      return cudaError(carried.refusal)
    case 'lost':
      return new DeviceLostError(cudaError(carried.refusal))
    case 'pool':
      return new PoolError(carried.message, carried.code)
    case 'type':
      return new WrongTypeError(carried.message)
    case 'range':
      return new OutOfRangeError(carried.message)
    case 'other':
      return new Error(carried.message)
  }
}

function refusalOf({ call, result, resultName, message }: CudaError): Refusal {
  return { call, result, resultName, message }
}

function cudaError({ call, result, resultName, message }: Refusal): CudaError {
  const begins = new CudaError(call, result, resultName).message
  return new CudaError(call, result, resultName, message.slice(begins.length + ': '.length))
}
