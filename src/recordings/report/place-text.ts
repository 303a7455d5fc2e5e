// The places in a program that hold memory, as texts name them, and lists of them.

import { formatBytes } from '../../core/base/bytes.js'
import { printable, shortened } from '../../core/base/shown-text.js'
import type { Holder } from '../trace/failures/holders.js'
import { narrowed, shortSite } from '../trace/frames/short-path.js'
import { sizeLines } from './table.js'
import { counted } from './trace-lines.js'

/** Of a file's path and function, which may be of any length. */
const MOST_SITE_LETTERS = 4096
const MOST_SHOWN_LETTERS = 160

/** A site as a terminal may show it, with the end of its path, and cut if a name is very long. */
export function siteText(site: string): string {
  const short = narrowed(shortSite(site.slice(-MOST_SITE_LETTERS)), MOST_SHOWN_LETTERS)
  return printable(shortened(short, MOST_SHOWN_LETTERS))
}

/** Blocks of one place, by their call site if they have one. */
interface Place extends Pick<Holder, 'site'>, Partial<Pick<Holder, 'through' | 'throughAll' | 'before'>> {}

export function placeText({ site, through = null, throughAll = true, before = false }: Place): string {
  const place = site === null ? (before ? 'from before the recording' : 'without a call stack') : siteText(site)
  return through === null ? place : `${place}, ${throughAll ? 'in' : 'mostly in'} ${siteText(through)}`
}

/** Whether nothing tells whose blocks they are. */
export function isUnknown({ site, before }: Place): boolean {
  return site === null && !before
}

export function holderText(holder: Holder): string {
  return `${placeText(holder)} (${counted(holder.blocks, 'block')})`
}

/** A line for each holder, and one for the rest of `bytes`. */
export function holderLines(holders: readonly Holder[], bytes: number, width: number): string[] {
  const rows = holderRows(holders, bytes)
  return sizeLines(
    rows.map(row => [formatBytes(row.bytes), row.text]),
    width,
  )
}

/** A row for each holder, and one for the rest of `bytes`. */
export function holderRows(holders: readonly Holder[], bytes: number): { bytes: number; text: string }[] {
  const rest = bytes - holders.reduce((sum, holder) => sum + holder.bytes, 0)
  const rows = holders.map(holder => ({ bytes: holder.bytes, text: holderText(holder) }))
  return rest > 0 ? [...rows, { bytes: rest, text: 'other places' }] : rows
}
