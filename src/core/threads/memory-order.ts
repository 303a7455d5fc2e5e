// Release stores and acquire loads. x64 keeps a thread's stores in order, and its loads (TSO), so plain ones have
// these semantics.

const IN_ORDER = process.arch === 'x64'

/** A release store: a thread that loads the value with `loadAcquire` sees all earlier stores of this thread. */
export function storeRelease(words: Int32Array, index: number, value: number): void {
  if (IN_ORDER) words[index] = value
  else Atomics.store(words, index, value)
}

/** Two release stores in order. A call that is cut short makes both or none; on arm64 perhaps only the first. */
export function storeReleaseBoth(
  first: Int32Array,
  firstIndex: number,
  firstValue: number,
  second: Int32Array,
  secondIndex: number,
  secondValue: number,
): void {
  if (IN_ORDER) {
    first[firstIndex] = firstValue
    second[secondIndex] = secondValue
  } else {
    Atomics.store(first, firstIndex, firstValue)
    Atomics.store(second, secondIndex, secondValue)
  }
}

/** An acquire load: later loads see everything stored before the value. */
export function loadAcquire(words: Int32Array, index: number): number {
  return IN_ORDER ? words[index] : Atomics.load(words, index)
}
