// The figures of torch.cuda.memory_summary(), a table, or of torch.cuda.memory_stats(), a printed dictionary.

import { exactSize, NUMBER, type RoundedSize, truncatedSize } from './rounded-size.js'

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
/** `'reserved_bytes.all.peak': 7`, `"num_ooms": 1`, `('num_ooms', 1)` */
const ENTRY = /\b([a-z_]{3,30}(?:\.all\.(?:current|peak))?)['"]?\s{0,4}[:,]\s{0,4}(\d{1,16})\b/g

/** The tables at the end of a log that are read: enough for all devices of the last moment. */
const MOST_TABLES = 64

/** The last table of each device, or else a dictionary. Of a table that is cut off only some figures are known. */
export function memorySummaries(text: string): MemorySummary[] {
  const tables = text.split(/(?=memory summary, device ID)/i).slice(1)
  if (tables.length === 0) return UNTITLED.test(text) ? [tableOf(text)] : statsOf(text)
  const last = new Map<number | null, MemorySummary>()
  for (const table of tables.slice(-MOST_TABLES)) {
    const summary = tableOf(table)
    last.set(summary.device, summary)
  }
  return [...last.values()].sort((a, b) => (a.device ?? 0) - (b.device ?? 0))
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

/** The dictionary of a text, if it has one. */
function statsOf(text: string): MemorySummary[] {
  if (!/\b(?:allocated|reserved)_bytes\.all\.current\b/.test(text)) return []
  const values = new Map<string, number>()
  for (const [, key, value] of text.matchAll(ENTRY)) if (!values.has(key)) values.set(key, Number(value))
  const figures = { ...NONE }
  for (const [key, name] of Object.entries(KEYS)) {
    const [current, peak] = ['current', 'peak'].map(which => values.get(`${key}.all.${which}`))
    if (current === undefined) continue
    figures[name] = { current: exactSize(current), peak: exactSize(peak ?? current) }
  }
  return [
    {
      device: null,
      outOfMemories: values.get('num_ooms') ?? null,
      retries: values.get('num_alloc_retries') ?? null,
      ...figures,
    },
  ]
}
