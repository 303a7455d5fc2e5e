// The regions of a keeper that a process is connected to. The keeper is asked when the figures are read, and the next
// figures have its answer: reading never waits, and figures that are not read cost no request.

import type { RegionInfo } from '../core/keeper/region.js'
import { SERVES_TIMES } from '../core/libraries/lasting-answers.js'
import type { HeldRegion, Keep } from '../keep/keep.js'

/** A region at one moment. */
export interface RegionFigures extends Pick<RegionInfo, 'name' | 'version' | 'generation' | 'state' | 'bytes'> {
  /** UUID of the device; null until the keeper tells it */
  readonly device: string | null
  /** processes that have it attached; null until the keeper tells them */
  readonly readers: number | null
  /** its last attach or release, in milliseconds since 1970; null until the keeper tells it */
  readonly lastUse: number | null
  /** how this process has it, if it does */
  readonly here: HeldRegion['here'] | null
}

const watched = new WeakMap<Keep, KeptRegions>()

export class KeptRegions {
  private told: readonly RegionInfo[] = []
  private isAsking = false
  /** until then the answer serves: lists of many thousand regions take the keeper a part of a second */
  private untilMs = -Infinity

  private constructor(readonly keep: Keep) {
    this.ask()
  }

  static of(keep: Keep): KeptRegions {
    const known = watched.get(keep) ?? new KeptRegions(keep)
    watched.set(keep, known)
    return known
  }

  get closed(): boolean {
    return this.keep.held() === null
  }

  /** All regions as the keeper has told them, and those of this process that it has not told. */
  figures(): RegionFigures[] {
    this.ask()
    const untold = new Map((this.keep.held() ?? []).map(each => [each.generation, each]))
    const told = this.told.map(({ name, version, generation, state, bytes, device, readers, lastUse }) => {
      const here = untold.get(generation)?.here ?? null
      untold.delete(generation)
      return { name, version, generation, state, bytes, device, readers: readers.length, lastUse, here }
    })
    const unknown = { device: null, readers: null, lastUse: null }
    const own = [...untold.values()].map(each => {
      return { ...each, ...unknown, state: each.here === 'filling' ? ('filling' as const) : ('ready' as const) }
    })
    return [...told, ...own]
  }

  private ask(): void {
    const startMs = performance.now()
    if (this.isAsking || this.closed || startMs < this.untilMs) return
    this.isAsking = true
    const take = (told: readonly RegionInfo[]) => {
      const endMs = performance.now()
      this.told = told
      this.isAsking = false
      this.untilMs = endMs + SERVES_TIMES * (endMs - startMs)
    }
    this.keep.list().then(take, () => take([])) // a keeper that is away tells nothing
  }
}
