// The report as one HTML file: frame, style, viewer and data. Nothing in it may reach the network, and no text of a
// recording becomes markup.

import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { packageFile } from '../../../core/base/package-files.js'
import { fileName, shortened } from '../../../core/base/shown-text.js'
import { checkReport, type ReplayReport } from '../../trace/replay-result.js'
import { checkTrace, type Trace } from '../../trace/trace.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import type { PageDifference } from './page-data.js'
import { framed } from './page-frame.js'
import { pagePicture } from './page-picture.js'
import { pageData } from './page-text.js'
import type { ReportedTrace } from './reported-trace.js'

/** Options of `reportPage`; every one may be left out. */
export interface ReportOptions {
  /**
   * what `replay(trace, open, { placements: true })` found; the page then compares its policies, and shows where each
   * placed the blocks. Default: only what was recorded
   */
  readonly replay?: ReplayReport
  /** the result of `tune([trace])`; its advice then stands beside the failed requests. Default: none */
  readonly tuned?: TuneReport
}

/** The default of zlib; level 9 takes longer than the rest of the page. */
const GZIP_LEVEL = 6

/**
 * A recording as a page: the text of one HTML file that needs no other file and makes no request. It shows why memory
 * ran out, the memory of each policy, all allocations and where they lie, and who holds them. Throws TypeError for a
 * bad argument or option, RangeError for a replay of another trace, and MissingFileError in a bundle without the files
 * of the viewer.
 */
export function reportPage(trace: Trace, options: ReportOptions = {}): string {
  checkTrace('reportPage', trace)
  checkOptionNames('reportPage', options, ['replay', 'tuned'])
  const { replay = null, tuned = null } = options
  if (tuned !== null && !Array.isArray(tuned.advice)) {
    throw new WrongTypeError(`tuned must be what tune([trace]) resolves to, not ${describe(tuned)}`)
  }
  if (replay !== null) checkReport('replay', replay)
  if (replay !== null && replay.trace.events !== trace.events) {
    throw new OutOfRangeError(
      `replay is of ${replay.trace.events} events, and the trace has ${trace.events}; give the replay of this trace`,
    )
  }
  return pageOf([{ trace, replay, tuned, tab: trace.file }])
}

/** The page of these recordings, one tab for each, and of the difference between the first two. */
export function pageOf(recordings: readonly ReportedTrace[], difference?: PageDifference): string {
  const json = JSON.stringify(pageData(recordings, difference)).replaceAll('<', '\\u003c')
  const pictures = recordings.map((recording, index) => {
    const packed = gzipSync(pagePicture(recording), { level: GZIP_LEVEL }).toString('base64')
    return `<script type="text/plain" id="picture-${index}">${packed}</script>`
  })
  return framed(viewerFile('page.html'), {
    title: `${shortened(fileName(recordings[0]?.trace.file ?? ''))} — memory report`,
    style: viewerFile('page.css'),
    data: [`<script type="application/json" id="data">${json}</script>`, ...pictures].join('\n'),
    script: viewerFile('viewer.js'),
  })
}

function viewerFile(name: string): string {
  return readFileSync(packageFile(`dist/viewer/${name}`, 'a page'), 'utf8')
}
