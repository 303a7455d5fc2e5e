/** Stores of one thread are seen by the others in their order, and a plain one is enough to publish what was written before. */
const STORES_IN_ORDER = process.arch === 'x64'

/** Stores so that whoever sees the value sees all that was written before. */
export function publish(words: Int32Array, index: number, value: number): void {
  if (STORES_IN_ORDER) words[index] = value
  else Atomics.store(words, index, value)
}
