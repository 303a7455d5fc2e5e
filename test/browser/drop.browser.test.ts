// The page without data in a real browser: recordings are dropped on it, and its report has the figures of Node's.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import type { PageData } from '../../src/recordings/report/page/page-data.js'
import { pageData } from '../../src/recordings/report/page/page-text.js'
import { reportedTrace, tabsOf } from '../../src/recordings/report/page/reported-trace.js'
import { readRecordings } from '../../src/recordings/trace/formats/read-recording.js'
import { replayDevices } from '../../src/recordings/trace/replay-devices.js'
import { openBrowser, skipReason, violations } from './chromium.fixture.js'

const VIEWER = new URL('../../viewer/viewer.html', import.meta.url).href
const OOM = 'traces/oom-retry-2gib.pickle.gz'
const RMM = 'src/recordings/trace/formats/rmm.fixture.csv'

describe('the page without data', { skip: skipReason }, () => {
  let browser: Browser
  let folder: string
  let problems: string[]
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'cuda-mempool-drop-'))
    browser = await openBrowser()
  })
  after(async () => {
    await browser?.close()
    await rm(folder, { recursive: true, force: true })
  })

  async function open(isDark = false): Promise<Page> {
    const page = await (await browser.newContext({ colorScheme: isDark ? 'dark' : 'light' })).newPage()
    problems = []
    page.on('console', message => problems.push(message.text()))
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      if (!/^(file|blob|data):/.test(request.url())) problems.push(`request of ${request.url()}`)
    })
    await page.goto(VIEWER)
    return page
  }

  async function report(page: Page): Promise<PageData> {
    await page.waitForSelector('#drop', { state: 'detached' })
    await page.evaluate('cudaMempoolPage.idle()')
    return JSON.parse((await page.textContent('#data')) ?? '') as PageData
  }

  /** The data of a page that Node makes of the same files. */
  async function inNode(...files: string[]): Promise<PageData> {
    const traces = files.flatMap(file => readRecordings(file, { name: file.split('/').at(-1)! }))
    const tabs = tabsOf(traces)
    const reported = traces.map((trace, i) => reportedTrace(trace, replayDevices(trace), tabs[i]))
    return JSON.parse(JSON.stringify(pageData(await Promise.all(reported))))
  }

  test('has the same verdicts, figures and advice as Node, without a request', async () => {
    const page = await open()
    await page.setInputFiles('#drop-files', [OOM, RMM])
    assert.deepEqual(await report(page), await inNode(OOM, RMM))
    assert.equal(await page.locator('[role=tab]').count(), 2)
    assert.equal(await page.locator('#drop').count(), 0)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('answers an error message that is dropped or pasted, as why does', async () => {
    const page = await open()
    const message =
      'CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 GiB is free.' +
      ' Of the allocated memory 8.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.'
    const answer = page.locator('#drop-answer')
    await page.setInputFiles('#drop-files', { name: 'log.txt', mimeType: 'text/plain', buffer: Buffer.from(message) })
    await answer.filter({ hasText: '→ Really too little' }).waitFor()
    assert.match((await answer.textContent())!, /^log\.txt\n.*_dump_snapshot.*Drop the recording here/s)
    await page.fill('#drop-text', message)
    await page.locator('#drop-text').blur()
    await answer.filter({ hasText: /^the text/ }).waitFor()
    await page.fill('#drop-text', 'nothing that is known')
    await page.locator('#drop-text').blur()
    await page.locator('#drop-problem').filter({ hasText: 'the text: ' }).waitFor()
    assert.equal(await answer.textContent(), '')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('takes a file that is dropped', async () => {
    const page = await open()
    const dropped = await page.evaluateHandle(
      text => {
        const { DataTransfer, File } = globalThis as unknown as {
          DataTransfer: new () => { items: { add(file: unknown): void } }
          File: new (parts: string[], name: string) => unknown
        }
        const transfer = new DataTransfer()
        transfer.items.add(new File([text], 'dropped.csv'))
        return transfer
      },
      readFileSync(RMM, 'utf8'),
    )
    await page.dispatchEvent('#drop', 'drop', { dataTransfer: dropped })
    assert.equal((await report(page)).recordings[0].file, 'dropped.csv')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('names a file that it cannot read, and takes the next one', async () => {
    const page = await open()
    const damaged = join(folder, 'cut.pickle.gz')
    writeFileSync(damaged, readFileSync(OOM).subarray(0, 5000))
    const empty = join(folder, 'empty.pickle')
    writeFileSync(empty, '')
    for (const [file, text] of [
      ['README.md', /^README\.md: is no recording: /],
      [empty, /^empty\.pickle: the file is empty$/],
      [damaged, /^cut\.pickle\.gz: the file is packed by gzip, and damaged or cut off$/],
    ] as const) {
      await page.setInputFiles('#drop-files', file)
      await page.waitForSelector('#drop-problem:not(:empty)')
      assert.match((await page.textContent('#drop-problem')) ?? '', text)
    }
    await page.setInputFiles('#drop-files', RMM)
    assert.equal((await report(page)).recordings.length, 1)
    await page.context().close()
  })

  for (const isDark of [false, true]) {
    test(`has no violations of accessibility rules, ${isDark ? 'dark' : 'light'}`, async () => {
      const page = await open(isDark)
      assert.deepEqual(await violations(page), [])
      await page.context().close()
    })
  }
})
