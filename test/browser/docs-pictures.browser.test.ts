// The pictures of the documents show what the program says today.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { openBrowser, skipReason } from './chromium.fixture.js'
import { FOLDER, PICTURES, TEXTS } from './docs-pictures.fixture.js'

const MOST_BYTES = 150_000
const DOCUMENTS = [
  'README.md',
  ...readdirSync('docs').flatMap(name => (name.endsWith('.md') ? [join('docs', name)] : [])),
]

describe('the pictures of the documents', { skip: skipReason }, () => {
  let browser: Browser
  before(async () => {
    browser = await openBrowser()
  })
  after(() => browser?.close())

  const stored = JSON.parse(readFileSync(TEXTS, 'utf8')) as Record<string, string[]>
  for (const [name, take] of Object.entries(PICTURES)) {
    test(`${name} has the texts and figures of today; otherwise run npm run docs:pictures`, async () => {
      assert.deepEqual((await take(browser, 0)).texts, stored[name])
    })
  }
})

test('the pictures of the documents are small, shown, and not in the package', () => {
  const names = readdirSync(FOLDER).filter(name => name !== basename(TEXTS))
  assert.deepEqual(names.sort(), Object.keys(PICTURES).sort())
  const documents = DOCUMENTS.map(path => readFileSync(path, 'utf8')).join('')
  for (const name of names) {
    assert.ok(statSync(join(FOLDER, name)).size <= MOST_BYTES, `${name} is too large`)
    assert.match(
      documents,
      new RegExp(`!\\[[^\\]]{20,}\\]\\((?:docs/)?pictures/${name}\\)`),
      `no document shows ${name}`,
    )
  }
  const { files } = JSON.parse(readFileSync('package.json', 'utf8')) as { files: string[] }
  assert.ok(files.includes(`!${FOLDER}`))
})
