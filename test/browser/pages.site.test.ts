// The site, as `npm run site` makes it: its links, and in a real browser its search, its page for recordings, both
// themes and three widths, from a sub-path of a server and as files.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, dirname, extname, join, relative } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { constants, deflateRawSync, gzipSync, inflateSync } from 'node:zlib'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { SAMPLES } from '../../viewer/drop/samples.js'
import { openBrowser, skipReason, violations } from './chromium.fixture.js'

const PROJECT = fileURLToPath(new URL('../../..', import.meta.url))
const SUB_PATH = 'any/where'
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.gz': 'application/gzip',
}
const HOME = 'index.html'
const CLASS_PAGE = 'api/cuda-mempool/DeviceBuffer.html'
const TRY = 'try.html'
/** TypeDoc's summaries hold links; browsers reach and follow them by keyboard. */
const RULES_OFF = ['nested-interactive']

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-site-'))
const site = join(folder, SUB_PATH)
let printed = ''
before(() => {
  const typedoc = join(PROJECT, 'node_modules', 'typedoc', 'bin', 'typedoc')
  const { status, stdout, stderr } = spawnSync(process.execPath, [typedoc, '--html', site], {
    cwd: PROJECT,
    encoding: 'utf8',
  })
  printed = stdout
  assert.deepEqual([status, stderr], [0, ''], stdout)
})
after(() => rmSync(folder, { recursive: true }))

