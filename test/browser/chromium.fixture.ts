// Debian's Chromium, for the tests of pages.

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Browser, Page } from 'playwright-core'
import { chromium } from 'playwright-core'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const USUAL_PATHS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

const named = process.env['CUDA_MEMPOOL_CHROMIUM']
const path = named ?? USUAL_PATHS.find(each => existsSync(each))
const isRequired = process.env['CUDA_MEMPOOL_BROWSER'] === 'required'

/** The reason to skip tests of pages; false if they run, or have to. */
export const skipReason: string | false =
  path !== undefined || isRequired
    ? false
    : 'no Chromium: install the package chromium, or name a browser by CUDA_MEMPOOL_CHROMIUM'

/** Starts the browser, with `flags` of Chromium besides the usual ones. */
export function openBrowser(flags: readonly string[] = []): Promise<Browser> {
  if (path === undefined) {
    throw new Error(`CUDA_MEMPOOL_BROWSER=required, and there is none of ${USUAL_PATHS.join(', ')}`)
  }
  return chromium.launch({ executablePath: path, args: [...FLAGS, ...flags] })
}

/** The rules of accessibility that a page breaks, with the places; `off` names rules to leave out. */
export async function violations(page: Page, off: readonly string[] = []): Promise<string[]> {
  const rules = Object.fromEntries(off.map(rule => [rule, { enabled: false }]))
  return await page.evaluate(`${AXE}; axe.run({ rules: ${JSON.stringify(rules)} }).then(({ violations }) =>
    violations.map(({ id, nodes }) => id + ': ' + nodes.map(node => node.target).join(', ')))`)
}
