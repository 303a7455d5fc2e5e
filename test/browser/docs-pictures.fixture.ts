// The pictures of the documents, and the texts in each. A test compares these texts with the stored ones, so that no
// picture shows figures of an earlier program.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { plainText, type Tone } from '../../src/cli/top/styled-lines.js'
import { TopModel } from '../../src/cli/top/top-model.js'
import { screenLines } from '../../src/cli/top/top-view.js'
import { MiB } from '../../src/core/base/bytes.js'
import { openDevice } from '../../src/core/device/open.js'
import { SimulatedDriver } from '../../src/core/driver/simulated/simulated-driver.js'
import { tagged } from '../../src/core/pool/wrappers/tagged.js'
import { statsOf } from '../../src/live/process-stats.js'
import { serve } from '../../src/live/serve.js'
import { PoolList } from '../../src/live/watched-pools.js'
import { pageOf } from '../../src/recordings/report/page/page.js'
import { pageDifference } from '../../src/recordings/report/page/page-difference.js'
import type { ReportedTrace } from '../../src/recordings/report/page/reported-trace.js'
import { readRecording } from '../../src/recordings/trace/formats/read-recording.js'
import { replay } from '../../src/recordings/trace/replay.js'
import { replayDevices } from '../../src/recordings/trace/replay-devices.js'
import { Action } from '../../src/recordings/trace/trace.js'
import { tune } from '../../src/recordings/trace/tune/tune.js'

/** The folder of the pictures, and the file of their texts in it. */
export const FOLDER = 'docs/pictures'
export const TEXTS = `${FOLDER}/texts.json`

const WIDTH = 1280

/** A picture: its pixels, and its texts, a line for each element. */
interface Shown {
  readonly png: Buffer
  readonly texts: readonly string[]
}

/** By file name; curves of the live page need some time to be seen. */
export const PICTURES: Readonly<Record<string, (browser: Browser, curvesMs: number) => Promise<Shown>>> = {
  'report.png': async browser => {
    const html = pageOf([await reported('traces/pairs/transformer-seed0-a.pickle.gz')])
    return shownPage(browser, html, 1060, ['#verdict', '#held', '#policies tr', '#legend'])
  },
  'out-of-memory.png': async browser => {
    const html = pageOf([await reported('traces/oom-retry-2gib.pickle.gz')])
    return shownPage(browser, html, 1060, ['#verdict', '#policies tr', '#failure .verdict', '.remedies tr'])
  },
  'diff.png': async browser => {
    const files = ['lstm-seed0-a', 'lstm-seed0-grown-leak']
    const all = await Promise.all(files.map(file => reported(`traces/pairs/${file}.pickle.gz`)))
    const difference = pageDifference(all[0].trace, all[1].trace, [files[0], files[1]])
    return shownPage(browser, pageOf(all, difference), 720, ['#difference p', '#difference .sizes li'])
  },
  'live.png': livePicture,
  'top.png': topPicture,
}

