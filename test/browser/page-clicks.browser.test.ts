// What a click or a key on a part of the report page shows.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { Page } from 'playwright-core'
import { readRecording } from '../../src/recordings/trace/formats/read-recording.js'
import { Action } from '../../src/recordings/trace/trace.js'
import { TraceBuilder } from '../../src/recordings/trace/trace-builder.js'
import { skipReason, violations } from './chromium.fixture.js'
import { idle, Pages, press, state, text } from './page.fixture.js'

describe('a click on the page of a recording', { skip: skipReason }, () => {
  const pages = new Pages()
  const { problems } = pages
  before(() => pages.start())
  after(() => pages.close())

  const mlp = readRecording('traces/mlp-train-stacks.pickle.gz')

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
    assert.match(await text(page, '#block-body'), /(blocks|block) lay at its address \(PyTorch/)
    const outlined = await pixels(page)
    await press(page, 'Escape')
    assert.deepEqual([(await state(page)).pinned, await focused(page)], [null, 'stacked'])
    assert.equal(await page.isVisible('#block'), false)
    const plain = await pixels(page)
    for (const i of outlined.keys()) assert.ok(outlined[i] !== plain[i], `picture ${i}`)
    assert.deepEqual(problems, [])
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
    const paths = ['/home/me/my model.py', 'train.py', 'C:\\work\\run#1.py']
    const frames = paths.map((file, i) => stacks.entry(file, 7 + i, `f${i}`))
    builder.add(Action.alloc, 2 ** 30, 2 ** 20, 0, 0, stacks.number(frames))
    const page = await pages.open(builder.build({ file: 'linked' }), false, '#block=0')
    assert.equal(await page.locator('#block a').count(), 0)
    await page.check('#block input')
    const links = await page.locator('#block a').evaluateAll(all => all.map(each => each.getAttribute('href')))
    assert.deepEqual(links, ['vscode://file/home/me/my%20model.py:7', 'vscode://file/C:/work/run%231.py:9'])
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
})
