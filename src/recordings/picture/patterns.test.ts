import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CELLS, Cell, COLOURS, EDGE } from './cells.js'
import { themeOf } from './drawing/theme.js'
import { coloured, MARK, TILE } from './patterns.js'

/** The pixels of a tile of one cell, as one text. */
const tileOf = (cell: number, scale = 1, isScale = false): string => {
  const size = TILE * scale
  const painting = { width: size, height: size, cells: new Uint8Array(size * size).fill(cell) }
  const { palette } = themeOf(false, isScale)
  return [...coloured(painting, palette, scale)].map(pixel => (pixel === palette[cell] ? '.' : '#')).join('')
}
const colours = Array.from({ length: COLOURS }, (_, i) => Cell.first + i)

test('each colour of a legend has a pattern of its own, which leaves most pixels plain', () => {
  const tiles = colours.map(cell => tileOf(cell))
  assert.equal(new Set(tiles).size, COLOURS)
  for (const tile of tiles) assert.ok(tile.replaceAll('#', '').length >= (TILE * TILE * 3) / 4, tile)
  for (const cell of [Cell.nothing, Cell.small, Cell.rest, Cell.first + EDGE])
    assert.equal(tileOf(cell).includes('#'), false)
  assert.ok(tileOf(Cell.unused).includes('#'), 'unused memory is hatched')
})

test('colours of a scale have no patterns, and on dense screens the patterns are as large', () => {
  for (const cell of colours) assert.equal(tileOf(cell, 1, true).includes('#'), false)
  const count = (text: string) => text.length - text.replaceAll('#', '').length
  for (const cell of colours) assert.equal(count(tileOf(cell, 2)), 4 * count(tileOf(cell)))
})

test('the marks differ from their colours, light and dark', () => {
  for (const isDark of [false, true]) {
    const { cells } = themeOf(isDark, false)
    assert.equal(cells.length, MARK + CELLS)
    for (const cell of colours) assert.notEqual(cells[cell], cells[MARK + cell])
  }
})
