// How large a page of a recording is, how long it takes to make and to open, how long its frames take while zooming,
// and for how long it is blocked. The pages are opened in Debian's Chromium, which draws in software.
// Run: node dist/bench/sight.js [--smoke] [--save DIR]

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { reportPage } from '../src/recordings/report/page/page.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'
import { DEFAULT_POLICIES, type Policy } from '../src/recordings/trace/replay-result.js'
import { Action, type Trace } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'
import { openBrowser, skipReason } from '../test/browser/chromium.fixture.js'
import { median, save } from './machine.js'
import { benchmark, optionsOf } from './options.js'

const values = optionsOf(benchmark('how large and how fast a page of a recording is'))
const RECORDING = 'traces/gpt2-train-varlen.pickle.gz'
/** So often repeated, the recording has a million allocations, and five million. */
const [ROUNDS, MOST_ROUNDS] = values.smoke ? [1, 2] : [44, 219]
const OPENINGS = values.smoke ? 1 : 5
const KEYS = values.smoke ? 2 : 60
const SHOWN: readonly Policy[] = ['recorded', 'cuda-mempool']

/** The recording several times, one after the other. */
function repeated(trace: Trace, rounds: number): Trace {
  const builder = new TraceBuilder()
  const { action, address, bytes, timeUs, blocks } = trace
  for (let round = 0; round < rounds; round++) {
    const shift = round * (trace.spanSeconds * 1e6 + 1000)
    for (let event = 0; event < trace.events; event++) {
      // The segments stay from the first round on.
      const isSegment = action[event] >= Action.segmentAlloc && action[event] <= Action.segmentUnmap
      if (round === 0 || !isSegment) builder.add(action[event], address[event], bytes[event], 0, timeUs[event] + shift)
    }
    for (let block = 0; block < blocks.count; block++) {
      if (blocks.freeRequestedAt[block] < trace.events) continue
      const end = timeUs[trace.events - 1] + shift
      for (const freed of [Action.freeRequested, Action.freeCompleted]) {
        builder.add(freed, blocks.address[block], blocks.bytes[block], 0, end)
      }
    }
  }
  return builder.build({ file: 'repeated', final: { segments: [], blocks: [] } })
}

async function made(trace: Trace, policies: readonly Policy[]) {
  const [start, cpu] = [performance.now(), process.cpuUsage()]
  const report = await replay(trace, replayDevices(trace), { policies, placements: true })
  const replayed = performance.now()
  const page = reportPage(trace, { replay: report })
  const { user, system } = process.cpuUsage(cpu)
  return { page, replayMs: replayed - start, pageMs: performance.now() - replayed, cpuMs: (user + system) / 1000 }
}

async function opened(browser: Browser, path: string) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } })
  await page.addInitScript(`globalThis.tasks = [0]
    new PerformanceObserver(list => { for (const { duration } of list.getEntries()) tasks.push(duration) })
      .observe({ type: 'longtask' })`)
  const start = performance.now()
  await page.goto(`file://${path}`)
  await page.waitForFunction('globalThis.cudaMempoolPage')
  await page.evaluate('cudaMempoolPage.idle()')
  const firstMs = performance.now() - start
  const { frames, sharp, cursor, blockedMs } = (await page.evaluate(`(async () => {
    const type = key => document.dispatchEvent(new KeyboardEvent('keydown', { key }))
    const press = i => type(i % 20 < 10 ? '+' : '-')
    const frame = () => new Promise(resolve => requestAnimationFrame(resolve))
    const [frames, sharp, cursor] = [[], [], []]
    for (let i = 0; i < ${KEYS}; i++) {
      const start = performance.now()
      press(i)
      await frame()
      frames.push(performance.now() - start)
    }
    for (let i = 0; i < ${KEYS}; i++) {
      const start = performance.now()
      press(i)
      await cudaMempoolPage.idle()
      sharp.push(performance.now() - start)
    }
    for (let i = 0; i < ${KEYS}; i++) {
      const start = performance.now()
      type(i % 2 === 0 ? 'ArrowLeft' : 'ArrowRight')
      await cudaMempoolPage.idle()
      cursor.push(performance.now() - start)
    }
    return { frames, sharp, cursor, blockedMs: Math.max(...tasks) }
  })()`)) as { frames: number[]; sharp: number[]; cursor: number[]; blockedMs: number }
  await page.close()
  return { firstMs, frames, sharp, cursor, blockedMs }
}

const folder = mkdtempSync(join(os.tmpdir(), 'cuda-mempool-bench-'))
try {
  const start = performance.now()
  const real = readRecording(RECORDING)
  const readMs = performance.now() - start
  const whole = await made(real, DEFAULT_POLICIES)
  const long = repeated(real, ROUNDS)
  const large = await made(long, SHOWN)
  const path = join(folder, 'page.html')
  writeFileSync(path, large.page)
  const openings: Awaited<ReturnType<typeof opened>>[] = []
  if (skipReason === false) {
    const browser = await openBrowser()
    for (let i = 0; i < OPENINGS; i++) openings.push(await opened(browser, path))
    await browser.close()
  } else console.log(skipReason)
  const small = await made(real, SHOWN)
  const longest = repeated(real, MOST_ROUNDS)
  const figures = {
    recording: { events: real.events, readMs: Math.round(readMs), ...rounded(whole), pageMB: whole.page.length / 1e6 },
    twoPoliciesMBPerMillionEvents: small.page.length / real.events,
    repeated: repeatedFigures(long, large),
    longest: repeatedFigures(longest, await made(longest, SHOWN)),
    peakResidentMB: Math.round(process.resourceUsage().maxRSS / 1000),
    firstPictureMs: openings.map(({ firstMs }) => Math.round(firstMs)),
    zoomFrameMs: spread(openings.flatMap(({ frames }) => frames)),
    sharpPictureMs: spread(openings.flatMap(({ sharp }) => sharp)),
    cursorMs: spread(openings.flatMap(({ cursor }) => cursor)),
    longestTaskMs: openings.map(({ blockedMs }) => Math.round(blockedMs)),
  }
  const machine = { cpu: os.cpus()[0]?.model ?? 'unknown', cores: os.cpus().length, node: process.version }
  const result = { machine, parameters: { rounds: [ROUNDS, MOST_ROUNDS], openings: OPENINGS, keys: KEYS }, ...figures }
  console.log(JSON.stringify(result, null, 2))
  save(values.save, 'host-sight', result)
} finally {
  rmSync(folder, { recursive: true })
}

function repeatedFigures({ events, allocations }: Trace, large: Awaited<ReturnType<typeof made>>) {
  return { events, allocations, ...rounded(large), pageMB: large.page.length / 1e6 }
}

function rounded({ replayMs, pageMs, cpuMs }: Awaited<ReturnType<typeof made>>) {
  return { replayMs: Math.round(replayMs), pageMs: Math.round(pageMs), cpuMs: Math.round(cpuMs) }
}

function spread(times: readonly number[]) {
  const sorted = [...times].sort((a, b) => a - b)
  return { median: Math.round(median(times)), p95: Math.round(sorted[Math.floor(sorted.length * 0.95)] ?? 0) }
}
