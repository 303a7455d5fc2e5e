// The time of recorded events. The names of globals are looked up at each use, and `timeOrigin` is computed each time.

const { performance } = globalThis
const ORIGIN_MS = performance.timeOrigin

/** Microseconds since 1970. */
export function unixMicroseconds(): number {
  return Math.round((ORIGIN_MS + performance.now()) * 1000)
}
