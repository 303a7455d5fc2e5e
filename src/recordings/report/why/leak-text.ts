// The memory that steps leave behind, and the call sites whose memory grows.

import { formatBytes } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import type { GrowingSite } from '../../trace/analysis/growing-sites.js'
import type { SiteBlocks } from '../../trace/analysis/site-sums.js'
import { LEAST_BYTES_A_STEP, type StepLeaks } from '../../trace/analysis/step-leaks.js'
import { LATER_STEPS, type Steps } from '../../trace/analysis/steps.js'
import { formatCount } from '../number-format.js'
import { placeText } from '../place-text.js'
import { sizeLines, wrapText } from '../table.js'
import { counted } from '../trace-lines.js'

const MOST_SITES = 5
const GROWS_BY_STEPS = 'Memory grows from step to step'
const GROWS_ALONG = 'Memory grows through the whole recording'
const LEAK_OR_CACHE = 'That is a leak, or a cache that is not full yet.'
const GROWS_NOWHERE = 'Memory grows, but at no one call site.'
/** In a sentence. */
const MOST_KEPT = 2

/** Memory of a recording that grows. */
export interface Growth {
  readonly steps: Steps | null
  /** null without steps */
  readonly stepLeaks: StepLeaks | null
  /** the sites that grow through the whole recording */
  readonly sites: readonly GrowingSite[]
}

/** The sentences on steps and growth, with their lists. */
export function growthText({ steps, stepLeaks, sites }: Growth, width: number, pattern?: RegExp): string[] {
  const found = steps === null ? stepsMissing(pattern) : [stepsSentence(steps, stepLeaks)]
  const parts = found.map(line => wrapText(line, width))
  if (stepLeaks !== null && stepLeaks.sites.length > 0) {
    const title = `${GROWS_BY_STEPS} at these call sites:`
    const lines = stepLeaks.sites.map(site => {
      const inSteps = `${counted(site.leftBlocks, 'block')} in ${formatCount(site.steps)} of ${formatCount(stepLeaks.judged)} steps`
      const inAll = `kept to the end: ${counted(site.blocks, 'block')}, ${formatBytes(site.bytes)}`
      return [rateOf(site), `${nameOf(site)} (${inSteps}; ${inAll})`] as const
    })
    parts.push([wrapText(title, width), ...listed(lines, width)].join('\n'))
  } else if (steps === null && sites.length > 0) {
    const title = `${GROWS_ALONG} at these call sites. ${LEAK_OR_CACHE} No steps are marked: a block may be one of each step.`
    const lines = sites.map(site => [formatBytes(site.bytes), `${nameOf(site)} (${growthOf(site)})`] as const)
    parts.push([wrapText(title, width), ...listed(lines, width)].join('\n'))
  }
  return parts.length === 0 ? [] : [parts.join('\n')]
}

/** Growth as one sentence, with the place that grows most. */
interface Grown {
  readonly text: string
  /** that stay to the end, at all places that grow; 0 if they are not known */
  readonly bytes: number
}

/** The sentence on growth; null if nothing grows. `growthText` has all places. */
export function growthSentence({ steps, stepLeaks, sites }: Growth): Grown | null {
  const [leak] = stepLeaks?.sites ?? []
  if (leak !== undefined) {
    const { sites: all } = stepLeaks!
    const most = `${GROWS_BY_STEPS}: ${rateOf(leak)} ${atPlace(leak)}`
    return { text: `${most}${beside(all.length)}.`, bytes: bytesOf(all) }
  }
  if (steps !== null) return stepLeaks?.grows ? { text: GROWS_NOWHERE, bytes: 0 } : null
  if (sites.length === 0) return null
  const most = `${GROWS_ALONG}: ${formatBytes(sites[0].bytes)} ${atPlace(sites[0])}`
  return { text: `${most}${beside(sites.length)}. ${LEAK_OR_CACHE}`, bytes: bytesOf(sites) }
}

