/** Hear of everything new in this thread that can be watched: it has memory, or counts a part of a pool's. */
export const newPoolListeners: ((pool: object) => void)[] = []

/** Tells the listeners of a new pool, wrapper, queue or buffer. */
export function announcePool(pool: object): void {
  for (const listener of newPoolListeners) listener(pool)
}
