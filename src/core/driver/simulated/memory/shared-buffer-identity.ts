// Recognises a SharedArrayBuffer that another thread has posted. host-registry.ts needs it to find registered memory.

/** The part of `Atomics.waitAsync` (ES2024) that is used here. */
type WaitAsync = (words: Int32Array, index: number, value: number) => { readonly async: boolean }

const { waitAsync } = Atomics as unknown as { readonly waitAsync: WaitAsync }

/**
 * Whether two buffers are the same memory. Each posted SharedArrayBuffer arrives as a new object, and JavaScript does
 * not show its address. But a wait on a word of one buffer ends by a notify through any buffer of the same memory.
 * Writes nothing. Other waiters on the last word may wake without a change, as all waiters must expect.
 */
export function isSameMemory(one: SharedArrayBuffer, other: SharedArrayBuffer): boolean {
  if (one === other || one.byteLength !== other.byteLength) return one === other
  const [words, otherWords] = [one, other].map(memory => new Int32Array(memory, 0, memory.byteLength >> 2))
  const last = words.length - 1
  if (last < 0) return false
  for (;;) {
    if (!waitAsync(words, last, Atomics.load(words, last)).async) continue // the word was written since the load
    const woken = Atomics.notify(otherWords, last)
    const left = Atomics.notify(words, last)
    if (woken === 0) return false
    if (left === 0) return true
    // Both calls woke a waiter, so another thread waits on the word too: try again.
  }
}
