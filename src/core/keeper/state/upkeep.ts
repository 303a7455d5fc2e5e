// Lists kept memory, and drops unused regions, as people ask.

import type { Requests } from '../messages.js'
import type { RegionInfo } from '../region.js'
import type { Generation } from './generation.js'
import type { KeptRegions } from './kept-regions.js'

/** Takes regions until it is full. */
interface Page {
  /** Whether the region was added. */
  add(info: RegionInfo): boolean
}

/** Adds the generations after a number, and the marks of unfinished names. Whether there are more. */
export function regionsAfter({ generations, unfinished }: KeptRegions, after: number, page: Page): boolean {
  const marks = unfinished.all().filter(mark => mark.generation > after)
  const kept = [...generations.values()].filter(({ number }) => number > after)
  const all: (Generation | RegionInfo)[] = [...marks, ...kept]
  all.sort((a, b) => numberOf(a) - numberOf(b))
  return all.some(each => !page.add('number' in each ? each.info() : each))
}

function numberOf(each: Generation | RegionInfo): number {
  return 'number' in each ? each.number : each.generation
}

/** Drops what a rule names, and adds it to the page. Whether there is more. */
export function pruned(regions: KeptRegions, rule: Requests['prune'], page: Page): boolean {
  const { all, name, unusedMs, unfinished } = rule
  const isNamed = (each: { readonly name: string }) => name === undefined || each.name === name
  if (unfinished === true || all === true) {
    for (const mark of regions.unfinished.all().filter(isNamed)) {
      if (!page.add(mark)) return true
      regions.unfinished.forget(mark.name)
    }
  }
  if (all !== true && name === undefined && unusedMs === undefined) return false
  if (unfinished === true && all !== true && unusedMs === undefined) return false
  for (const each of [...regions.generations.values()].filter(isNamed)) {
    if (each.state !== 'ready' || each.readers.size > 0) continue
    if (unusedMs !== undefined && regions.now() - each.lastUse < unusedMs) continue
    if (!page.add(each.info())) return true
    regions.retire(each)
  }
  return false
}
