// Room on the call stack. Any call can throw when the stack is full. Code that must not stop halfway checks for room
// first.

const ARGUMENT_BYTES = 8
/** About ten times the stack of the deepest call of this library. */
const SMALL: readonly number[] = new Array((32 * 1024) / ARGUMENT_BYTES).fill(0)
/** A function is compiled at its first run, which needs more stack. */
const LARGE: readonly number[] = new Array((128 * 1024) / ARGUMENT_BYTES).fill(0)

/** Throws the RangeError of a full stack if less than 32 KiB are left. Takes about 3 µs. */
export function checkStack(): void {
  Reflect.apply(takeNothing, undefined, SMALL)
}

/** As `checkStack`, for 128 KiB. Takes about 20 µs. */
export function checkDeepStack(): void {
  Reflect.apply(takeNothing, undefined, LARGE)
}

/** Whether `error` is V8's error for a full stack. */
export function isFullStack(error: unknown): boolean {
  return error instanceof RangeError && error.message.startsWith('Maximum call stack')
}

function takeNothing(): void {}