function beside(places: number): string {
  return places === 1 ? '' : `, and less at ${counted(places - 1, 'other place')}`
}

function bytesOf(sites: readonly SiteBlocks[]): number {
  return sites.reduce((sum, { bytes }) => sum + bytes, 0)
}

function rateOf({ leftBytes, steps }: StepLeaks['sites'][number]): string {
  return `${formatBytes(leftBytes / steps)} a step`
}

function atPlace(place: SiteBlocks): string {
  return place.site === null ? nameOf(place) : `at ${nameOf(place)}`
}

function nameOf({ site, blockBytes }: SiteBlocks): string {
  return placeText({ site }) + (site === null ? `, blocks of ${formatBytes(blockBytes ?? 0)}` : '')
}

function growthOf({ site, blockBytes, blocks, firstBytes }: GrowingSite): string {
  if (firstBytes !== null) {
    const larger =
      blocks === 1 ? 'a larger block each time' : `${counted(blocks, 'block')}, each instead of a smaller one`
    return `${larger}, the first ${formatBytes(firstBytes)}`
  }
  const each = site === null || blockBytes === null ? '' : ` of ${formatBytes(blockBytes)}`
  return `${counted(blocks, 'block')}${each}, kept to the end`
}

function listed(lines: readonly (readonly [string, string])[], width: number): string[] {
  const others = lines.length - MOST_SITES
  const shownLines = sizeLines(lines.slice(0, MOST_SITES), width)
  return others > 0 ? [...shownLines, `  and ${counted(others, 'other place')}`] : shownLines
}

function stepsMissing(pattern?: RegExp): string[] {
  return pattern === undefined ? [] : [`No annotation of the recording matches ${pattern.source}.`]
}

function stepsSentence({ name, steps }: Steps, leaks: StepLeaks | null): string {
  const known = steps.filter(({ leftBytes }) => leftBytes !== null)
  const count = `${counted(steps.length, 'step')}, by the ends of ${shown(name)}`
  if (known.length === 0) return `${count}: too few to tell what each leaves behind.`
  const unjudged = `The last ${formatCount(LATER_STEPS)} are too near to the end to judge.`
  const judged = known.length === 1 ? '' : `of the first ${formatCount(known.length)}, `
  const left = known.flatMap(({ leftBytes }, i) =>
    leftBytes! >= LEAST_BYTES_A_STEP ? [{ step: i + 1, leftBytes }] : [],
  )
  if (left.length === 0)
    return `${count}: ${known.length === 1 ? 'the first left no' : `${judged}none left`} memory behind. ${unjudged}`
  const [first, ...later] = left
  const one = `step ${formatCount(first.step)} left ${formatBytes(first.leftBytes!)} that stay`
  if (later.length === 0) {
    const none = known.length === 1 ? '' : '; no other left anything'
    return `${count}: ${judged}${one}${none}. ${unjudged}`
  }
  const most = later.reduce((a, b) => (b.leftBytes! > a.leftBytes! ? b : a))
  const grows = leaks === null || leaks.sites.length > 0 ? '' : growsAtNone(leaks)
  return (
    `${count}: ${one}; ${formatCount(later.length)} of ${counted(known.length - first.step, 'later step')} left ` +
    `something too, at most ${formatBytes(most.leftBytes!)} (step ${formatCount(most.step)}).${grows} ${unjudged}`
  )
}

/** The blocks that stay, if no call site grows. */
function growsAtNone({ grows, kept }: StepLeaks): string {
  const growth = grows ? ` ${GROWS_NOWHERE}` : ''
  if (kept.length === 0) return growth
  const named = kept.slice(0, MOST_KEPT).map(each => {
    return `${formatBytes(each.bytes)} of ${nameOf(each)} (${counted(each.blocks, 'block')})`
  })
  if (kept.length > MOST_KEPT) named.push(counted(kept.length - MOST_KEPT, 'other place'))
  return `${growth} To the end stay ${named.join(', ')}.`
}
