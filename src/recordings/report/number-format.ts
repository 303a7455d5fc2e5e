// Numbers as people read them; byte counts are in core/base/bytes.ts. A missing number is a dash.

export const MISSING = '–'

/** A whole number: `22868` → `22,868`. Not by its locale, whose first use takes 5 ms. */
export function formatCount(count: number | null): string {
  return count === null ? MISSING : String(count).replace(/\B(?=(?:\d{3})+$)/g, ',')
}

/** `0.1894` → `18.9 %` */
export function formatShare(share: number | null): string {
  return share === null ? MISSING : `${decimal(share * 100)} %`
}

/** `1.2389` → `1.24`, `516.3` → `516` */
export function formatRatio(ratio: number | null): string {
  if (ratio === null) return MISSING
  return ratio < 10 ? ratio.toFixed(2) : formatCount(Math.round(ratio))
}

/** Nanoseconds: `38` → `38 ns`, `52100` → `52.1 µs`. */
export function formatNs(ns: number | null): string {
  if (ns === null) return MISSING
  if (ns < 1e3) return `${Math.round(ns)} ns`
  if (ns < 1e6) return `${decimal(ns / 1e3)} µs`
  return ns < 1e9 ? `${decimal(ns / 1e6)} ms` : `${(ns / 1e9).toFixed(2)} s`
}

/** Units of long times, in milliseconds. */
export const TIME_UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Milliseconds as a time: `90 s`, `3 h`; at least two of the unit, rounded down. */
export function formatTime(ms: number): string {
  const [unit, size] = Object.entries(TIME_UNITS).findLast(([, each]) => ms >= 2 * each) ?? ['s', TIME_UNITS.s]
  return `${Math.max(0, Math.floor(ms / size))} ${unit}`
}

/** `1920000` in a second → `1.92 M/s` */
export function formatRate(perSecond: number | null): string {
  if (perSecond === null) return MISSING
  if (perSecond >= 1e6) return `${(perSecond / 1e6).toFixed(2)} M/s`
  return perSecond >= 1e3 ? `${Math.round(perSecond / 1e3)} k/s` : `${Math.round(perSecond)} /s`
}

/** One decimal below 100, none from there on. */
function decimal(value: number): string {
  return value.toFixed(Math.abs(value) < 100 ? 1 : 0)
}
