// Numbers as the page shows them.

import { formatBytes } from '../src/base/bytes.js'

export { formatBytes }

export function formatCount(count: number): string {
  return count.toLocaleString('en-US')
}

export function formatShare(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}

/** `1500` → `1.5 ms` */
export function formatUs(us: number): string {
  if (us < 1000) return `${Math.round(us)} µs`
  if (us < 1e6) return `${Number((us / 1e3).toPrecision(4))} ms`
  return us < 120e6 ? `${Number((us / 1e6).toPrecision(4))} s` : `${(us / 60e6).toFixed(1)} min`
}

/** A label of the axis at `place`, of a view that has labels `step` apart. */
export function axisLabel(axis: 'event' | 'time', place: number, step: number): string {
  if (axis === 'event') return formatCount(place)
  const [unit, size] = step >= 1e6 ? ['s', 1e6] : step >= 1e3 ? ['ms', 1e3] : ['µs', 1]
  return `${Number((place / (size as number)).toFixed(3)).toLocaleString('en-US')} ${unit}`
}

/** About `count` round places from `from` to `to`. */
export function ticksOf(from: number, to: number, count: number): { places: number[]; step: number } {
  const wanted = (to - from) / Math.max(1, count)
  const power = 10 ** Math.floor(Math.log10(wanted))
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= wanted) ?? 10 * power
  const places: number[] = []
  for (let i = Math.ceil(from / step); i * step <= to; i++) places.push(i * step)
  return { places, step }
}

/** About `count` round byte counts up to `top`. */
export function byteTicks(top: number, count: number): number[] {
  const unit = 2 ** (10 * Math.floor(Math.log2(Math.max(1, top)) / 10))
  const { places } = ticksOf(0, top / unit, count)
  return places.map(place => place * unit)
}
