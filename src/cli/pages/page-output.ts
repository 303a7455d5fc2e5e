// For the commands that write a page: the recordings replayed with a progress bar, and the page as a file.

import { pageOf } from '../../recordings/report/page/page.js'
import type { PageDifference } from '../../recordings/report/page/page-data.js'
import { type ReportedTrace, reportedTrace, tabsOf } from '../../recordings/report/page/reported-trace.js'
import { sharePace } from '../../recordings/trace/pace.js'
import { replayDevices } from '../../recordings/trace/replay-devices.js'
import type { Policy } from '../../recordings/trace/replay-result.js'
import type { Trace } from '../../recordings/trace/trace.js'
import { onOneLine, UsageError } from '../exit.js'
import { checkOutput, writeOutput } from '../output-file.js'
import { withProgressOn } from '../recording-input.js'
import { note } from '../terminal.js'

const MOST_PAGE_BYTES = 64_000_000

/** Throws UsageError unless the path ends in .html and may be written. */
export function checkPage(path: string, force: boolean): void {
  if (!/\.html?$/i.test(path)) throw new UsageError(`--output: '${path}' does not end in .html`)
  checkOutput(path, force)
}

/** Replays all recordings, one after the other, and says which took too long. */
export async function reportedTraces(traces: readonly Trace[], policies?: readonly Policy[]): Promise<ReportedTrace[]> {
  const tabs = tabsOf(traces)
  sharePace(traces)
  const reported: ReportedTrace[] = []
  for (const [index, trace] of traces.entries()) {
    const found = await withProgressOn(trace, onProgress =>
      reportedTrace(trace, replayDevices(trace), tabs[index], {
        ...(policies === undefined ? {} : { policies }),
        onProgress,
      }),
    )
    if (found.givenUp !== undefined) note(onOneLine(found.givenUp))
    reported.push(found)
  }
  return reported
}

/** Writes the page, or throws UsageError if browsers could not open it. */
export async function writePage(
  path: string,
  reported: readonly ReportedTrace[],
  force: boolean,
  difference?: PageDifference,
): Promise<void> {
  const page = pageOf(reported, difference)
  if (page.length > MOST_PAGE_BYTES) {
    const megabytes = Math.round(page.length / 1e6)
    throw new UsageError(
      `the page would have ${megabytes} MB, more than browsers open well; --last 500k or --events 1M..2M of report makes it smaller`,
    )
  }
  await writeOutput(path, [page], force)
}
