// Names whose last writer ended before its commit. The next commit of the name, or `prune`, forgets the mark.

import type { RegionInfo } from '../region.js'
import type { Generation } from './generation.js'

export class Unfinished {
  /** by name, the oldest first */
  private readonly marks = new Map<string, RegionInfo>()

  /** Beyond `most` names the oldest mark is forgotten. */
  constructor(private readonly most: number) {}

  get size(): number {
    return this.marks.size
  }

  note(generation: Generation, now: number): void {
    this.marks.delete(generation.name)
    this.marks.set(generation.name, markOf(generation, now))
    if (this.marks.size > this.most) this.forget(this.marks.keys().next().value!)
  }

  /** Notes a mark of a keeper before. */
  restore(mark: RegionInfo): void {
    this.marks.set(mark.name, mark)
  }

  of(name: string): RegionInfo | undefined {
    return this.marks.get(name)
  }

  /** Whether there was a mark. */
  forget(name: string): boolean {
    return this.marks.delete(name)
  }

  all(): RegionInfo[] {
    return [...this.marks.values()]
  }
}

/** The mark of a name whose writer has not committed. */
export function markOf(generation: Generation, now: number): RegionInfo {
  return { ...generation.info(), state: 'unfinished', bytes: 0, readers: [], lastUse: now }
}
