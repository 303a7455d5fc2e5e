// Pages of recordings in a real browser, opened as files. Each step waits for the page's own idle promise.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { reportPage } from '../../src/recordings/report/page/page.js'
import { replay } from '../../src/recordings/trace/replay.js'
import { replayDevices } from '../../src/recordings/trace/replay-devices.js'
import type { Policy } from '../../src/recordings/trace/replay-result.js'
import type { Trace } from '../../src/recordings/trace/trace.js'
import { openBrowser } from './chromium.fixture.js'

const LONGEST_WAIT_MS = 20_000
/** Replayed unless a test names others. */
export const POLICIES = ['recorded', 'cuda-mempool']

/** The state of a page, as it tells it. */
export interface Shown {
  readonly recording: number
  readonly cursor: number
  readonly from: number
  readonly to: number
  readonly a: number | null
  readonly b: number | null
  readonly find: string
  readonly only: readonly number[]
  readonly pinned: number | null
  readonly hidden: readonly string[]
  readonly maps: readonly string[]
}

export const idle = (page: Page) => page.evaluate('cudaMempoolPage.idle()')
export const state = (page: Page) => page.evaluate('cudaMempoolPage.state()') as Promise<Shown>
export const text = async (page: Page, selector: string) => (await page.textContent(selector)) ?? ''

/** Waits until an expression holds in a page. The policy of the page forbids that the page itself evaluates text. */
export const until = (page: Page, expression: string) =>
  page.evaluate(`new Promise((done, fail) => {
    setTimeout(() => fail(new Error('it never came')), ${LONGEST_WAIT_MS})
    const look = () => ((${expression}) ? done() : requestAnimationFrame(look))
    look()
  })`)

/** Pairs of sections, and of visible texts of a part of the page, that lie over each other. */
export const overlaps = (page: Page, part = 'main') =>
  page.evaluate(`(() => {
  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
  const pairs = boxes => boxes.flatMap((a, i) =>
    boxes.slice(i + 1).flatMap(b => (a.element !== b.element && meet(a, b) ? [a.name + ' over ' + b.name] : [])))
  const sections = [...document.querySelectorAll('${part} > section')].map(element => {
    const { left, right, top, bottom } = element.getBoundingClientRect()
    return { element, name: element.id || element.ariaLabel, left, right, top, bottom }
  })
  const texts = []
  const walker = document.createTreeWalker(document.querySelector('${part}'), NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const element = node.parentElement
    if (node.data.trim() === '' || element.closest('.unseen, option')) continue
    const range = document.createRange()
    range.selectNode(node)
    for (let { left, right, top, bottom } of range.getClientRects()) {
      for (let clip = element; !clip.matches('${part}'); clip = clip.parentElement) {
        if (getComputedStyle(clip).overflow === 'visible') continue
        const box = clip.getBoundingClientRect()
        left = Math.max(left, box.left); right = Math.min(right, box.right)
        top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom)
      }
      texts.push({ element, name: node.data.trim().slice(0, 40), left, right, top, bottom })
    }
  }
  return [...pairs(sections), ...pairs(texts)]
})()`) as Promise<string[]>

export async function press(page: Page, ...keys: string[]): Promise<void> {
  for (const key of keys) {
    await page.keyboard.press(key)
    await idle(page)
  }
}

export class Pages {
  readonly folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-page-'))
  /** messages, errors and requests of the page that was opened last */
  readonly problems: string[] = []
  private browser: Browser | undefined

  async start(): Promise<void> {
    this.browser = await openBrowser()
  }

  async close(): Promise<void> {
    await this.browser?.close()
    rmSync(this.folder, { recursive: true, force: true })
  }

  async open(trace: Trace, isDark = false, hash = '', policies = POLICIES): Promise<Page> {
    const path = join(this.folder, `${Math.random()}.html`)
    const report = await replay(trace, replayDevices(trace), { policies: policies as Policy[], placements: true })
    writeFileSync(path, reportPage(trace, { replay: report }))
    return this.show(path, isDark, hash)
  }

  async show(path: string, isDark: boolean, hash = '', by = this.browser!): Promise<Page> {
    const { problems } = this
    const context = await by.newContext({
      colorScheme: isDark ? 'dark' : 'light',
      viewport: { width: 1200, height: 900 },
      reducedMotion: 'reduce',
      acceptDownloads: true,
    })
    const page = await context.newPage()
    problems.length = 0
    page.on('console', message => problems.push(message.text()))
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      if (!/^(file|blob|data):/.test(request.url())) problems.push(`request of ${request.url()}`)
    })
    await page.goto(`file://${path}${hash}`)
    await page.waitForFunction('globalThis.cudaMempoolPage')
    await idle(page)
    return page
  }
}
