// Refusals of foreign files, each with its remedy. The first bytes tell the kind, or the ending of the name.

import { isSqlite } from './nsight-sqlite.js'
import { shellWord } from './shell-word.js'

const RECORD = "to record a run: torch.cuda.memory._record_memory_history(), later _dump_snapshot('run.pickle')"
const TIMELINE =
  "is a memory timeline of torch.profiler, which has sums of categories, not allocations; use the profiler's " +
  'export_chrome_trace with profile_memory=True, or _dump_snapshot'

const REPORT_OF_NSIGHT = /\.(?:nsys-rep|qdrep|qdstrm)$/i

/** The kinds by their first bytes. */
const FOREIGN: readonly [pattern: RegExp, refusal: string][] = [
  [/^version https:\/\/git-lfs\.github\.com\/spec\//, 'is a Git LFS pointer, not the file itself: git lfs pull'],
  [/^[./\w-]{0,200}annex\/objects\//, 'is a git-annex pointer, not the file itself: git annex get'],
  [/^PK/, 'is a ZIP archive, as torch.save makes them; take a snapshot with _dump_snapshot instead'],
  [/^\s*(?:<!doctype html|<html)[\s\S]*memory timeline/i, TIMELINE],
  // The policy that all pages of this package begin with.
  [
    /^\s*<!doctype html[\s\S]*"default-src 'none'; script-src 'sha256-/i,
    'is a page; the recording that it was made from is read',
  ],
  [/^\s*(?:<!doctype html|<html)/i, 'is a web page, such as a sign-in, instead of the file: download the file itself'],
]
const TIMELINE_JSON = /^\s*\[\s*\[\s*-?\d/
const MESSAGE = /out of memory\.?\s+Tried to allocate|memory summary, device ID|Cur Usage\s{0,10}\|/i

/** Whether JSON is of a tool whose files are refused. */
export function isForeignJson(start: Buffer): boolean {
  return TIMELINE_JSON.test(start.toString('latin1', 0, 64))
}

/** Whether a text begins with a message, which `why` reads. */
export function isMessage(start: Buffer): boolean {
  return MESSAGE.test(start.toString('latin1'))
}

/** The refusal of a file by its start; null for one that is not known. */
export function foreignKind(start: Buffer): string | null {
  const text = start.toString('latin1')
  if (isSqlite(start)) return 'is an SQLite database, which is read only as a file that is not packed'
  if (isForeignJson(start)) return TIMELINE
  const known = FOREIGN.find(([pattern]) => pattern.test(text))
  if (known !== undefined) return known[1]
  return isMessage(start) ? 'is an out-of-memory message or summary, which cuda-mempool why reads' : null
}

/** The refusal of a file of unknown contents, by a reader of recordings, or by `why` if texts were searched. */
export function unknownKind(file: string, ofTexts: boolean): string {
  if (REPORT_OF_NSIGHT.test(file)) {
    return `is a report of Nsight Systems, which only its programs read; write: nsys export --type sqlite ${shellWord(file)}`
  }
  const recordings =
    "is no recording: a snapshot of PyTorch, a trace of torch.profiler, RMM's CSV or an export of Nsight Systems " +
    '(nsys export --type sqlite) is wanted'
  return ofTexts
    ? `${recordings}, or a log with PyTorch's error message or memory_summary(); ${RECORD}`
    : `${recordings}; cuda-mempool why also reads error messages and memory_summary(); ${RECORD}`
}