async function reported(file: string): Promise<ReportedTrace> {
  const trace = readRecording(file)
  const failed = trace.action.includes(Action.outOfMemory)
  const report = await replay(trace, replayDevices(trace), { placements: true, leastCapacity: failed })
  // Without the limit of time that a report has, so that the texts are the same on each machine.
  return { trace, replay: report, tuned: failed ? await tune([trace]) : null, tab: file.replace(/^.*\//, '') }
}

/** The upper part of a page, and the texts of its elements. */
async function shownPage(browser: Browser, html: string, height: number, selectors: readonly string[]): Promise<Shown> {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-pictures-'))
  try {
    const path = join(folder, 'page.html')
    writeFileSync(path, html)
    const page = await browser.newPage({ viewport: { width: WIDTH, height }, colorScheme: 'light' })
    await page.goto(`file://${path}`)
    await page.waitForFunction('globalThis.cudaMempoolPage')
    await page.evaluate('cudaMempoolPage.idle()')
    return await shownNow(page, selectors)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

async function shownNow(page: Page, selectors: readonly string[]): Promise<Shown> {
  const texts: string[] = []
  for (const selector of selectors) {
    for (const text of await page.locator(selector).allInnerTexts()) texts.push(text.replace(/\s+/g, ' ').trim())
  }
  const png = await page.screenshot()
  await page.close()
  return { png, texts: texts.filter(text => text !== '') }
}

/** Pools as of a training program: weights stay, activations come and go, and one freed block waits for its stream. */
function servedPools() {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  const stream = device.createStream()
  const pool = device.createPool({ maxPoolBytes: 512 * MiB })
  const train = tagged(pool)
  const cache = device.createPool({ maxPoolBytes: 128 * MiB })
  for (const mebibytes of [96, 64, 32]) train.inScope('weights', () => train.allocate(mebibytes * MiB))
  const activations = [40, 24, 24, 12, 8].map(mebibytes =>
    train.inScope('activations', () => train.allocate(mebibytes * MiB, stream)),
  )
  train.inScope('optimizer', () => train.allocate(48 * MiB))
  for (const mebibytes of [32, 24, 16]) cache.allocate(mebibytes * MiB)
  driver.holdOperation(stream.handle)
  for (const buffer of activations.slice(0, 2)) buffer.free()
  pool.trimTo(0)
  // Refused requests count from the moment on at which the pools are served.
  return { device, pools: { train, cache }, refuse: () => cache.tryAllocate(96 * MiB) }
}

async function livePicture(browser: Browser, curvesMs: number): Promise<Shown> {
  const { device, pools, refuse } = servedPools()
  const server = await serve(pools, { port: 0 })
  refuse()
  // The page shows the command line, which has folders of this machine.
  const { argv } = process
  process.argv = ['node', 'train.js']
  try {
    const page = await browser.newPage({ viewport: { width: WIDTH, height: 900 }, colorScheme: 'light' })
    await page.goto(server.url!)
    await page.waitForSelector('section[aria-label="pool train"] canvas.map[aria-label^="address map of "]')
    await page.waitForSelector('section[aria-label="pool cache"] .alarm:has(dt:text-is("out of memory"))')
    await page.waitForTimeout(curvesMs)
    // The text of each cell is read by itself: a row without a layout has no spaces between its cells.
    const texts = await page
      .locator('[aria-label^="pool "] dl div')
      .evaluateAll(rows => rows.map(row => [...row.children].map(cell => cell.textContent?.trim()).join(' ')))
    const { png } = await shownNow(page, [])
    return { png, texts: texts.filter(text => !text.startsWith('allocations a second')) }
  } finally {
    process.argv = argv
    await server.close()
    device.close()
  }
}

const COLOURS: Readonly<Record<Tone, string>> = {
  plain: '',
  strong: 'font-weight: bold',
  quiet: 'color: #8b949e',
  alarm: 'color: #ff7b72; font-weight: bold',
  selected: 'background: #e6edf3; color: #0d1117',
  live: 'color: #58a6ff',
  cached: 'color: #d29922',
  pending: 'color: #bc8cff',
}

/** The screen of a terminal with usual colours. */
async function topPicture(browser: Browser): Promise<Shown> {
  const { device, pools, refuse } = servedPools()
  const list = new PoolList('test', pools)
  refuse()
  const stats = { ...statsOf(list), pid: 4711, command: 'node train.js' }
  device.close()
  const model = new TopModel()
  for (let second = 0; second < 3; second++) model.add({ ...stats, timeMs: second * 1000 })
  const lines = screenLines(model, 84, 26, {})
  const page = await browser.newPage({ viewport: { width: 760, height: 480 } })
  const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  const html = lines.map(line =>
    line.map(each => `<span style="${COLOURS[each.tone]}">${escaped(each.text)}</span>`).join(''),
  )
  await page.setContent(
    `<body style="margin: 14px; background: #0d1117; color: #e6edf3"><pre style="margin: 0; font: 14px/17px 'DejaVu Sans Mono', monospace">${html.join('\n')}</pre>`,
  )
  const png = await page.screenshot()
  await page.close()
  return { png, texts: lines.map(line => plainText(line).trim()).filter(text => text !== '') }
}
