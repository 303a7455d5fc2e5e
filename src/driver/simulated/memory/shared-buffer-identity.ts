/** `Atomics.waitAsync` of ES2024, as far as it is used here. */
type WaitAsync = (words: Int32Array, index: number, value: number) => { readonly async: boolean }

const { waitAsync } = Atomics as unknown as { readonly waitAsync: WaitAsync }

/**
 * Whether two buffers are the same memory: a SharedArrayBuffer that comes from another thread is another object each time,
 * and nothing tells its address. But who waits for a word is woken by whoever names that word, by any buffer. Writes
 * nothing; others that wait for the last word are woken without a reason, as every waiter must expect.
 */
export function isSameMemory(one: SharedArrayBuffer, other: SharedArrayBuffer): boolean {
  if (one === other || one.byteLength !== other.byteLength) return one === other
  const [words, otherWords] = [one, other].map(memory => new Int32Array(memory, 0, memory.byteLength >> 2))
  const last = words.length - 1
  if (last < 0) return false
  for (;;) {
    if (!waitAsync(words, last, Atomics.load(words, last)).async) continue // written meanwhile
    const woken = Atomics.notify(otherWords, last)
    const left = Atomics.notify(words, last)
    if (woken === 0) return false
    if (left === 0) return true
    // Both found somebody, so somebody else waits as well: ask again.
  }
}
