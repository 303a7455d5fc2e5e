// Memory that went back to the device, in a sentence for each of those who gave it back.

import { formatBytes } from '../../../core/base/bytes.js'
import type { GiveBackSite, GiveBacks, ReplayReport } from '../../trace/replay-result.js'
import { siteText } from '../place-text.js'
import { RECORDERS } from '../recorders.js'
import { counted } from '../trace-lines.js'

const MOST_SITES = 3

/** A sentence for each of those who gave memory back. */
export function giveBackLines({ giveBacks, recorder, settings }: ReplayReport['trace']): string[] {
  return giveBacks.map(given => {
    const bytes = `${formatBytes(given.bytes)}${given.times === 1 ? '' : ' together'}`
    const often = given.times === 1 ? '' : ` ${counted(given.times, 'time')}`
    const places = placesOf(given)
    if (given.by === 'program')
      return `The program itself called empty_cache()${often}, which gave back ${bytes}${places}.`
    if (given.by === null) return `${bytes} went back to the device${often}; the recording does not tell by whom.`
    const collects = settings?.includes('garbage_collection_threshold')
      ? ', or above garbage_collection_threshold,'
      : ''
    const full = `${RECORDERS[recorder].allocator} ran full${collects}${often} and gave back ${bytes}`
    const unsure = given.inferred ? ' Without its call stacks, it may have been empty_cache() too.' : ''
    return `${full}${places}. It then asks again, which waits for the GPU.${unsure}`
  })
}

/** ` at a.py:1 f`, or several places with their shares. */
function placesOf({ sites, times }: GiveBacks): string {
  const named = sites.filter(({ site }) => site !== null)
  if (named.length === 0) return ''
  const [first] = named
  if (sites.length === 1) return `${times === 1 ? ' at' : ', all at'} ${siteText(first.site!)}`
  const share = ({ site, times: often, bytes }: GiveBackSite) =>
    `${siteText(site!)} (${counted(often, 'time')}, ${formatBytes(bytes)})`
  const others = sites.length - Math.min(named.length, MOST_SITES)
  const places = named.slice(0, MOST_SITES).map(share).join(', ')
  return `: at ${places}${others > 0 ? ` and ${counted(others, 'other place')}` : ''}`
}
