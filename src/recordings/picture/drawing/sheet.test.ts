import assert from 'node:assert/strict'
import { test } from 'node:test'
import { drawSheet, type Sheet, sheetSize } from './sheet.js'
import { SvgSurface } from './svg-surface.js'
import { themeOf } from './theme.js'

const part = (width: number, texts: readonly string[] = []) => ({
  title: `${width} wide`,
  width,
  height: 100,
  left: 50,
  legend: texts.map(text => ({ text, width: 14, draw: () => {} })),
  draw: () => {},
})
const sheet = (rows: Sheet['rows'], heading: readonly string[] = ['verdict']): Sheet => ({
  heading,
  rows,
  foot: 'file',
})

/** The places of the texts of a sheet, without the moves of its pictures. */
function placesOf(of: Sheet): Map<string, [x: number, y: number]> {
  const { width, height } = sheetSize(of)
  const surface = new SvgSurface(width, height, themeOf(false, false), () => '')
  drawSheet(surface, of, themeOf(false, false))
  const texts = surface.toString().matchAll(/<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</g)
  return new Map([...texts].map(([, x, y, text]) => [text, [Number(x), Number(y)]]))
}

test('parts of a row lie beside each other, and the sheet is as wide as its widest row', () => {
  const { width } = sheetSize(sheet([[part(300), part(300)], [part(400)]]))
  assert.equal(width, 300 + 10 + 300 + 32)
  const places = placesOf(sheet([[part(300), part(301)], [part(400)]]))
  assert.equal(places.get('300 wide')![1], places.get('301 wide')![1])
  assert.ok(places.get('301 wide')![0] > 300)
  assert.ok(places.get('400 wide')![1] > places.get('300 wide')![1] + 100)
})

test('a long heading and a long legend go on in further lines, within the sheet', () => {
  const words = Array.from({ length: 40 }, (_, i) => `word${i}`)
  const long = sheet([[part(400, words)]], [words.join(' ')])
  const short = sheet([[part(400, words.slice(0, 2))]], ['word'])
  assert.ok(sheetSize(long).height > sheetSize(short).height + 100)
  const places = [...placesOf(long)]
  const { width, height } = sheetSize(long)
  for (const [text, [x, y]] of places)
    assert.ok(x + text.length * 6 <= width && y <= height - 16, `${text} at ${x}, ${y}`)
  assert.equal(places.at(-1)![0], 'file')
  assert.equal(new Set(places.map(([, place]) => place.join())).size, places.length)
})
