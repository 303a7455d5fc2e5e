// Takes the pictures of the documents anew: npm run docs:pictures. It needs Chromium.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { pngOf } from '../../src/recordings/report/export/png.js'
import { openBrowser } from './chromium.fixture.js'
import { FOLDER, PICTURES, TEXTS } from './docs-pictures.fixture.js'

const MOST_COLOURS = 256
const CURVES_MS = 4000

/** The picture with the colours that most pixels have; the others, which smooth letters, become the nearest of them. */
async function inFewColours(browser: Browser, png: Buffer): Promise<Buffer> {
  const page = await browser.newPage()
  const { width, height, pixels } = (await page.evaluate(`(async () => {
    const image = new Image()
    image.src = 'data:image/png;base64,${png.toString('base64')}'
    await image.decode()
    const { width, height } = image
    const context = new OffscreenCanvas(width, height).getContext('2d')
    context.drawImage(image, 0, 0)
    const { data } = context.getImageData(0, 0, width, height)
    return { width, height, pixels: Array.from({ length: width * height }, (_, i) =>
      (data[i * 4] << 16) | (data[i * 4 + 1] << 8) | data[i * 4 + 2]) }
  })()`)) as { width: number; height: number; pixels: number[] }
  await page.close()
  const counts = new Map<number, number>()
  for (const colour of pixels) counts.set(colour, (counts.get(colour) ?? 0) + 1)
  const palette = [...counts.keys()].sort((a, b) => counts.get(b)! - counts.get(a)!).slice(0, MOST_COLOURS)
  const nearest = new Map([...counts.keys()].map(colour => [colour, nearestOf(colour, palette)]))
  const rgb = pixels.flatMap(colour => channelsOf(nearest.get(colour)!))
  return pngOf(width, height, Uint8Array.from(rgb))
}

function nearestOf(colour: number, palette: readonly number[]): number {
  const wanted = channelsOf(colour)
  const distance = (other: number) => channelsOf(other).reduce((sum, value, i) => sum + (value - wanted[i]) ** 2, 0)
  return palette.reduce((best, each) => (distance(each) < distance(best) ? each : best))
}

function channelsOf(colour: number): number[] {
  return [colour >> 16, (colour >> 8) & 255, colour & 255]
}

const browser = await openBrowser()
try {
  mkdirSync(FOLDER, { recursive: true })
  const texts: Record<string, readonly string[]> = {}
  for (const [name, take] of Object.entries(PICTURES)) {
    const shown = await take(browser, CURVES_MS)
    const png = await inFewColours(browser, shown.png)
    writeFileSync(join(FOLDER, name), png)
    texts[name] = shown.texts
    console.log(`${name}: ${Math.ceil(png.length / 1024)} KiB`)
  }
  writeFileSync(TEXTS, `${JSON.stringify(texts, null, 2)}\n`)
} finally {
  await browser.close()
}
