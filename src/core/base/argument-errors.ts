// The errors for wrong arguments. JavaScript has a TypeError and a RangeError of its own, for a defect such as a full
// call stack; the classes and codes here tell them apart. The codes are Node's.

import { beginAtProgram } from './call-stack.js'

/** A TypeError about an argument of this package. */
export class WrongTypeError extends TypeError {
  readonly code = 'ERR_INVALID_ARG_TYPE'
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    beginAtProgram(this)
  }
}

/** A RangeError about an argument of this package. */
export class OutOfRangeError extends RangeError {
  readonly code = 'ERR_OUT_OF_RANGE'
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    beginAtProgram(this)
  }
}
