// Numbers as the page shows them.

export { formatBytes } from '../src/core/base/bytes.js'
export { formatCount, formatShare } from '../src/recordings/report/number-format.js'

/** `1500` → `1.5 ms` */
export function formatUs(us: number): string {
  if (us < 1000) return `${Math.round(us)} µs`
  if (us < 1e6) return `${Number((us / 1e3).toPrecision(4))} ms`
  return us < 120e6 ? `${Number((us / 1e6).toPrecision(4))} s` : `${(us / 60e6).toFixed(1)} min`
}
