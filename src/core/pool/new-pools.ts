/** Hear of everything new in this thread that can be watched: it has memory, or counts or arranges that of pools. */
export const newPoolListeners: ((pool: object) => void)[] = []

/** Tells the listeners of a new pool, wrapper, queue, buffer, shelf or keep. */
export function announcePool(pool: object): void {
  for (const listener of newPoolListeners) listener(pool)
}
