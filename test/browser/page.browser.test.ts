// The page of a recording in a real browser, opened as a file.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pageOf } from '../../src/recordings/report/page/page.js'
import { pageDifference } from '../../src/recordings/report/page/page-difference.js'
import { readRecording } from '../../src/recordings/trace/formats/read-recording.js'
import { Action, type Trace } from '../../src/recordings/trace/trace.js'
import { TraceBuilder } from '../../src/recordings/trace/trace-builder.js'
import { tune } from '../../src/recordings/trace/tune/tune.js'
import { openBrowser, skipReason, violations } from './chromium.fixture.js'
import { idle, overlaps, Pages, POLICIES, press, state, text } from './page.fixture.js'

const HOSTILE = '</script><img src=x onerror=alert(1)><b>frame</b>'

describe('the page of a recording', { skip: skipReason }, () => {
  const pages = new Pages()
  const { folder, problems } = pages
  const open = pages.open.bind(pages)
  const show = pages.show.bind(pages)
  before(() => pages.start())
  after(() => pages.close())

  const mlp = readRecording('traces/mlp-train-stacks.pickle.gz')
  const oom = readRecording('traces/oom-retry-2gib.pickle.gz')
  const leak = readRecording('traces/pairs/lstm-seed0-grown-leak.pickle.gz')

  test('says how much was reserved and needed, and follows cursor, keys, search, filter and markers', async () => {
    const page = await open(mlp)
    assert.match(await text(page, '#verdict'), /PyTorch reserved at most 198 MiB for at most 187.12 MiB in use: 1.06 ×/)
    assert.match(await text(page, '#holders-title'), /^Who holds it at the peak, .*: 187.12 MiB in 65 blocks$/)
    const peak = (await state(page)).cursor
    await press(page, 'ArrowRight')
    assert.equal((await state(page)).cursor > peak, true)
    assert.match(await text(page, '#said'), /^event \d+: .* in use; most: /)
    await press(page, 'p', '+', '+', 'a')
    const zoomed = await state(page)
    assert.deepEqual([zoomed.cursor, zoomed.a], [peak, peak])
    assert.ok(zoomed.to - zoomed.from < mlp.events / 2)
    await press(page, '0')
    assert.deepEqual([(await state(page)).from, (await state(page)).to], [0, mlp.events])
    await page.keyboard.press('/')
    await page.keyboard.type('adam.py')
    await idle(page)
    assert.match(await text(page, '#found'), /^\d+ blocks, .* at the peak$/)
    await page.keyboard.press('Escape')
    await idle(page)
    assert.equal((await state(page)).find, '')
    await page.click('#legend button >> nth=0')
    await idle(page)
    assert.equal((await state(page)).only.length, 1)
    await page.mouse.move(0, 0)
    const box = (await page.locator('#stacked').boundingBox())!
    await page.locator('#stacked').click({ position: { x: box.width / 2, y: box.height * 0.8 } })
    await idle(page)
    assert.notEqual((await state(page)).pinned, null)
    assert.match(await text(page, '#block'), /blocks? held address 0x/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('draws a call stack of 20,000 frames, and its difference', async () => {
    const deep = (bytes: number): Trace => {
      const builder = new TraceBuilder()
      const frames = Array.from({ length: 20_000 }, (_, line) => builder.stacks.entry('deep.py', line, `f${line}`))
      builder.add(Action.alloc, 2 ** 30, bytes, 0, 0, builder.stacks.number(frames))
      return builder.build({ file: `${bytes}.pickle` })
    }
    const traces = [deep(2 ** 20), deep(2 ** 21)] as const
    const path = join(folder, 'deep.html')
    const difference = pageDifference(traces[0], traces[1], ['a', 'b'])
    const reported = traces.map(trace => ({ trace, replay: null, tuned: null, tab: trace.file }))
    writeFileSync(path, pageOf(reported, difference))
    const page = await show(path, false)
    for (const icicle of ['#icicle', '#difference .icicle']) {
      const boxes = page.locator(`${icicle} [role=treeitem]`)
      assert.match((await boxes.allTextContents()).join(), /^all .*,20,000 calls: f19999 › … › f0 \+?1 MiB$/)
      await boxes.last().click()
      await idle(page)
      assert.equal(await boxes.count(), 1000)
      assert.match(await text(page, `${icicle} > p`), /^19,000 more rows of calls are not drawn\. Zoom in/)
    }
    const box = (await page.locator('#stacked').boundingBox())!
    await page.locator('#stacked').click({ position: { x: box.width / 2, y: box.height * 0.8 } })
    await idle(page)
    assert.match(await text(page, '#block .stack li:last-child'), /^… 19500 more$/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows a call of the icicle as the whole, by click and by keys, and back', async () => {
    const page = await open(mlp)
    const boxes = page.locator('#icicle [role=treeitem]')
    const texts = async () => (await boxes.allTextContents()).filter(label => label !== '')
    const first = await texts()
    assert.equal(first[0], 'all 187.12 MiB')
    const chain = first.findIndex(label => /^\d+ calls: /.test(label))
    assert.ok(chain > 0, first.join('\n'))
    const cut = () =>
      boxes.evaluateAll(all => {
        return all.map(Object).filter(box => box.textContent !== '' && box.scrollWidth > box.clientWidth).length
      })
    assert.equal(await cut(), 0)
    await boxes.nth(chain).hover()
    await idle(page)
    assert.match(await text(page, '#tip'), /calls: .* MiB.* of what is held, in \d+ block/)
    await boxes.nth(chain).click()
    await idle(page)
    const zoomed = await texts()
    assert.ok(first[chain].includes(zoomed[0].split(' ')[0]), `${first[chain]} begins with ${zoomed[0]}`)
    assert.equal((await boxes.first().boundingBox())!.width, (await page.locator('#icicle').boundingBox())!.width)
    assert.match(await text(page, '#icicle nav'), /^all/)
    assert.equal(await cut(), 0)
    await press(page, 'ArrowLeft')
    assert.deepEqual(await texts(), zoomed, 'the zoom stays where the cursor moves')
    await boxes.first().focus()
    await press(page, 'Escape')
    assert.deepEqual(await texts(), first)
    await press(page, 'ArrowDown', 'Enter', 'ArrowDown', 'Enter')
    assert.equal(await page.locator('#icicle nav button').count(), 2)
    assert.equal(await page.evaluate('document.activeElement.getAttribute("aria-level")'), '1')
    await press(page, 'Backspace')
    assert.equal(await page.locator('#icicle nav button').count(), 1)
    await page.click('#icicle nav button')
    await idle(page)
    assert.deepEqual(await texts(), first)
    assert.deepEqual(await violations(page), [])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('of 20,000 failed requests and 20,000 steps, marks and bars that share a pixel are drawn once', async () => {
    const builder = new TraceBuilder()
    builder.add(Action.alloc, 2 ** 30, 2 ** 20, 0, 0)
    for (let i = 0; i < 20_000; i++) builder.add(Action.outOfMemory, 0, 2 ** 40, 0, i)
    const annotations = Array.from({ length: 40_000 }, (_, i) => {
      return { isStart: i % 2 === 0, name: 'Optimizer.step#SGD.step', timeUs: i / 2 }
    })
    const page = await open(builder.build({ file: 'many', annotations }))
    await page.evaluate(`globalThis.drawn = 0
      for (const name of ['fill', 'fillRect']) {
        const own = CanvasRenderingContext2D.prototype[name]
        CanvasRenderingContext2D.prototype[name] = function (...all) { drawn++; return own.apply(this, all) }
      }`)
    await press(page, 'ArrowLeft')
    const drawn = Number(await page.evaluate('drawn'))
    assert.ok(drawn > 1000 && drawn < 12_000, `${drawn} marks and bars in five pictures of 1,400 pixels`)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('explains each failed request', async () => {
    const page = await open(oom)
    assert.match(await text(page, '#failure'), /Out of memory at event 5,568.*17 of 17.*Fragmentation: /)
    assert.equal(await text(page, '#failure h2'), 'Out of memory at event 5,568')
    assert.equal(await page.locator('.remedies').count(), 0, 'nothing was tried')
    assert.equal(await page.evaluate('scrollY'), 0)
    await page.click('#failure button >> text=show the moment')
    await idle(page)
    const { cursor, from, to } = await state(page)
    assert.ok(from <= cursor && cursor < to && to - from < oom.events / 4, `${from} to ${to}`)
    const top = (await page.locator('#curves').boundingBox())!.y
    assert.ok(top > 0 && top < 200, 'the pictures are at the top of the window')
    await press(page, 'o')
    assert.match(await text(page, '#failure'), /1 of 17/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows the settings that were tried as a table, with a line to copy in each row', async () => {
    const tuned = await tune([oom], { settings: ['expandable_segments:True'] })
    const path = join(folder, 'tuned.html')
    writeFileSync(path, pageOf([{ trace: oom, replay: null, tuned, tab: 'oom' }]))
    for (const isDark of [false, true]) {
      const page = await show(path, isDark)
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
      const rows = await page.locator('.remedies tbody tr').allTextContents()
      assert.match(
        rows[0],
        /^export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.*2\.08 GiBno: 7 requests failto 2\.08 GiB: yescopy$/,
      )
      assert.equal(rows.length, 2)
      await page.click('.remedies tr:nth-child(2) button')
      await page.locator('.remedies button >> text=copied').waitFor()
      assert.equal(
        await page.evaluate('navigator.clipboard.readText()'),
        'torch.cuda.set_per_process_memory_fraction(0.017)',
      )
      for (const width of [390, 720]) {
        await page.setViewportSize({ width, height: 900 })
        await page.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
        await idle(page)
        assert.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= width, `scrolls at ${width}`)
        assert.deepEqual(await overlaps(page), [], `at ${width}`)
      }
      assert.deepEqual(await violations(page), [])
      assert.deepEqual(problems, [])
      await page.context().close()
    }
  })

  test('keeps the view in its address', async () => {
    const page = await open(mlp, false, '#e=300&z=200-400&colour=size&a=250')
    const shown = await state(page)
    assert.deepEqual([shown.cursor, shown.from, shown.to, shown.a], [300, 200, 400, 250])
    await page.context().close()
    const other = await open(mlp, false, '#e=200000&a=100000') // of a longer recording
    assert.match(await text(other, '#holders-title'), /^Who holds it at event/)
    assert.equal((await state(other)).a, null)
    assert.deepEqual(problems, [])
    await other.context().close()
  })

  test('shows three of seven lines at first, numbered as in the table, and keeps a choice of lines', async () => {
    const policies = [...POLICIES, 'pytorch', 'pytorch-expandable', 'driver-malloc', 'driver-pool', 'power-of-two']
    const page = await open(mlp, false, '', policies)
    const rows = page.locator('#policies button')
    const shown = () => rows.evaluateAll(all => all.map(Object).filter(each => each.ariaPressed === 'true').length)
    assert.deepEqual([await shown(), (await rows.allTextContents())[1]], [3, '2cuda-mempool'])
    assert.match(await text(page, '#curves-text'), /; 4 lines are hidden: click a name in the table$/)
    const dashes = await rows
      .locator('line')
      .evaluateAll(all => all.map(each => Object(each).getAttribute('stroke-dasharray')))
    assert.equal(new Set(dashes).size, 6, dashes.join())
    assert.deepEqual(dashes.slice(0, 2), ['', ''])
    for (let row = 0; row < 7; row++)
      if ((await rows.nth(row).getAttribute('aria-pressed')) === 'false') await rows.nth(row).click()
    await idle(page)
    await page.waitForURL(/hide=&/)
    await page.reload()
    await page.waitForFunction('globalThis.cudaMempoolPage')
    await idle(page)
    assert.equal(await shown(), 7)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('grows with the default font of the browser, without overlaps', async () => {
    const large = await openBrowser(['--blink-settings=defaultFontSize=24'])
    try {
      const path = join(folder, 'large.html')
      writeFileSync(path, pageOf([oom, leak].map(trace => ({ trace, replay: null, tuned: null, tab: trace.file }))))
      for (const width of [390, 1280]) {
        const page = await show(path, false, '', large)
        assert.equal(await page.evaluate('getComputedStyle(document.body).fontSize'), '21px')
        await page.setViewportSize({ width, height: 900 })
        await page.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
        await idle(page)
        assert.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= width, `scrolls at ${width}`)
        assert.deepEqual(await overlaps(page), [], `at ${width}`)
        assert.equal(await page.evaluate('document.querySelector("#curves canvas").clientHeight'), 178 * 1.5)
        await page.context().close()
      }
    } finally {
      await large.close()
    }
  })

  test('keeps in its address policies whose names have dots', async () => {
    const policies = ['recorded', 'pytorch:garbage_collection_threshold:0.8']
    const page = await open(mlp, false, '', policies)
    await page.click('#policies button >> nth=1')
    await page.waitForURL(/hide/)
    await page.reload()
    await page.waitForFunction('globalThis.cudaMempoolPage')
    await idle(page)
    const { hidden, maps } = await state(page)
    assert.deepEqual([hidden, maps], [[policies[1]], policies])
    await page.context().close()
  })

  test('writes its pictures as PNG and SVG', async () => {
    const page = await open(oom)
    const written = async (name: string) => {
      await page.click('.menu summary')
      const [download] = await Promise.all([page.waitForEvent('download'), page.click(`[data-export="${name}"]`)])
      return readFileSync(await download.path())
    }
    const texts = async (name: string) => {
      const svg = (await written(name)).toString()
      assert.ok(svg.startsWith('<svg') && /<rect [^>]*fill="(?:#|url\()/.test(svg), name)
      return [...svg.matchAll(/<text [^>]*>([^<]*)</g)].map(([, text]) => text)
    }
    const files = {
      'curves.svg': ['1 PyTorch as recorded 2 GiB', '2 cuda-mempool 2.12 GiB', 'in use, at most 1.93 GiB'],
      'stacked.svg': ['blocks below half a pixel, together', '1/16 of all events or longer 1.23 GiB'],
      'maps.svg': ['PyTorch as recorded, 2 GiB', 'cuda-mempool, 2.12 GiB', 'obtained and unused'],
    }
    for (const [name, wanted] of Object.entries(files)) {
      const found = await texts(name)
      for (const text of [...wanted, 'out of memory, 17 times']) assert.ok(found.includes(text), `${name}: ${text}`)
      assert.match(found.at(-1)!, /^oom-retry-2gib\.pickle\.gz · 6,067 events · 39.54 ms · by cuda-mempool, 20\d\d-/)
    }
    const sizeOf = (png: Buffer) => {
      assert.equal(png.toString('latin1', 1, 4), 'PNG')
      return [png.readUInt32BE(16), png.readUInt32BE(20)]
    }
    assert.ok(sizeOf(await written('stacked.png'))[1] > 2 * 350)
    const main = (await page.locator('main').boundingBox())!
    const [width, height] = sizeOf(await written('png'))
    assert.ok(width === 2 * main.width && height > 2 * main.height, 'the image has the whole page')
    assert.equal(await page.locator('.map select').count(), 2, 'the page itself stays')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows several recordings over each other, and opens one by a click on its curve or its name', async () => {
    const path = join(folder, 'ranks.html')
    const reported = [mlp, oom, leak].map((trace, i) => ({ trace, replay: null, tuned: null, tab: `rank${i}` }))
    writeFileSync(path, pageOf(reported))
    const page = await show(path, false)
    assert.match(await text(page, '#ranks-text'), /^Of 3 recordings rank1 ran out of memory\..*rank1 differs most/)
    assert.match(await text(page, '.bars button >> nth=0'), /^rank1$/)
    assert.equal(await page.locator('#ranks polyline').count(), 3)
    assert.deepEqual(
      await page
        .locator('.plot button')
        .allTextContents()
        .then(names => names.sort()),
      ['rank0', 'rank1', 'rank2'],
    )
    await page.locator('#ranks polyline').last().dispatchEvent('click')
    await idle(page)
    assert.equal((await state(page)).recording, 1)
    await page.click('.plot button >> text=rank2')
    await idle(page)
    assert.equal((await state(page)).recording, 2)
    assert.deepEqual(await violations(page), [])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('compares two recordings by call stack, in words, curves and signed bars', async () => {
    const holding = (blocks: readonly (readonly [name: string, mebibytes: number])[], file: string) => {
      const builder = new TraceBuilder()
      for (const [i, [name, mebibytes]] of blocks.entries()) {
        const stack = builder.stacks.number([builder.stacks.entry('train.py', 1 + i, name)])
        builder.add(Action.alloc, 2 ** 30 * (i + 1), mebibytes * 2 ** 20, 0, i * 10, stack)
      }
      return builder.build({ file })
    }
    const before = holding(
      [
        ['model', 4],
        ['load', 2],
      ],
      'a.pickle',
    )
    const after = holding(
      [
        ['model', 9],
        [HOSTILE, 1],
      ],
      'b.pickle',
    )
    const reported = [before, after].map(trace => ({ trace, replay: null, tuned: null, tab: trace.file }))
    for (const isDark of [false, true]) {
      const path = join(folder, `diff-${isDark}.html`)
      writeFileSync(path, pageOf(reported, pageDifference(before, after, ['a.pickle', 'b.pickle'])))
      const page = await show(path, isDark)
      assert.match(
        await text(page, '#difference'),
        /A: a\.pickle · B: b\.pickle.*Most in use: 6 MiB in A, 10 MiB in B \(\+4 MiB\)\./,
      )
      const rows = await page.locator('#difference tbody tr').allTextContents()
      assert.match(
        rows.join('\n'),
        /^train\.py:1 model \(from 4 MiB\)\+5 MiB\ntrain\.py:2 load \(gone\)−2 MiB\n.*\+1 MiB$/,
      )
      const bars = await page
        .locator('#difference .signed i')
        .evaluateAll(bars => bars.map(bar => (bar as unknown as { className: string }).className))
      assert.deepEqual(bars, ['more', 'less', 'more'])
      const boxes = await page.locator('#difference [role=treeitem]').allTextContents()
      assert.deepEqual(boxes.slice(0, 3), ['all +4 MiB', 'model +5 MiB', 'load −2 MiB'])
      const sections = page.locator('main > section:not([hidden])')
      const names = await sections.evaluateAll(all => all.map(each => (each as unknown as { id: string }).id))
      assert.deepEqual([names[0], names.at(-1)], ['difference', 'outside-section'], names.join())
      assert.match(await text(page, '#difference .sizes'), /^\+5 MiBtrain\.py:1 model \(from 4 MiB\)/)
      assert.match(await text(page, '#outside'), /is not in this file: .*, and none failed\.$/)
      assert.deepEqual(await violations(page), [])
      assert.deepEqual(problems, [])
      await page.context().close()
    }
  })

  for (const isDark of [false, true]) {
    test(`fits four widths without overlaps, ${isDark ? 'dark' : 'light'}, in print and with forced colours`, async () => {
      const difference = pageDifference(mlp, leak, ['mlp', 'leak'])
      const reported = [mlp, leak].map(trace => ({ trace, replay: null, tuned: null, tab: trace.file }))
      const path = join(folder, `fits-${isDark}.html`)
      writeFileSync(path, pageOf(reported, difference))
      for (const page of [await open(isDark ? leak : oom, isDark), await show(path, isDark)]) {
        for (const width of [390, 720, 1280, 1800]) {
          await page.setViewportSize({ width, height: 900 })
          await page.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
          await idle(page)
          assert.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= width, `scrolls at ${width}`)
          assert.deepEqual(await overlaps(page), [], `at ${width}`)
        }
        for (const media of [{ media: 'print' }, { media: 'screen', forcedColors: 'active' }] as const) {
          await page.emulateMedia(media)
          assert.deepEqual(await overlaps(page), [], JSON.stringify(media))
          const style = await page.evaluate(`['print-color-adjust', 'forced-color-adjust'].map(
            name => getComputedStyle(document.querySelector('#legend .swatch')).getPropertyValue(name))`)
          assert.deepEqual(style, 'media' in media && media.media === 'print' ? ['exact', 'auto'] : ['economy', 'none'])
        }
        assert.deepEqual(problems, [])
        await page.context().close()
      }
    })

    test(`has no violations of accessibility rules, ${isDark ? 'dark' : 'light'}`, async () => {
      const page = await open(isDark ? mlp : oom, isDark)
      // The page's policy forbids other scripts; the debugger does not ask it.
      assert.deepEqual(await violations(page), [])
      await page.context().close()
    })
  }

  test('shows markup in names as text', async () => {
    const builder = new TraceBuilder()
    const { stacks } = builder
    const stack = stacks.number([stacks.entry(`${HOSTILE}.py`, 1, HOSTILE), stacks.entry('x'.repeat(1e5), 2, 'long')])
    for (let i = 0; i < 20; i++) builder.add(Action.alloc, 2 ** 30 * (i + 1), 2 ** 20 * (i + 1), 0, i * 10, stack)
    const page = await open(builder.build({ file: `${HOSTILE}.pickle` }))
    assert.equal(await page.locator('img').count(), 0)
    assert.match(await text(page, '#groups'), /<b>frame<\/b>/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('has no axis of time for a recording without times, also if the address asks for one', async () => {
    const builder = new TraceBuilder()
    for (const address of [2 ** 30, 2 ** 31]) builder.add(Action.alloc, address, 2 ** 20, 0, 0)
    const page = await open(builder.build({ file: 'timeless' }), false, '#x=time')
    const { from, to } = await state(page)
    assert.deepEqual([from, to, await page.inputValue('#axis'), await page.isDisabled('#axis')], [0, 2, 'event', true])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows a recording with one event, and one without allocations', async () => {
    for (const action of [Action.alloc, Action.segmentAlloc]) {
      const builder = new TraceBuilder()
      builder.add(action, 2 ** 30, 2 ** 20, 0, 0)
      const page = await open(builder.build({ file: 'one' }))
      assert.match(await text(page, '#verdict'), /in use/)
      await press(page, 'ArrowRight', '+', '-', 'p', 'o', ']', '0')
      assert.deepEqual(problems, [])
      await page.context().close()
    }
  })
})