describe('the site', () => {
  const pages = () => readdirSync(site, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.html'))

  test('says where it is', () => {
    assert.ok(printed.includes(pathToFileURL(join(site, HOME)).href), printed)
  })

  test('has a page for each document, each example and each class', () => {
    const made = new Set(pages())
    const files = (path: string) => readdirSync(join(PROJECT, path), { recursive: true, encoding: 'utf8' })
    const documents = files('docs').filter(path => path.endsWith('.md'))
    const expected = [
      ...documents.map(path => path.replace(/\.md$/, '.html')),
      ...files('examples').map(path => `examples/${path.replace(/\.ts$/, '.html')}`),
      ...['Device', 'Stream', 'CachingPool', 'DeviceBuffer', 'threads/attachPool', 'trace/FormatError'].map(
        name => `api/cuda-mempool/${name}.html`,
      ),
    ]
    assert.ok(expected.length > 50)
    assert.deepEqual(
      expected.filter(path => !made.has(path)),
      [],
    )
    assert.match(readFileSync(join(site, CLASS_PAGE), 'utf8'), /<h1>Class DeviceBuffer</)
    const linked = matches(readFileSync(join(site, 'api.html'), 'utf8'), /<a href="(api\/[^"#]+)"/g)
    assert.ok(new Set(linked).size > 250, `the list of names links to ${linked.length} pages`)
  })

  test('has no dead link, and no link or file that its pages load from elsewhere', () => {
    const anchors = new Map<string, Set<string>>()
    const anchorsOf = (path: string) => {
      const known = anchors.get(path) ?? new Set(matches(readFileSync(path, 'utf8'), /\sid="([^"]+)"/g))
      anchors.set(path, known)
      return known
    }
    const dead: string[] = []
    let count = 0
    const follow = (from: string, link: string) => {
      const [path, anchor] = link.replaceAll('&amp;', '&').split('#')
      const [file] = path.split('?')
      const target = file === '' ? join(site, from) : join(site, dirname(from), decodeURIComponent(file))
      count++
      const isThere = !relative(site, target).startsWith('..') && existsSync(target) && statSync(target).isFile()
      if (isThere && (anchor === undefined || anchor === '' || anchorsOf(target).has(decodeURIComponent(anchor))))
        return
      dead.push(`${from}: ${link}`)
    }
    for (const page of pages()) {
      const html = readFileSync(join(site, page), 'utf8').replace(/<script>.*?<\/script>/gs, '')
      for (const [, element, attribute, link] of html.matchAll(/<(\w+)[^>]*?\s(href|src)="([^"]*)"/g)) {
        if (!/^\w+:/.test(link)) follow(page, link)
        else if (!/^https?:/.test(link) || element !== 'a') dead.push(`${page}: ${element} ${attribute} ${link}`)
      }
      assert.ok(!/@import|url\(['"]?https?:/.test(html.replace(/<code.*?<\/code>/gs, '')), page)
    }
    for (const each of navigated(dataOf('navigation'))) follow(HOME, each)
    for (const { url } of (dataOf('search') as { rows: { url: string }[] }).rows) follow(HOME, url)
    assert.ok(count > 5000, `${count} links`)
    assert.deepEqual(dead, [])
  })

  /** The data of a script of TypeDoc: JSON, packed. */
  function dataOf(name: string): unknown {
    const script = readFileSync(join(site, 'assets', `${name}.js`), 'utf8')
    return JSON.parse(inflateSync(Buffer.from(/= "([^"]+)"/.exec(script)![1], 'base64')).toString())
  }

  function navigated(entries: unknown): string[] {
    return (entries as { path?: string; children?: unknown }[]).flatMap(({ path, children = [] }) => [
      ...(path === undefined ? [] : [path]),
      ...navigated(children),
    ])
  }
})

describe('the site in a browser', { skip: skipReason }, () => {
  let browser: Browser
  let server: Server
  let served: string
  let problems: string[]
  before(async () => {
    server = createServer(({ url }, response) => {
      const path = join(folder, decodeURIComponent(new URL(url!, 'http://site').pathname))
      const isFile = existsSync(path) && statSync(path).isFile()
      response.writeHead(isFile ? 200 : 404, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream' })
      response.end(isFile ? readFileSync(path) : '')
    })
    await new Promise<void>(listening => void server.listen(0, '127.0.0.1', listening))
    served = `http://127.0.0.1:${(server.address() as AddressInfo).port}/${SUB_PATH}/`
    browser = await openBrowser()
  })
  after(async () => {
    await browser?.close()
    server?.close()
  })

  /** Opens a page; `problems` has errors, and each request for a file of another place. */
  async function open(base: string, path: string, options: BrowserContextOptions = {}): Promise<Page> {
    const page = await (await browser.newContext(options)).newPage()
    problems = []
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      if (!request.url().startsWith(base) && !/^(blob|data):/.test(request.url())) problems.push(request.url())
    })
    page.on('response', response => {
      if (response.status() >= 400) problems.push(`${response.status()} ${response.url()}`)
    })
    await page.goto(base + path)
    return page
  }

  for (const place of ['a server', 'files']) {
    const base = () => (place === 'files' ? `${pathToFileURL(site)}/` : served)

    test(`searches documents and names, from ${place}`, async () => {
      const page = await open(base(), 'recipes/README.html')
      await page.click('#tsd-search-trigger')
      for (const [words, address] of [
        ['out of memory', 'out-of-memory-in-pytorch.html'],
        ['DeviceBuffer', CLASS_PAGE],
        ['least driver', 'devices.html'],
        ['How do I empty the cache?', 'limits.html'],
        ['expandable_segments:True is slow', 'out-of-memory-in-pytorch.html'],
        ['what takes memory outside of PyTorch', 'out-of-memory-in-pytorch.html'],
      ]) {
        await page.fill('#tsd-search-input', words)
        await page.waitForSelector(`#tsd-search-results li:first-child a[href$="${address}"]`)
      }
      await page.waitForSelector('.tsd-navigation a[href$="stream-order.html"]', { state: 'attached' })
      assert.deepEqual(problems, [])
      await page.context().close()
    })

    test(`reads a recording, from ${place}`, async () => {
      const page = await open(base(), TRY)
      await page.setInputFiles('#drop-files', join(PROJECT, 'src/recordings/trace/formats/rmm.fixture.csv'))
      await page.waitForSelector('#drop', { state: 'detached' })
      await page.waitForSelector('#verdict:not(:empty)')
      assert.deepEqual(problems, [])
      await page.context().close()
    })
  }

  test('opens the sample that an address names', async () => {
    const [, { name, file }] = SAMPLES
    const page = await open(served, `${TRY}?sample=${name}`)
    await page.waitForSelector('#verdict:not(:empty)')
    assert.equal(await page.textContent('#file'), file)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('says in a sentence what keeps it from reading a recording', async () => {
    const said = async (page: Page) => {
      await page.waitForSelector('#drop-problem:not(:empty)')
      return (await page.textContent('#drop-problem')) ?? ''
    }
    const unknown = await open(served, `${TRY}?sample=yesterday`)
    assert.match(await said(unknown), /^This site has no sample 'yesterday': choose one of the list, or /)
    const [huge, packed] = [join(folder, 'huge.pickle'), join(folder, 'packed.pickle.gz')]
    writeFileSync(huge, '')
    truncateSync(huge, 2 ** 31)
    // A part that inflates to 64 MiB, 17 times, without an end.
    const part = deflateRawSync(Buffer.alloc(2 ** 26), { finishFlush: constants.Z_FULL_FLUSH })
    writeFileSync(packed, Buffer.concat([gzipSync('').subarray(0, 10), ...Array(17).fill(part)]))
    for (const file of [huge, packed]) {
      await unknown.setInputFiles('#drop-files', file)
      await unknown.waitForSelector(`#drop-problem:has-text("${basename(file)}")`)
      const remedy = `a page reads at most 1 GiB, unpacked: run npx cuda-mempool report ${basename(file)}`
      assert.equal(await said(unknown), `${basename(file)}: ${remedy}`)
    }
    await unknown.context().close()

    const asFile = await open(`${pathToFileURL(site)}/`, `${TRY}?sample=server`)
    assert.match(await said(asFile), /^A page opened as a file .* drop samples\/graphs-serve\.pickle\.gz here/)
    await asFile.context().close()

    const gone = await open(served, TRY)
    await gone.route('**/*.gz', route => route.fulfill({ status: 404 }))
    await gone.click('#drop-samples a[href="?sample=training"]')
    assert.match(await said(gone), /^The sample 'training' is gone from this site \(404\): /)
    await gone.context().close()
  })

  test('says which browsers it needs', async () => {
    const without = async (script: string) => {
      const page = await (await browser.newContext()).newPage()
      await page.addInitScript(script)
      await page.goto(`${served}${TRY}?sample=server`)
      return page
    }
    const noWorkers = await without('delete globalThis.Worker')
    await noWorkers.waitForSelector('#drop-problem:has-text("This browser runs no workers")')
    await noWorkers.context().close()
    for (const page of [
      await without('CSS.supports = () => false'),
      await open(served, TRY, { javaScriptEnabled: false }),
    ]) {
      await page.waitForSelector('#drop-old:has-text("This page needs JavaScript and a browser of 2024 or later")')
      assert.ok(!(await page.isVisible('#drop')))
      await page.context().close()
    }
  })

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`has no violations of accessibility rules, and fits three widths, ${colorScheme}`, async () => {
      for (const path of [HOME, 'threads.html', CLASS_PAGE, TRY]) {
        const page = await open(served, path, { colorScheme })
        await page.waitForSelector(path === TRY ? '#drop[open]' : '.tsd-navigation a')
        assert.deepEqual(await violations(page, RULES_OFF), [], path)
        assert.deepEqual(problems, [], path)
        const background = await page.evaluate('getComputedStyle(document.body).backgroundColor')
        const [red] = matches(String(background), /\((\d+)/g)
        assert.equal(Number(red) < 128, colorScheme === 'dark', `${path}: ${background}`)
        for (const width of [390, 768, 1280]) {
          await page.setViewportSize({ width, height: 800 })
          const beyond = await page.evaluate(
            'document.documentElement.scrollWidth - document.documentElement.clientWidth',
          )
          assert.equal(beyond, 0, `${path} at ${width}`)
        }
        await page.context().close()
      }
    })
  }
})

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, found]) => found)
}
