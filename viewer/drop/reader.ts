// The worker of the page without data: reads recordings and replays them, as `cuda-mempool report` does in Node.

import { formatBytes } from '../../src/core/base/bytes.js'
import { pagePicture } from '../../src/recordings/report/page/page-picture.js'
import { pageData } from '../../src/recordings/report/page/page-text.js'
import { type ReportedTrace, reportedTrace, tabsOf } from '../../src/recordings/report/page/reported-trace.js'
import { PLAIN } from '../../src/recordings/report/table.js'
import { toldText } from '../../src/recordings/report/why/told-text.js'
import { readRecordings } from '../../src/recordings/trace/formats/read-recording.js'
import { figuresOfText, isDecided, type TextFigures } from '../../src/recordings/trace/messages/read-text.js'
import { sharePace } from '../../src/recordings/trace/pace.js'
import { replayDevices } from '../../src/recordings/trace/replay-devices.js'
import type { Trace } from '../../src/recordings/trace/trace.js'
import type { ReaderMessage } from './reader-message.js'

interface WorkerScope {
  onmessage: ((message: { data: readonly File[] }) => void) | null
  postMessage(message: ReaderMessage): void
}

const scope = globalThis as unknown as WorkerScope
const say = (fraction: number, what: string) => scope.postMessage({ kind: 'progress', fraction, what })

scope.onmessage = async ({ data: files }) => {
  try {
    scope.postMessage(await report(files))
  } catch (error) {
    scope.postMessage({ kind: 'problem', text: error instanceof Error ? error.message : String(error) })
  }
}

async function report(files: readonly File[]): Promise<ReaderMessage> {
  const traces: Trace[] = []
  for (const file of files) {
    const found = await read(file)
    if (!Array.isArray(found)) return { kind: 'answer', text: toldText(found, { width: TEXT_WIDTH, paint: PLAIN }) }
    traces.push(...found)
  }
  const tabs = tabsOf(traces)
  sharePace(traces)
  const recordings: ReportedTrace[] = []
  const pictures: string[] = []
  for (const [index, trace] of traces.entries()) {
    const onProgress = (fraction: number, what: string) => say(fraction, `${trace.file}: ${what}`)
    const reported = await reportedTrace(trace, replayDevices(trace), tabs[index], { onProgress })
    recordings.push(reported)
    pictures.push(Buffer.from(await packed(pagePicture(reported))).toString('base64'))
  }
  return { kind: 'done', title: tabs[0], data: JSON.stringify(pageData(recordings)), pictures }
}

/** In columns of the dialog. */
const TEXT_WIDTH = 66

/**
 * A page holds a recording, and its tables beside it, in the memory of one tab, which browsers end without a word when
 * it has taken a few GiB.
 */
const MOST_BYTES = 2 ** 30

/** The recordings of a file, or what an error message in it tells. */
async function read(file: File): Promise<Trace[] | TextFigures> {
  say(0, `${file.name}: reading`)
  const bytes = new Uint8Array(await unpacked(file))
  const onProgress = (fraction: number) => say(fraction, `${file.name}: reading`)
  try {
    return readRecordings(bytes, { name: file.name, onProgress })
  } catch (error) {
    const figures = figuresOfText(Buffer.from(bytes.buffer), file.name)
    if (figures === null || (figures.other !== null && !isDecided(figures.other))) throw error
    return figures
  }
}

async function unpacked(file: File): Promise<ArrayBuffer> {
  checkSize(file, file.size)
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer())
  if (first !== 0x1f || second !== 0x8b) return await inFile(file, () => file.arrayBuffer())
  let bytes = 0
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength
      checkSize(file, bytes)
      controller.enqueue(chunk)
    },
  })
  const stream = file.stream().pipeThrough(new DecompressionStream('gzip')).pipeThrough(counted)
  return await new Response(stream).arrayBuffer().catch(error => {
    checkSize(file, bytes) // again: a response hides why its stream failed
    throw new Error(`${file.name}: the file is packed by gzip, and damaged or cut off`, { cause: error })
  })
}

function checkSize({ name }: File, bytes: number): void {
  if (bytes <= MOST_BYTES) return
  throw new Error(
    `${name}: a page reads at most ${formatBytes(MOST_BYTES)}, unpacked: run npx cuda-mempool report ${name}`,
  )
}

function packed(bytes: Uint8Array): Promise<ArrayBuffer> {
  const stream = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new CompressionStream('gzip'))
  return new Response(stream).arrayBuffer()
}

/** The result of `work`; its errors name the file, as they do in Node. */
async function inFile<T>(file: File, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw new Error(`${file.name}: ${error instanceof Error ? error.message : error}`, { cause: error })
  }
}
