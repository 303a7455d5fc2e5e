// The figures of torch.cuda.memory_summary(), a table, or of torch.cuda.memory_stats(), a printed dictionary.

import type { OutOfMemoryMessage } from './out-of-memory-message.js'
import { exactSize, exceeds, minus, NUMBER, plus, type RoundedSize, truncatedSize } from './rounded-size.js'

/** One figure of the allocator. */
export interface SummaryFigure {
  readonly current: RoundedSize
  /** since the start, or since the peaks were reset */
  readonly peak: RoundedSize
}

/** The figures of one device; null for those that the text does not have. */
export interface MemorySummary {
  /** null for memory_stats(), which does not have it */
  readonly device: number | null
  /** requests that failed */
  readonly outOfMemories: number | null
  /** how often PyTorch gave back all idle segments and asked the device again */
  readonly retries: number | null
  /** held by the program */
  readonly allocated: SummaryFigure | null
  /** held by the program, or freed and still in use by another stream */
  readonly active: SummaryFigure | null
  /** as `allocated`, before sizes were rounded up; since PyTorch 2.1 */
  readonly requested: SummaryFigure | null
  /** taken from the device */
  readonly reserved: SummaryFigure | null
  /** idle memory of segments that have blocks in use, too */
  readonly nonReleasable: SummaryFigure | null
}

type FigureName = 'allocated' | 'active' | 'requested' | 'reserved' | 'nonReleasable'
type Figures = Record<FigureName, SummaryFigure | null>

const NONE: Figures = { allocated: null, active: null, requested: null, reserved: null, nonReleasable: null }
const TITLE = /memory summary, device ID\s{1,20}(\d{1,4})/i
/** The head of the columns, where the lines above were not copied. */
const UNTITLED = /\bCur Usage\s{0,10}\|\s{0,10}Peak Usage/i
const RETRIES = /malloc retries:\s{0,20}(\d{1,15})/i
const FAILURES = /\bOOMs:\s{0,20}(\d{1,15})/i
/** The rows of all memory; those of a pool begin with `from`. */
const ROWS: Readonly<Record<string, FigureName>> = {
  'allocated memory': 'allocated',
  'active memory': 'active',
  'requested memory': 'requested',
  'gpu reserved memory': 'reserved',
  'reserved memory': 'reserved',
  'non-releasable memory': 'nonReleasable',
}
const CELL = new RegExp(`^\\s{0,40}${NUMBER}\\s{0,10}([KMGTP]i?B|B)`, 'i')
const KEYS: Readonly<Record<string, FigureName>> = {
  allocated_bytes: 'allocated',
  active_bytes: 'active',
  requested_bytes: 'requested',
  reserved_bytes: 'reserved',
  inactive_split_bytes: 'nonReleasable',
}
/** `'reserved_bytes': {'all': {'current': 7, 'peak': 9, …}` of memory_stats_as_nested_dict(). */
const NESTED = /\b([a-z_]{3,30})['"]?\s{0,4}[:,]\s{0,4}\{\s{0,40}['"]all['"]\s{0,4}:\s{0,4}\{([^{}]{1,300})\}/g
/** `'reserved_bytes.all.peak': 7`, `"num_ooms": 1`, `('num_ooms', 1)` */
const ENTRY = /\b([a-z_]{3,30}(?:\.all\.(?:current|peak))?)['"]?\s{0,4}[:,]\s{0,4}(\d{1,16})\b/g

/** The tables at the end of a log that are read: enough for all devices of the last moment. */
const MOST_TABLES = 64

/**
 * The last table of each device, or else the last dictionary; devices with failed requests come first. Of a table that
 * is cut off only some figures are known.
 */
export function memorySummaries(text: string): MemorySummary[] {
  const tables = text.split(/(?=memory summary, device ID)/i).slice(1)
  if (tables.length === 0) return UNTITLED.test(text) ? [tableOf(text)] : statsOf(text)
  const last = new Map<number | null, MemorySummary>()
  for (const table of tables.slice(-MOST_TABLES)) {
    const summary = tableOf(table)
    last.set(summary.device, summary)
  }
  const isWithout = ({ outOfMemories }: MemorySummary) => Number((outOfMemories ?? 0) === 0)
  return [...last.values()].sort((a, b) => isWithout(a) - isWithout(b) || (a.device ?? 0) - (b.device ?? 0))
}

/** Memory that the program freed, but another stream uses; null where a figure is missing. */
export function waitingIn({ active, allocated }: MemorySummary): RoundedSize | null {
  return active === null || allocated === null ? null : minus(active.current, allocated.current)
}

/** The waiting memory by the summary of the same moment, whose device has as much reserved; null without one. */
export function waitingAt(
  { device, inUse, idle }: OutOfMemoryMessage,
  summaries: readonly MemorySummary[],
): RoundedSize | null {
  const summary = summaries.find(each => device === null || each.device === null || each.device === device)
  const waiting = summary === undefined ? null : waitingIn(summary)
  if (waiting === null || inUse === null || idle === null || summary?.reserved == null) return null
  const isSame = haveCommon(summary.reserved.current, plus(inUse, idle)) && exceeds(waiting, idle) !== 'yes'
  return isSame ? { ...waiting, least: Math.max(0, waiting.least) } : null
}

function haveCommon(one: RoundedSize, other: RoundedSize): boolean {
  return one.least <= other.most && other.least <= one.most
}

function tableOf(text: string): MemorySummary {
  const figures = { ...NONE }
  // The table ends long before; the rest of a log is not part of it.
  for (const line of text.split('\n', 80)) {
    const cells = line.split('|')
    const at = cells.findIndex(cell => cell.trim().toLowerCase() in ROWS)
    if (at === -1) continue
    const name = ROWS[cells[at].trim().toLowerCase()]
    const [current, peak] = [cells[at + 1], cells[at + 2]].map(cell => CELL.exec(cell ?? ''))
    if (current === null || peak === null) continue
    figures[name] ??= { current: truncatedSize(current[1], current[2]), peak: truncatedSize(peak[1], peak[2]) }
  }
  return {
    device: countIn(text, TITLE),
    outOfMemories: countIn(text, FAILURES),
    retries: countIn(text, RETRIES),
    ...figures,
  }
}

function countIn(text: string, pattern: RegExp): number | null {
  const found = pattern.exec(text.slice(0, 2000))
  return found === null ? null : Number(found[1])
}

/** The last dictionary of a text, if it has one. */
function statsOf(text: string): MemorySummary[] {
  if (!/\b(?:allocated|reserved)_bytes\b/.test(text)) return []
  const flat = text.replace(NESTED, (_, key, entries) => entries.replace(/\b(?=current\b|peak\b)/g, `${key}.all.`))
  const values = new Map<string, number>()
  for (const [, key, value] of flat.matchAll(ENTRY)) {
    // A dictionary has each of these once: here the next one begins.
    if (values.has(key) && key.includes('.')) values.clear()
    values.set(key, Number(value))
  }
  const figures = { ...NONE }
  for (const [key, name] of Object.entries(KEYS)) {
    const [current, peak] = ['current', 'peak'].map(which => values.get(`${key}.all.${which}`))
    if (current === undefined) continue
    figures[name] = { current: exactSize(current), peak: exactSize(peak ?? current) }
  }
  if (figures.allocated === null && figures.reserved === null) return []
  return [
    {
      device: null,
      outOfMemories: values.get('num_ooms') ?? null,
      retries: values.get('num_alloc_retries') ?? null,
      ...figures,
    },
  ]
}
