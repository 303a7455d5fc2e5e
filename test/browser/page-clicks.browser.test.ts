// Clicks and keys on the parts of the report page.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Page } from 'playwright-core'
import { formatBytes } from '../../src/core/base/bytes.js'
import { pageOf } from '../../src/recordings/report/page/page.js'
import { readRecording } from '../../src/recordings/trace/formats/read-recording.js'
import { Action } from '../../src/recordings/trace/trace.js'
import { TraceBuilder } from '../../src/recordings/trace/trace-builder.js'
import { skipReason, violations } from './chromium.fixture.js'
import { idle, overlaps, Pages, press, state, text, until } from './page.fixture.js'

/** A view with a selected block, markers, a filter, and the list of events. */
const EVERYTHING = '#block=300&list=1&a=100&b=500&without=7'

describe('a click on the page of a recording', { skip: skipReason }, () => {
  const pages = new Pages()
  const { problems } = pages
  before(() => pages.start())
  after(() => pages.close())

  const mlp = readRecording('traces/mlp-train-stacks.pickle.gz')

  const oom = readRecording('traces/oom-retry-2gib.pickle.gz')

  /** Clicks a place of a picture, as shares of its width and height. */
  async function clickAt(page: Page, selector: string, x: number, y: number): Promise<void> {
    const { width, height } = (await page.locator(selector).boundingBox())!
    await page.locator(selector).click({ position: { x: width * x, y: height * y } })
    await idle(page)
  }

  /** The pixels of the curves with their axis, and of the other pictures above theirs. */
  const pixels = (page: Page) =>
    page.evaluate(`[['#curves', 0], ['#stacked', 30], ['.map .picture', 30]].map(([name, axis]) => {
      const canvas = document.querySelector(name + ' canvas')
      const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height - axis })
      copy.getContext('2d').drawImage(canvas, 0, 0)
      return copy.toDataURL()
    })`) as Promise<string[]>
  const focused = (page: Page) => page.evaluate('document.activeElement.id || document.activeElement.textContent')

  test('selects a block: outlines it in every picture, and shows it in a drawer that Escape closes', async () => {
    const page = await pages.open(mlp)
    await clickAt(page, '#stacked', 0.5, 0.35)
    const block = (await state(page)).pinned
    assert.notEqual(block, null)
    const drawer = (await page.locator('#block').boundingBox())!
    assert.deepEqual([drawer.y + drawer.height, await focused(page)], [900, 'block'])
    const picture = (await page.locator('#stacked').boundingBox())!
    assert.ok(picture.y + picture.height <= drawer.y + 1, 'the picture is above the drawer')
    assert.match(await text(page, '#block-body'), /PyTorch as recorded0x[0-9a-f]+cuda-mempool0x[0-9a-f]+allocated by/)
    assert.match(await text(page, '#block-body'), /(blocks|block) held address 0x[0-9a-f]+ \(PyTorch/)
    const outlined = await pixels(page)
    await press(page, 'Escape')
    assert.deepEqual([(await state(page)).pinned, await focused(page)], [null, 'stacked'])
    assert.equal(await page.isVisible('#block'), false)
    const plain = await pixels(page)
    for (const i of outlined.keys()) assert.ok(outlined[i] !== plain[i], `picture ${i}`)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  /** A block of 1 MiB, then one over it and the next MiB, then one of that MiB alone; 100 more of both. */
  function walked() {
    const builder = new TraceBuilder()
    const [MiB, base] = [2 ** 20, 2 ** 31]
    builder.add(Action.segmentAlloc, base, 4 * MiB, 0, 0)
    for (let i = 0; i < 300; i++) {
      const [at, size] = [base + (i % 3 === 2 ? MiB : 0), (i % 3 === 1 ? 2 : 1) * MiB]
      for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted])
        builder.add(action, at, size, 0, i)
    }
    return builder.build({ file: 'one place' })
  }

  test('walks the blocks of one address, so that a step back undoes a step on', async () => {
    const page = await pages.open(walked(), false, '#block=0', ['recorded'])
    const wanted = /200 blocks held address 0x80000000 \(PyTorch/
    assert.match(await text(page, '#block-body'), wanted)
    const steps: (number | null)[] = []
    for (const step of ['after', 'after', 'after', 'before', 'before', 'before']) {
      await page.click(`#block-${step}`)
      await idle(page)
      steps.push((await state(page)).pinned)
      assert.match(await text(page, '#block-body'), wanted)
    }
    assert.deepEqual(steps, [1, 3, 4, 3, 1, 0])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('has the facts of a block at the top of the drawer, beside a long history that scrolls by itself', async () => {
    const page = await pages.open(walked(), false, '#block=150', ['recorded'])
    for (const width of [1280, 1440]) {
      await page.setViewportSize({ width, height: 900 })
      const tops = await page.locator('#block dt').evaluateAll(all => all.map(each => each.getBoundingClientRect().top))
      assert.ok(tops.length > 3 && tops.every((top, i) => i === 0 || top - tops[i - 1] < 30), `${tops}`)
      const [drawer, own] = [(await page.locator('#block').boundingBox())!, page.locator('#block [aria-current]')]
      assert.equal(await page.evaluate("document.getElementById('block').scrollTop"), 0)
      assert.equal(
        await page.evaluate("(b => b.scrollHeight > b.clientHeight)(document.getElementById('block'))"),
        false,
      )
      const { y, height } = (await own.boundingBox())!
      assert.ok(y > drawer.y && y + height <= drawer.y + drawer.height, 'the list shows the selected block')
    }
    await page.context().close()
  })

  test('goes to the blocks before and after at an address', async () => {
    const { address } = mlp.blocks
    const first = address.findIndex((each, i) => address.indexOf(each) < i && address.lastIndexOf(each) > i)
    const page = await pages.open(mlp, false, `#block=${first}`)
    const own = await text(page, '#block [aria-current]')
    await page.click('#block-after')
    await idle(page)
    assert.notEqual((await state(page)).pinned, first)
    assert.equal(await focused(page), 'block-after')
    await page.click('#block-before')
    await idle(page)
    assert.equal((await state(page)).pinned, first)
    await page.click('#block li button:not([aria-current])')
    await idle(page)
    assert.notEqual(await text(page, '#block [aria-current]'), own)
    assert.equal(await focused(page), await text(page, '#block [aria-current]'))
    await page.click('#block-life')
    await idle(page)
    const { from, to } = await state(page)
    assert.ok(to - from < mlp.events / 2, `${from} to ${to}`)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('links lines with whole paths to an editor only if that is chosen', async () => {
    const builder = new TraceBuilder()
    const { stacks } = builder
    const paths = ['/home/me/my model.py', 'train.py', 'C:\\runs\\run#1.py']
    const frames = paths.map((file, i) => stacks.entry(file, 7 + i, `f${i}`))
    builder.add(Action.alloc, 2 ** 30, 2 ** 20, 0, 0, stacks.number(frames))
    const page = await pages.open(builder.build({ file: 'linked' }), false, '#block=0')
    assert.equal(await page.locator('#block a').count(), 0)
    await page.check('#block input')
    const links = await page.locator('#block a').evaluateAll(all => all.map(each => each.getAttribute('href')))
    assert.deepEqual(links, ['vscode://file/home/me/my%20model.py:7', 'vscode://file/C:/runs/run%231.py:9'])
    await page.reload()
    await page.waitForFunction('globalThis.cudaMempoolPage')
    await idle(page)
    assert.equal(await page.locator('#block a').count(), 2)
    assert.deepEqual(await violations(page), [])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('says of a selected block which policies did not place it', async () => {
    const builder = new TraceBuilder()
    builder.add(Action.alloc, 2 ** 30, 2 ** 20, 0, 0)
    builder.add(Action.segmentAlloc, 2 ** 31, 2 ** 21, 0, 1)
    builder.add(Action.alloc, 2 ** 31, 2 ** 20, 0, 2)
    const page = await pages.open(builder.build({ file: 'lost segment' }), false, '#block=0')
    assert.match(await text(page, '#block dl'), /not in the recordingcuda-mempool0x/)
    await page.context().close()
  })

  test('shows in the table, the icicle and the list of events only what a search and the legend find', async () => {
    const page = await pages.open(mlp)
    const rows = () => page.locator('#groups tbody tr').count()
    const boxes = () => page.locator('#icicle :is([role=listitem], [role=treeitem])').count()
    const [allRows, allBoxes] = [await rows(), await boxes()]
    await page.keyboard.press('/')
    await page.keyboard.type('adam.py', { delay: 20 })
    await idle(page)
    const [, count, bytes] = /^(\d+) blocks, (.*) at the peak$/.exec(await text(page, '#found'))!
    assert.match(await text(page, '#holders-title'), new RegExp(`: ${bytes} in \\d+ blocks found, of 187.12 MiB$`))
    assert.ok((await rows()) < allRows && (await boxes()) < allBoxes)
    assert.equal(await text(page, '#list'), `list those of the ${count} blocks found`)
    await page.click('#list')
    await idle(page)
    const events = Number(/^\d+/.exec(await text(page, '#events-text'))![0])
    assert.equal(await page.locator('#events tbody tr').count(), events)
    assert.match(
      await text(page, '#events tbody tr'),
      /^\d+(allocated|freed)[\d.]+ [KM]iBtrain_mlp\.py:62 mlp_stacks0x[0-9a-f]+$/,
    )
    await press(page, 'Escape')
    const all = Number(/^\d+/.exec(await text(page, '#events-text'))![0])
    assert.ok(all > events, 'without the search it lists all events')
    assert.equal(await rows(), allRows)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('says that a search finds nothing, and goes back to where the focus was', async () => {
    const page = await pages.open(mlp)
    await page.focus('#to-peak')
    await page.keyboard.press('/')
    await page.keyboard.type('no such call')
    await idle(page)
    assert.match(await text(page, '#holders'), /Nothing is found: no block matches/)
    for (const part of ['#icicle', '#groups', '#list']) assert.equal(await page.isVisible(part), false, part)
    await press(page, 'Escape')
    assert.equal(await focused(page), 'to-peak')
    assert.ok((await page.isVisible('#icicle')) && (await page.isVisible('#list')))
    assert.match(await text(page, '#icicle .boxes'), /mlp/)
    await page.evaluate('document.activeElement.blur()')
    await press(page, '/', 'Escape')
    assert.equal(await focused(page), 'stacked')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('selects a block from the list of events, by a click and by keys', async () => {
    const page = await pages.open(mlp, false, '#list=1')
    const eventOf = async (row: number) => Number(await text(page, `#events tbody tr:nth-child(${row}) td`))
    await page.click('#events tbody tr:nth-child(3) td:last-child')
    await idle(page)
    assert.equal((await state(page)).pinned, mlp.block[await eventOf(3)])
    await press(page, 'Escape')
    await page.focus('#events tbody button')
    await press(page, 'ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter')
    const event = await eventOf(4)
    assert.equal((await state(page)).pinned, mlp.block[event])
    await press(page, 'Escape')
    assert.equal(await focused(page), String(event), 'the focus is back in the list')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('lists a thousand events, and counts those beyond', async () => {
    const page = await pages.open(oom, false, '#list=1')
    assert.equal(await page.locator('#events tr[data-key]').count(), 1000)
    assert.match(await text(page, '#events tbody tr:last-child'), /^and [\d,]+ more: zoom in, or search$/)
    await page.evaluate("location.hash = '#list=1&z=100-200'")
    await until(page, 'cudaMempoolPage.state().to === 200')
    await idle(page)
    const listed = await page.locator('#events tr[data-key] button').allTextContents()
    assert.ok(listed.length <= 100 && listed.every(event => Number(event) >= 100 && Number(event) < 200))
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('hides a group of the legend by Alt and a click, and by its button', async () => {
    const page = await pages.open(mlp)
    const label = await text(page, '#legend .text >> nth=0')
    const labels = () => page.locator('#groups tbody td:first-child').allTextContents()
    assert.ok((await labels()).includes(label))
    await page.click('#legend button >> nth=0', { modifiers: ['Alt'] })
    await idle(page)
    assert.ok(!(await labels()).includes(label))
    const hide = page.getByRole('button', { name: `hide ${label}`, pressed: true })
    await hide.focus()
    await press(page, 'Enter')
    assert.ok((await labels()).includes(label))
    assert.equal(await page.evaluate('document.activeElement.ariaLabel'), `hide ${label}`)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows only one line after a click on its row, and all after another', async () => {
    const page = await pages.open(mlp)
    const labels = () => page.locator('#groups tbody td:first-child').allTextContents()
    const all = await labels()
    await page.click('#groups tbody tr:nth-child(2) td:last-child')
    await idle(page)
    assert.deepEqual(await labels(), [all[1]])
    assert.match(await text(page, '#found'), /^\d+ blocks?, .* at the peak$/)
    await page.focus('#groups tbody button')
    await press(page, 'Enter')
    assert.deepEqual(await labels(), all)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('says what a range allocates and frees after a drag with Shift, and lists its lines', async () => {
    const page = await pages.open(mlp)
    const box = (await page.locator('#stacked').boundingBox())!
    await page.keyboard.down('Shift')
    await page.mouse.move(box.x + box.width * 0.4, box.y + 100)
    await page.mouse.down()
    await page.mouse.move(box.x + box.width * 0.7, box.y + 100, { steps: 3 })
    await page.mouse.up()
    await page.keyboard.up('Shift')
    await idle(page)
    const { a, b, from, to } = await state(page)
    assert.ok(a !== null && b !== null && a < b)
    assert.deepEqual([from, to], [0, mlp.events], 'the view stays')
    const { bytes, allocatedAt, freeRequestedAt } = mlp.blocks
    const isIn = (event: number) => event > a && event <= b
    const all = [...bytes.keys()]
    const [born, freed] = [all.filter(i => isIn(allocatedAt[i])), all.filter(i => isIn(freeRequestedAt[i]))]
    const sum = (blocks: readonly number[]) => formatBytes(blocks.reduce((total, i) => total + bytes[i], 0))
    const figures = `: ${sum(born)} allocated in ${born.length} blocks, ${sum(freed)} freed in ${freed.length}, net `
    const flow = await text(page, '#flow')
    assert.ok(flow.includes(figures), flow)
    assert.match(flow, /[KM]iBtrain_mlp\.py/)
    await page.click('#flow button')
    await idle(page)
    assert.match(await text(page, '#holders-title'), new RegExp(`^Allocated between A and B: ${sum(born)} in `))
    await press(page, 'Escape')
    assert.equal(await page.isVisible('#flow'), false)
    await press(page, '+', 'r')
    const marked = await state(page)
    assert.deepEqual([marked.a, marked.b], [Math.floor(marked.from), Math.floor(marked.to)])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('tells of a hole its size, its start and its neighbours, by the pointer and by keys', async () => {
    const builder = new TraceBuilder()
    const MiB = 2 ** 20
    const at = (i: number) => 2 ** 31 + i * 4 * MiB
    builder.add(Action.segmentAlloc, at(0), 16 * MiB, 0, 0)
    for (const i of [0, 1, 2, 3]) builder.add(Action.alloc, at(i), (4 - i / 4) * MiB, 0, i + 1)
    builder.add(Action.freeRequested, at(1), 3.75 * MiB, 0, 5)
    builder.add(Action.freeCompleted, at(1), 3.75 * MiB, 0, 5)
    builder.add(Action.alloc, 2 ** 33, MiB, 0, 6)
    const page = await pages.open(builder.build({ file: 'hole' }), false, '#e=7', ['recorded'])
    const wanted = /hole of 4 MiB at 0x80400000unused since event 5above: 3.5 MiB — .*below: 4 MiB — /
    const map = page.locator('.map .picture').first()
    await map.scrollIntoViewIfNeeded()
    const { x, y, width } = (await map.boundingBox())!
    // The plot begins 68 pixels from the left and 12 from the top, and is 233 high.
    await page.mouse.move(x + width - 40, y + 12 + 233 * (1 - 6 / 16))
    await until(page, "document.getElementById('tip').textContent.includes('hole')")
    assert.match(await text(page, '#tip'), wanted)
    await page.mouse.move(0, 0)
    await map.focus()
    await press(page, 'ArrowUp')
    assert.match(await text(page, '#tip'), /^4 MiB — /)
    await press(page, 'ArrowUp')
    assert.match(await text(page, '#tip'), wanted)
    assert.match(
      (await map.getAttribute('aria-valuetext')) ?? '',
      /^event 7.*; hole of 4 MiB at 0x80400000; unused since/,
    )
    await press(page, 'ArrowUp', 'Enter')
    assert.equal((await state(page)).pinned, 2)
    await press(page, 'Escape')
    assert.equal(await page.evaluate("document.activeElement.closest('.map') !== null"), true)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('speaks of a picture more than the event', async () => {
    const page = await pages.open(mlp)
    const spoken = (selector: string) => page.locator(selector).first().getAttribute('aria-valuetext')
    const held = /^event 131, 15.66 ms; 187.12 MiB in use; most: train_mlp.py:62 mlp_stacks, 73.07 MiB/
    assert.match((await spoken('#stacked')) ?? '', held)
    assert.match((await spoken('.map .picture')) ?? '', held)
    assert.match((await spoken('#curves')) ?? '', /73.07 MiB; 198 MiB reserved — PyTorch/)
    await page.focus('#stacked')
    await press(page, 'ArrowUp')
    assert.match((await spoken('#stacked')) ?? '', /^event 131, 15.66 ms; 1 MiB — allocated before the recording began/)
    await press(page, 'ArrowRight')
    assert.doesNotMatch((await spoken('#stacked')) ?? '', /before the recording began/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('undoes a zoom by Back and repeats it by Forward, and keeps the markers', async () => {
    const page = await pages.open(mlp)
    const entries = () => page.evaluate('history.length') as Promise<number>
    const zooms = [await state(page)]
    for (const keys of [['+'], ['+', '+', '+']]) {
      const before = await entries()
      await press(page, ...keys)
      await until(page, `history.length > ${before}`)
      assert.equal(await entries(), before + 1, 'one entry for a zoom of several steps')
      zooms.push(await state(page))
    }
    await press(page, 'a')
    await page.waitForURL(/a=131/)
    const shows = async (step: string, { from, to }: { readonly from: number; readonly to: number }) => {
      await page.evaluate(`history.${step}()`)
      const near = `Math.abs(cudaMempoolPage.state().from - ${from}) + Math.abs(cudaMempoolPage.state().to - ${to})`
      await until(page, `${near} < 0.01`)
      await idle(page)
      assert.equal((await state(page)).a, 131)
    }
    await shows('back', zooms[1])
    await shows('back', zooms[0])
    await shows('forward', zooms[1])
    await shows('forward', zooms[2])
    await page.evaluate("location.hash = '#e=300&z=200-400'")
    await until(page, 'cudaMempoolPage.state().cursor === 300')
    assert.equal((await state(page)).a, null, 'an address from elsewhere is the whole view')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('undoes a zoom of the icicle, a filter and a search by Back, and repeats them by Forward', async () => {
    const page = await pages.open(mlp)
    const entries = () => page.evaluate('history.length') as Promise<number>
    const shown = async () =>
      `${await text(page, '#holders-title')} ${(await page.locator('#icicle').allTextContents()).join('\n')}`
    const steps = [await shown()]
    const settled = async (act: () => Promise<unknown>) => {
      const before = await entries()
      await act()
      await until(page, `history.length > ${before}`)
      await idle(page)
      assert.equal(await entries(), before + 1)
      steps.push(await shown())
    }
    await settled(() => page.locator('#icicle [role=treeitem]').nth(1).click())
    await settled(() => page.click('#invert'))
    await settled(() => page.click('#legend button >> nth=0'))
    await settled(async () => {
      await page.focus('#find')
      await page.keyboard.type('ad')
      await page.waitForURL(/find=ad/)
      await page.keyboard.type('am.py')
      await page.waitForURL(/find=adam.py/)
    })
    assert.equal(new Set(steps).size, 5)
    const found = [steps[4]]
    for (const step of ['back', 'back', 'back', 'back', 'forward', 'forward', 'forward', 'forward']) {
      const at = await page.evaluate('location.hash')
      await page.evaluate(`history.${step}()`)
      await until(page, `location.hash !== ${JSON.stringify(at)}`)
      await idle(page)
      found.push(await shown())
      assert.equal(await page.inputValue('#find'), found.at(-1) === steps[4] ? 'adam.py' : '')
    }
    assert.deepEqual(found, [...steps.toReversed(), ...steps.slice(1)])
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows a link to a zoom of the icicle in a new tab, and says if its call is not found', async () => {
    for (const zooms of [2, 1]) {
      const page = await pages.open(mlp)
      if (zooms === 1) await page.click('#invert')
      for (let i = 0; i < zooms; i++) {
        await idle(page)
        await page.locator('#icicle [role=treeitem]').nth(1).click()
      }
      await idle(page)
      assert.equal(await page.locator('#icicle nav button').count(), zooms)
      const shown = await text(page, '#icicle')
      assert.doesNotMatch(shown, /not found/)
      await page.evaluate('navigator.clipboard.writeText = async text => { globalThis.copied = text }')
      await page.click('#link')
      await idle(page)
      const { hash } = new URL(String(await page.evaluate('copied')))
      await page.context().close()
      const other = await pages.open(mlp, false, hash)
      assert.equal(await text(other, '#icicle'), shown)
      await other.context().close()
    }
    for (const call of ['abc.d_e', 'a.'.repeat(200_000)]) {
      const gone = await pages.open(mlp, false, `#call=${call}`)
      assert.match(await text(gone, '#icicle'), /The call that was zoomed to is not found here\.$/)
      await gone.context().close()
    }
    assert.deepEqual(problems, [])
  })

  test('copies the link of the view', async () => {
    const page = await pages.open(mlp)
    await page.evaluate('navigator.clipboard.writeText = async text => { globalThis.copied = text }')
    await page.keyboard.press('+')
    await page.click('#link')
    await idle(page)
    const { from, to } = await state(page)
    const range = `z=${[from, to].map(place => Math.round(place * 1000) / 1000).join('-')}`
    const copied = String(await page.evaluate('copied'))
    assert.ok(copied.startsWith('file://') && copied.includes(`${range}&`), copied)
    assert.equal(await text(page, '#link'), 'copied')
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('goes Back to the recording before', async () => {
    const path = join(pages.folder, 'two.html')
    writeFileSync(path, pageOf([mlp, oom].map(trace => ({ trace, replay: null, tuned: null, tab: trace.file }))))
    const page = await pages.show(path, false)
    await press(page, '+')
    await until(page, 'history.length > 2')
    await page.click('[role=tab] >> nth=1')
    await page.waitForURL(/#r=1/)
    await idle(page)
    await page.goBack()
    await until(page, 'cudaMempoolPage.state().recording === 0')
    await idle(page)
    const { from, to } = await state(page)
    assert.ok(to - from < mlp.events, `${from} to ${to}`)
    assert.match(await text(page, '#holders-title'), /187.12 MiB/)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  test('shows the export menu within the window, and closes it by Escape and by a click elsewhere', async () => {
    const page = await pages.open(mlp, false, '#without=7')
    for (const width of [390, 720, 1280]) {
      await page.setViewportSize({ width, height: 900 })
      await page.click('.menu summary')
      await page.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
      const { x, width: own } = (await page.locator('.menu > div').boundingBox())!
      assert.ok(x >= 0 && x + own <= width, `from ${x} to ${x + own} of ${width}`)
      await page.mouse.click(4, 890)
      assert.equal(await page.isVisible('.menu > div'), false, `after a click elsewhere at ${width}`)
    }
    await page.click('.menu summary')
    await page.focus('.menu button')
    await press(page, 'Escape')
    assert.equal(await page.isVisible('.menu > div'), false)
    assert.equal(await focused(page), 'export')
    assert.match(await page.evaluate('location.hash'), /without=7/, 'the filter stays')
    assert.equal(await page.evaluate('cudaMempoolPage.state().without.length'), 1)
    await press(page, 'Escape')
    assert.equal(await page.evaluate('cudaMempoolPage.state().without.length'), 0)
    assert.deepEqual(problems, [])
    await page.context().close()
  })

  for (const isListed of [false, true]) {
    test(`leaves controls out of the image of the page, the list of events ${isListed ? 'open' : 'closed'}`, async () => {
      const page = await pages.open(mlp, false, isListed ? EVERYTHING : '#a=100&b=500')
      await page.evaluate(`{
        const { serializeToString } = XMLSerializer.prototype
        XMLSerializer.prototype.serializeToString = function (node) {
          globalThis.drawn = [...node.querySelectorAll('button, h2')].map(each =>
            [each.closest('table, #legend, #icicle') === null, each.localName, each.textContent])
          return serializeToString.call(this, node)
        }
      }`)
      await page.click('.menu summary')
      await Promise.all([page.waitForEvent('download'), page.click('[data-export=png]')])
      const drawn = (await page.evaluate('drawn')) as [boolean, string, string][]
      // Buttons in tables, in the legend and in the icicle are names.
      const isControl = ([isOutside, kind, name]: (typeof drawn)[number]) =>
        kind === 'button' && (isOutside || name === '×')
      assert.deepEqual(drawn.filter(isControl), [])
      assert.equal(
        drawn.some(([, kind, name]) => kind === 'h2' && name === 'Allocations and frees'),
        isListed,
      )
      assert.deepEqual(problems, [])
      await page.context().close()
    })
  }

  test('names the ends of steps and the cursor in the legend of a file, if they are in view', async () => {
    const builder = new TraceBuilder()
    for (let i = 0; i < 100; i++) builder.add(Action.alloc, 2 ** 30 + i * 512, 512, 0, i)
    const annotations = Array.from({ length: 8 }, (_, i) => {
      return { isStart: i % 2 === 0, name: 'Optimizer.step#SGD.step', timeUs: Math.floor(i / 2) * 25 + 20 + (i % 2) }
    })
    const trace = builder.build({ file: 'steps', annotations })
    for (const [hash, stacked] of [
      ['#e=40', ['end of a step', 'cursor at event 40']],
      ['#e=40&z=51-60', []],
    ] as const) {
      const page = await pages.open(trace, false, hash)
      const found = async (name: string) => {
        await page.click('.menu summary')
        const [download] = await Promise.all([page.waitForEvent('download'), page.click(`[data-export="${name}.svg"]`)])
        return readFileSync(await download.path(), 'utf8').match(/(?<=>)(end of a step|cursor at [^<]*)/g) ?? []
      }
      assert.deepEqual(await found('curves'), ['end of a step', 'cursor at event 40'])
      assert.deepEqual(await found('stacked'), stacked)
      assert.deepEqual(await found('maps'), stacked)
      assert.deepEqual(problems, [])
      await page.context().close()
    }
  })

  test('names each control by a name of its own, and no heading has one, with everything open', async () => {
    const page = await pages.open(oom, false, EVERYTHING)
    const controls = '(element => element.checkVisibility() && (element.ariaLabel || element.textContent).trim())'
    const names = (await page.evaluate(`[...document.querySelectorAll('button, summary, [role=slider]')]
      .map(${controls}).filter(name => name !== false)`)) as string[]
    assert.ok(names.length > 1020 && !names.includes(''), `${names.length} controls`)
    const twice = names.filter((name, i) => names.indexOf(name) < i)
    assert.deepEqual(twice, [])
    assert.equal(await page.locator(':is(h1, h2, h3) :is(button, a, select)').count(), 0)
    await page.context().close()
  })

  test('has all columns of the groups on a small screen, and a bar that scrolls away', async () => {
    const page = await pages.open(mlp, false, '#list=1')
    await page.setViewportSize({ width: 390, height: 800 })
    await idle(page)
    const groups = await page.evaluate(
      "(b => b.scrollWidth - b.clientWidth)(document.querySelector('#holders .scroll'))",
    )
    assert.equal(groups, 0)
    await page.locator('#events').scrollIntoViewIfNeeded()
    const bar = (await page.locator('.bar').boundingBox())!
    assert.ok(bar.y + bar.height < 0, `${bar.y}`)
    await page.context().close()
  })

  for (const isDark of [false, true]) {
    test(`fits four widths and keeps the rules of accessibility with everything open, ${isDark ? 'dark' : 'light'}`, async () => {
      const page = await pages.open(isDark ? mlp : oom, isDark, EVERYTHING)
      assert.deepEqual(await violations(page), [])
      for (const width of [390, 720, 1280, 1800]) {
        await page.setViewportSize({ width, height: 900 })
        await page.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
        await idle(page)
        assert.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= width, `scrolls at ${width}`)
        for (const part of ['main', '#block']) assert.deepEqual(await overlaps(page, part), [], `${part} at ${width}`)
      }
      assert.deepEqual(problems, [])
      await page.context().close()
    })
  }
})
