// The report as one HTML file: frame, style, viewer and data. Nothing in it may reach the network, and no text of a
// recording becomes markup.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { describe } from '../base/bytes.js'
import { checkOptionNames } from '../base/option-names.js'
import { packageFile } from '../base/package-files.js'
import { encodePicture } from '../picture/codec.js'
import { makePicture } from '../picture/make-picture.js'
import { placedPolicy } from '../picture/placed-policy.js'
import type { PlacedPolicy } from '../picture/policy-picture.js'
import { recordedPlacements } from '../trace/placements/recorded-placements.js'
import type { Policy, ReplayReport } from '../trace/replay-result.js'
import type { Trace } from '../trace/trace.js'
import type { TuneReport } from '../trace/tune/tune-report.js'
import type { PageData } from './page-data.js'
import { pageRecording } from './page-text.js'
import { nameOf } from './replay-tables.js'
import type { ReportedTrace } from './reported-trace.js'

/** Options of `reportPage`; every one may be left out. */
export interface ReportOptions {
  /**
   * what `replay(trace, open, { placements: true })` found; the page then compares its policies, and shows where each
   * placed the blocks. Default: only what was recorded
   */
  readonly replay?: ReplayReport
  /** what `tune([trace])` found; its advice then stands beside the failed requests. Default: none */
  readonly tuned?: TuneReport
}

const SHOWN_FIRST: readonly Policy[] = ['recorded', 'cuda-mempool']
const MOST_EVENTS_WITH_ALL_MAPS = 200_000
/** The default of zlib; level 9 takes longer than the rest of the page. */
const GZIP_LEVEL = 6

/**
 * A recording as a page: the text of one HTML file that needs no other file and makes no request. It shows why memory
 * ran out, the memory of each policy, all allocations and where they lie, and who holds them. Throws TypeError for a
 * bad argument or option, RangeError for a replay of another trace, and MissingFileError in a bundle without the files
 * of the viewer.
 */
export function reportPage(trace: Trace, options: ReportOptions = {}): string {
  const isTrace = typeof trace === 'object' && trace !== null && 'blocks' in trace && 'action' in trace
  if (!isTrace) {
    throw new TypeError(`reportPage: trace must be a Trace of readSnapshot or recorded, not ${describe(trace)}`)
  }
  checkOptionNames('reportPage', options, ['replay', 'tuned'])
  const { replay = null, tuned = null } = options
  if (tuned !== null && !Array.isArray(tuned.advice)) {
    throw new TypeError(`tuned must be what tune([trace]) resolves to, not ${describe(tuned)}`)
  }
  if (replay !== null && !Array.isArray(replay.runs)) {
    throw new TypeError(`replay must be what replay(trace, open) resolves to, not ${describe(replay)}`)
  }
  if (replay !== null && replay.trace.events !== trace.events) {
    throw new RangeError(
      `replay is of ${replay.trace.events} events, and the trace has ${trace.events}; give the replay of this trace`,
    )
  }
  return pageOf([{ trace, replay, tuned, tab: trace.file }])
}

/** The page of these recordings, one tab for each. */
export function pageOf(recordings: readonly ReportedTrace[]): string {
  const data: PageData = {
    version: 1,
    recordings: recordings.map(pageRecording),
  }
  const json = JSON.stringify(data).replaceAll('<', '\\u003c')
  const pictures = recordings.map(({ trace, replay }, index) => {
    const bytes = encodePicture(makePicture(trace, placedOf(trace, replay)))
    const packed = gzipSync(bytes, { level: GZIP_LEVEL }).toString('base64')
    return `<script type="text/plain" id="picture-${index}">${packed}</script>`
  })
  const [style, script] = [viewerFile('page.css'), viewerFile('viewer.js')]
  const parts: Readonly<Record<string, string>> = {
    policy: contentPolicy(style, script),
    title: escaped(`${recordings[0]?.trace.file.split('/').at(-1)} — memory report`),
    style,
    data: [`<script type="application/json" id="data">${json}</script>`, ...pictures].join('\n'),
    script,
  }
  // One pass: the contents of a part are not replaced again.
  return viewerFile('page.html').replace(/\{\{(\w+)\}\}/g, (_, name: string) => parts[name])
}

/**
 * The policies of the picture. A model that placed all blocks as recorded has the map of the recording. In large
 * recordings only the two policies that are shown first have maps: each takes a byte for each event.
 */
function placedOf(trace: Trace, replay: ReplayReport | null): PlacedPolicy[] {
  const runs = replay?.runs ?? []
  const isKnown = runs.some(({ policy }) => policy === 'recorded')
  const recorded = isKnown ? [] : [placedPolicy('recorded', nameOf('recorded'), recordedPlacements(trace))]
  const replayed = runs.flatMap(({ policy, placements, placement }) => {
    if (placements === null) return []
    const placed = placedPolicy(policy, nameOf(policy, trace.settings), placements)
    const isRecorded = placement !== null && placement.exact === placement.allocations
    const hasMap = SHOWN_FIRST.includes(policy) || (!isRecorded && trace.events <= MOST_EVENTS_WITH_ALL_MAPS)
    return [hasMap ? placed : { ...placed, address: null }]
  })
  return [...recorded, ...replayed].filter(({ memory, reservedBytes }) => memory.length > 0 || reservedBytes)
}

/** Only the page's own script and style run. `blob:` is for the viewer's worker, and for pictures to save. */
function contentPolicy(style: string, script: string): string {
  const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
  return [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    'worker-src blob:',
    'img-src blob: data:',
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ')
}

function viewerFile(name: string): string {
  return readFileSync(packageFile(`dist/viewer/${name}`, 'a page'), 'utf8')
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`)
}
