// The live page of a running process in a real browser. Each step waits until the page shows its result.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { formatBytes, MiB } from '../../src/core/base/bytes.js'
import { openDevice } from '../../src/core/device/open.js'
import { SimulatedDriver } from '../../src/core/driver/simulated/simulated-driver.js'
import { tagged } from '../../src/core/pool/wrappers/tagged.js'
import { ask } from '../../src/live/live.fixture.js'
import { type LiveServer, serve } from '../../src/live/serve.js'
import { openBrowser, skipReason, violations } from './chromium.fixture.js'

describe('the live page', { skip: skipReason }, () => {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  const pool = device.createPool()
  const tags = tagged(pool)
  let browser: Browser
  let server: LiveServer
  before(async () => {
    server = await serve({ train: tags }, { port: 0 })
    browser = await openBrowser()
  })
  after(async () => {
    await browser?.close()
    await server?.close()
    device.close()
  })

  async function open(isDark = false): Promise<{ page: Page; problems: string[] }> {
    const context = await browser.newContext({ colorScheme: isDark ? 'dark' : 'light' })
    const page = await context.newPage()
    page.setDefaultTimeout(10_000)
    const problems: string[] = []
    page.on('console', message => problems.push(message.text()))
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      if (new URL(request.url()).host !== new URL(server.url!).host) problems.push(`request of ${request.url()}`)
    })
    await page.goto(server.url!)
    await page.waitForSelector('section[aria-label="pool train"]')
    return { page, problems }
  }

  test('follows figures, tags and addresses of the pools, and stops while it is paused', async () => {
    const buffer = tags.inScope('weights', () => tags.allocate(48 * MiB))
    const { page, problems } = await open()
    const figure = (name: string, value: string) =>
      page.waitForSelector(`dl div:has(dt:text-is("${name}")) dd:text-is("${value}")`)
    await figure('in use', '48 MiB')
    await page.waitForSelector('tr:has(th:text-is("weights")) td:text-is("48 MiB")')
    await page.waitForSelector('canvas.map[aria-label^="address map of "]')
    const more = pool.allocate(16 * MiB)
    await figure('in use', '64 MiB')
    await figure('buffers', '2')
    await page.click('#pause')
    more.free()
    buffer.free()
    // A page that is not paused shows these figures; this one shows them after the pause only.
    const { page: other } = await open()
    await other.waitForSelector('dl div:has(dt:text-is("buffers")) dd:text-is("0")')
    assert.equal(await page.textContent('dl div:has(dt:text-is("buffers")) dd'), '2')
    await page.click('#pause')
    await figure('buffers', '0')
    assert.deepEqual(problems, [])
    await page.context().close()
    await other.context().close()
  })

  test('draws memory that waits for work as pending, in the map and by stream', async () => {
    const stream = device.createStream()
    const freed = pool.allocate(40 * MiB, stream)
    const ticket = driver.holdOperation(stream.handle)
    freed.free()
    pool.trimTo(0)
    const { pendingBytes, reservedBytes } = pool.stats()
    const { page, problems } = await open()
    const text = `0 B · pending ${formatBytes(pendingBytes)}`
    // Its number is 1 if the first snapshot is of the moment before, with memory of another stream.
    await page.waitForSelector(`ul.streams li:only-child:has(b:text-matches("^[01]$")) span:text-is("${text}")`)
    const share = (await page.evaluate(`(() => {
      const map = document.querySelector('canvas.map')
      const { data } = map.getContext('2d').getImageData(0, 0, map.width, map.height)
      const probe = getComputedStyle(document.querySelector('.legend .pending'))
      const pending = probe.backgroundColor.match(/\\d+/g).map(Number)
      let cells = 0
      for (let at = 0; at < data.length; at += 4)
        if (pending.every((value, index) => data[at + index] === value)) cells++
      return cells / (map.width * map.height)
    })()`)) as number
    assert.ok(pendingBytes >= 40 * MiB && Math.abs(share - pendingBytes / reservedBytes) < 0.02, `${share}`)
    assert.deepEqual(problems, [])
    driver.releaseThrough(stream.handle, ticket)
    stream.close()
    await page.context().close()
  })

  test('lists shelves with their models, and kept regions', async t => {
    const shelf = device.createShelf({ budgetBytes: 8 * MiB })
    shelf.add('chat', { bytes: 4 * MiB, load: memory => memory.allocate(MiB) })
    await shelf.use('chat', () => {})
    const region = { name: '<b>weights', version: 'v1', generation: 1, bytes: 32 * MiB }
    const told = { ...region, state: 'ready', device: 'gpu', readers: [], lastUse: Date.now(), labels: {} }
    let isOpen = true
    const keep = { held: () => (isOpen ? [] : null), list: async () => [told] }
    const { page, problems } = await open()
    t.after(() => page.context().close())
    assert.equal(await page.isVisible('.others'), false)
    const name = server.add(shelf)
    server.add(keep as never)
    const row = (section: string, cells: readonly string[]) =>
      page.waitForSelector(
        `section[aria-label="${section}"] tr:has(th:text-is("${cells[0]}"))${cells
          .slice(1)
          .map(cell => `:has(td:text-is("${cell}"))`)
          .join('')}`,
      )
    await row(`shelf ${name}`, ['chat', 'awake', '4 MiB'])
    await row('kept regions', ['<b>weights', 'v1', 'ready', '32 MiB', 'none'])
    await page.waitForSelector(
      'section[aria-label="kept regions"] dl div:has(dt:text-is("without readers")) dd:text-is("32 MiB")',
    )
    assert.deepEqual(await violations(page), [])
    await shelf.close()
    isOpen = false
    await page.waitForSelector('.others', { state: 'hidden' })
    assert.deepEqual(problems, [])
  })

  test('marks a request that was refused in the chart, in the figures and in the title', async () => {
    const limited = device.createPool({ maxPoolBytes: 64 * MiB })
    const name = server.add(limited, 'small')
    const { page, problems } = await open()
    const card = `section[aria-label="pool ${name}"]`
    await page.waitForSelector(`${card} .uplot`)
    assert.equal(await page.title(), 'cuda-mempool live')
    // The most pixels of the alarm colour in a column, and in a row.
    const alarms = `(() => {
        const chart = document.querySelector('${card} .uplot canvas')
        const copy = new OffscreenCanvas(chart.width, chart.height).getContext('2d')
        copy.drawImage(chart, 0, 0)
        const { data } = copy.getImageData(0, 0, chart.width, chart.height)
        const alarm = getComputedStyle(document.documentElement).getPropertyValue('--alarm').trim()
        const rgb = [1, 3, 5].map(at => parseInt(alarm.slice(at, at + 2), 16))
        const columns = new Uint32Array(chart.width)
        const rows = new Uint32Array(chart.height)
        for (let at = 0; at < data.length; at += 4) {
          if (!rgb.every((value, index) => Math.abs(data[at + index] - value) < 30)) continue
          columns[(at / 4) % chart.width]++
          rows[Math.floor(at / 4 / chart.width)]++
        }
        return [Math.max(...columns), Math.max(...rows)]
      })()`
    assert.deepEqual(await page.evaluate(alarms), [0, 0], 'the limit is far above the curves')
    limited.allocate(32 * MiB)
    await page.waitForSelector(`${card} .legend:not(:has(b:text-is("above the chart")))`)
    await until(page, `${alarms}[1] > 200`) // the limit from left to right
    assert.equal(limited.tryAllocate(65 * MiB), null)
    await page.waitForSelector(`${card} .alarm:has(dt:text-is("out of memory")) dd:text-is("1")`)
    await until(page, 'document.title === "Out of memory: small 1 · cuda-mempool live"')
    await until(page, `${alarms}[0] > 100`) // the refused request from top to bottom
    assert.equal(await page.locator('.u-legend').count(), 0)
    limited.close()
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('says from 2 s on when a stopped process answered last, and greys its pools until it answers', async t => {
    const [html, stats] = await Promise.all(['/', '/stats'].map(path => ask(server, path)))
    let events: ServerResponse
    const stopped = createServer(({ url }, response) => {
      if (url!.startsWith('/events')) {
        events = response.writeHead(200, { 'Content-Type': 'text/event-stream' })
        events.write(`data: ${stats.body}\n\n`)
      } else response.end(url === '/' ? html.body : '{}')
    }).listen(0)
    await once(stopped, 'listening')
    t.after(() => stopped.close().closeAllConnections())
    const answer = () => events.write(`data: ${stats.body}\n\n`)
    const page = await browser.newPage()
    await page.clock.install({ time: 0 })
    await page.goto(`http://127.0.0.1:${(stopped.address() as AddressInfo).port}/`)
    await page.waitForSelector('section[aria-label="pool train"]')
    await page.clock.pauseAt(60_000)
    await page.waitForSelector('#age:not(:empty)')
    answer()
    await page.waitForSelector('#age:empty', { state: 'attached' })
    await page.clock.runFor(1500)
    assert.equal(await page.textContent('#age'), '')
    await page.clock.runFor(10_500)
    assert.equal(await page.textContent('#age'), 'Last answer 12 s ago.')
    assert.match((await page.textContent('#state'))!, /^The process does not answer/)
    const filter = () => page.evaluate("getComputedStyle(document.querySelector('section')).filter")
    assert.equal(await filter(), 'grayscale(1)')
    answer()
    await page.waitForSelector('#age:empty', { state: 'attached' })
    assert.deepEqual([await page.textContent('#state'), await filter()], ['', 'none'])
    await page.close()
  })

  test('shows all pools on top, with bars of one scale, and links to their parts of the page', async () => {
    const others = Array.from({ length: 9 }, (_, index) => {
      const other = device.createPool()
      other.allocate((index + 1) * 20 * MiB)
      return { other, name: server.add(other, `pool ${index}`) }
    })
    const { page, problems } = await open()
    const row = (name: string) => `.overview tr:has(th:text-is("${name}"))`
    await page.waitForSelector(`${row('device memory')} td.reserved`)
    assert.equal(await page.locator('.overview tbody tr').count(), 11)
    const widths = (await page.evaluate(`[...document.querySelectorAll('.overview tbody tr')].map(row =>
      row.querySelector('.track i.asked').getBoundingClientRect().width)`)) as number[]
    assert.equal(widths[0], 0, 'the sum has no bar')
    assert.ok(Math.abs(widths[10] / widths[2] - 9) < 0.2, `${widths}`)
    const reserved = [pool, ...others.map(({ other }) => other)].reduce((sum, each) => sum + each.stats().liveBytes, 0)
    assert.equal(await page.textContent(`${row('device memory')} td.in-use`), formatBytes(reserved))
    await page.click('.overview a:text-is("pool 8")')
    const target = (await page.evaluate('document.querySelector(":target").ariaLabel')) as string
    assert.equal(target, 'pool pool 8')
    await page.setViewportSize({ width: 390, height: 800 })
    await until(page, 'document.documentElement.scrollWidth === 390')
    const overview = '(table => table.scrollWidth <= table.clientWidth)(document.querySelector(".overview"))'
    assert.ok(await page.evaluate(overview), 'no column is out of sight')
    for (const { other } of others) other.close()
    await page.waitForSelector('.overview', { state: 'hidden' })
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  for (const isDark of [false, true]) {
    test(`has no violations of accessibility rules, ${isDark ? 'dark' : 'light'}`, async () => {
      const { page } = await open(isDark)
      await page.waitForSelector('canvas.map[aria-label^="address map of "]')
      assert.deepEqual(await violations(page), [])
      await page.context().close()
    })
  }
})

/** Waits in the page: its content policy forbids the `eval` by which Playwright looks at an expression again. */
async function until(page: Page, condition: string): Promise<void> {
  await page.evaluate(
    `new Promise(resolve => { const look = () => (${condition} ? resolve() : requestAnimationFrame(look)); look() })`,
  )
}
