// Room on the call stack. An exception for want of stack can come out of any call; where a change must not stop halfway, the
// room is asked for beforehand.

const ARGUMENT_BYTES = 8
/** Some ten times what the deepest of our calls needs. */
const SMALL: readonly number[] = new Array((32 * 1024) / ARGUMENT_BYTES).fill(0)
/** Functions that run for the first time are compiled, which takes more. */
const LARGE: readonly number[] = new Array((128 * 1024) / ARGUMENT_BYTES).fill(0)

/** Throws the RangeError of a full stack where less than 32 KiB are left, before anything is changed. Takes some 3 µs. */
export function checkStack(): void {
  Reflect.apply(takeNothing, undefined, SMALL)
}

/** The same for 128 KiB. Takes some 20 µs. */
export function checkDeepStack(): void {
  Reflect.apply(takeNothing, undefined, LARGE)
}

/** Whether an exception is the engine's for a full stack. */
export function isFullStack(error: unknown): boolean {
  return error instanceof RangeError && error.message.startsWith('Maximum call stack')
}

function takeNothing(): void {}
