import { beginAtProgram } from './call-stack.js'

/**
 * A RangeError of this package about an argument. JavaScript has RangeErrors of its own, for a full call stack or an
 * array that is too long. Those are defects, and the class tells them apart.
 */
export class OutOfRangeError extends RangeError {
  constructor(message: string) {
    super(message)
    beginAtProgram(this)
  }
}
