/** Processors that keep the order of a thread's loads, and of its stores: plain ones are enough to hand data over. */
const IN_ORDER = process.arch === 'x64'

/** Stores so that a thread which sees the value sees all that was written before. */
export function publish(words: Int32Array, index: number, value: number): void {
  if (IN_ORDER) words[index] = value
  else Atomics.store(words, index, value)
}

/** Publishes two values one after the other; a call that is cut short publishes both or none, or on arm64, where it calls, perhaps the first. */
export function publishBoth(
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

/** Loads a published value so that later loads see all that was written before it. */
export function seen(words: Int32Array, index: number): number {
  return IN_ORDER ? words[index] : Atomics.load(words, index)
}
