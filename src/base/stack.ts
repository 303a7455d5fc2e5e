// Room on the call stack. An exception for want of stack can come out of any call; where a change must not stop halfway, the
// room is asked for beforehand.

/** Arguments of 8 bytes each, which a call must push: 32 KiB, some ten times what the deepest of our calls needs. */
const ARGUMENTS: readonly number[] = new Array(4096).fill(0)

/** Throws the RangeError of a full stack where less than 32 KiB are left, before anything is changed. Takes some microseconds. */
export function checkStack(): void {
  Reflect.apply(takeNothing, undefined, ARGUMENTS)
}

function takeNothing(): void {}
