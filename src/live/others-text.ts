// Sums and words of shelves and kept regions, which `top` and the live page both show.

import type { ModelState } from '../core/pool/shelf/model.js'
import { formatTime, MISSING } from '../recordings/report/number-format.js'
import type { RegionFigures } from './kept-regions.js'

/** The bytes of whole regions, and of those among them that no process has attached. */
export function sumOf(regions: readonly RegionFigures[]): { keptBytes: number; unusedBytes: number } {
  let [keptBytes, unusedBytes] = [0, 0]
  for (const { state, bytes, readers } of regions) {
    if (state !== 'ready' && state !== 'retired') continue
    keptBytes += bytes
    if (readers === 0) unusedBytes += bytes
  }
  return { keptBytes, unusedBytes }
}

/** `fallingAsleep` → `falling asleep` */
export function stateText(state: ModelState): string {
  return state.replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`)
}

/** `none`, or how many processes have a region attached. */
export function readersText(readers: number | null): string {
  return readers === null ? MISSING : String(readers || 'none')
}

/** A time at `thenMs`, as seen at `nowMs`: `3 h ago`. */
export function timeAgo(thenMs: number | null, nowMs: number): string {
  return thenMs === null ? MISSING : `${formatTime(nowMs - thenMs)} ago`
}
