// The report as one HTML file: frame, style, viewer and data. Nothing in it may reach the network, and no text of a
// recording becomes markup.

import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { MissingFileError } from '../base/errors.js'
import { encodePicture } from '../picture/codec.js'
import { makePicture } from '../picture/make-picture.js'
import type { PlacedPolicy } from '../picture/policy-picture.js'
import type { ReplayReport } from '../trace/replay-result.js'
import type { Trace } from '../trace/trace.js'
import type { PageData } from './page-data.js'
import { pageRecording } from './page-text.js'

/** A trace, and what replays of it found. */
export interface ReportedTrace {
  readonly trace: Trace
  readonly replay: ReplayReport | null
  readonly placed: readonly PlacedPolicy[]
  /** its name among several */
  readonly tab: string
}

/** More than the default packs 3 % better, and takes twice as long. */
const GZIP_LEVEL = 6

/** The page of these recordings, one tab for each. */
export function pageOf(recordings: readonly ReportedTrace[]): string {
  const data: PageData = {
    version: 1,
    recordings: recordings.map(({ trace, replay, tab }) => pageRecording(trace, replay, tab)),
  }
  const json = JSON.stringify(data).replaceAll('<', '\\u003c')
  const pictures = recordings.map(({ trace, placed }, index) => {
    const bytes = encodePicture(makePicture(trace, placed))
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
  // One pass: what a part contains is not replaced again.
  return viewerFile('page.html').replace(/\{\{(\w+)\}\}/g, (_, name: string) => parts[name])
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
  const path = fileURLToPath(new URL(`../../viewer/${name}`, import.meta.url))
  if (!existsSync(path)) {
    throw new MissingFileError(
      `a page needs ${name} of cuda-mempool, which is missing at ${path}; leave cuda-mempool out of the bundle`,
    )
  }
  return readFileSync(path, 'utf8')
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`)
}
