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
import { skipReason, violations } from './chromium.fixture.js'
import { idle, overlaps, Pages, press, state, text } from './page.fixture.js'

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
    assert.match(await text(page, '#verdict'), /PyTorch reserved 198 MiB for 187.12 MiB in use: 1.06 ×/)
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
    assert.match(await text(page, '#block'), /blocks? lay at its address|Only this block/)
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
      assert.equal(await page.locator(`${icicle} > div`).count(), 1001)
      assert.equal(await text(page, `${icicle} > div:last-child`), '… 19,001 more rows')
    }
    const box = (await page.locator('#stacked').boundingBox())!
    await page.locator('#stacked').click({ position: { x: box.width / 2, y: box.height * 0.8 } })
    await idle(page)
    assert.match(await text(page, '#block .stack li:last-child'), /^… 19500 more$/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('explains each failed request', async () => {
    const page = await open(oom)
    assert.match(await text(page, '#failure'), /Out of memory at event 5,568.*17 of 17.*Fragmentation: /)
    assert.equal(await text(page, '#failure h2'), 'Out of memory at event 5,568')
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
    const page = await open(mlp)
    for (const [name, start] of [
      ['stacked.svg', '<svg'],
      ['maps.svg', '<svg'],
      ['png', '\x89PNG'],
    ]) {
      await page.click('.menu summary')
      const [download] = await Promise.all([page.waitForEvent('download'), page.click(`[data-export="${name}"]`)])
      const content = readFileSync(await download.path(), 'latin1')
      assert.ok(content.startsWith(start), name)
      assert.ok(!start.startsWith('<') || /<rect [^>]*fill="#/.test(content), name)
    }
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
      const boxes = await page.locator('#difference .icicle > *').allTextContents()
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
