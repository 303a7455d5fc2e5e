// The call sites that hold memory at the peaks of two recordings, in pairs. Between two versions of a program lines
// move, and a folder may have another name on another machine. So sites are paired within a file's name and a function.

import { type Holder, holdersOf } from '../failures/holders.js'
import type { Trace } from '../trace.js'

/** A call site at the peaks of a base and of a run. */
export interface SiteGrowth {
  /** as `file:line function`, of the run if it has the site; null without a call stack */
  readonly site: string | null
  /** the line of PyTorch that the site called for most of its bytes, if any */
  readonly through: string | null
  /** whether these are blocks from before the recording, without a call stack */
  readonly before: boolean
  /** requested bytes in the base, and in the run */
  readonly bytes: readonly [number, number]
  /** how many blocks these are */
  readonly blocks: readonly [number, number]
}

type Key = (holder: Holder) => string
type Pair = readonly [Holder | undefined, Holder | undefined]

const SITE = /^(.*):(\d+) (.*)$/s
const site: Key = each => `${each.site}`
const amount: Key = ({ bytes, blocks }) => `${bytes} ${blocks}`

/** The sites that hold the blocks `liveInBase` and `liveInRun`. */
export function siteGrowths(
  base: Trace,
  liveInBase: readonly number[],
  run: Trace,
  liveInRun: readonly number[],
): SiteGrowth[] {
  const groups = new Map<string, { base: Holder[]; run: Holder[] }>()
  const groupOf = (holder: Holder) => {
    const key = functionOf(holder)
    const group = groups.get(key) ?? { base: [], run: [] }
    groups.set(key, group)
    return group
  }
  for (const holder of holdersOf(base, liveInBase)) groupOf(holder).base.push(holder)
  for (const holder of holdersOf(run, liveInRun)) groupOf(holder).run.push(holder)
  return [...groups.values()].flatMap(group => paired(group.base, group.run).map(growthOfPair))
}

/** The name of the file without its folders, and the function. */
function functionOf({ site, before }: Holder): string {
  if (site === null) return before ? ' before' : ' unknown'
  const [, file = site, , name = ''] = SITE.exec(site) ?? []
  return `${file.split(/[/\\]/).at(-1)}\n${name}`
}

/** Pairs the sites of one function. */
function paired(base: readonly Holder[], run: readonly Holder[]): Pair[] {
  const places = new Set(run.map(site))
  // Lines have moved if one of the base is gone. Then equal amounts tell more than equal lines, and the order the rest.
  const keys = base.every(each => places.has(site(each)))
    ? [site]
    : [(each: Holder) => `${site(each)}\n${amount(each)}`, amount, site]
  const pairs: Pair[] = []
  let [restOfBase, restOfRun] = [base, run]
  for (const key of keys) [restOfBase, restOfRun] = pairsBy(key, restOfBase, restOfRun, pairs)
  const [first, second] = [byLine(restOfBase), byLine(restOfRun)]
  const count = Math.max(first.length, second.length)
  return [...pairs, ...Array.from({ length: count }, (_, i) => [first[i], second[i]] as const)]
}

/** Adds the pairs with equal keys to `pairs`, and returns what has no partner. */
function pairsBy(key: Key, base: readonly Holder[], run: readonly Holder[], pairs: Pair[]): [Holder[], Holder[]] {
  const waiting = new Map<string, Holder[]>()
  for (const each of byLine(base).reverse()) {
    const alike = waiting.get(key(each))
    if (alike === undefined) waiting.set(key(each), [each])
    else alike.push(each)
  }
  const rest = byLine(run).filter(each => {
    const partner = waiting.get(key(each))?.pop()
    if (partner !== undefined) pairs.push([partner, each])
    return partner === undefined
  })
  return [[...waiting.values()].flat(), rest]
}

function byLine(holders: readonly Holder[]): Holder[] {
  const lines = holders.map(each => ({ each, line: Number(SITE.exec(each.site ?? '')?.[2] ?? 0) }))
  return lines.sort((a, b) => a.line - b.line).map(({ each }) => each)
}

function growthOfPair([base, run]: Pair): SiteGrowth {
  const { site, through, before } = (run ?? base)!
  return {
    site,
    through,
    before,
    bytes: [base?.bytes ?? 0, run?.bytes ?? 0],
    blocks: [base?.blocks ?? 0, run?.blocks ?? 0],
  }
}
