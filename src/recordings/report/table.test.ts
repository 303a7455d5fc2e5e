import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Column, PLAIN, tableText, wrapText } from './table.js'

interface Fruit {
  readonly name: string
  readonly weight: string
  readonly colour: string
}
const FRUITS: Fruit[] = [
  { name: 'apple', weight: '150 g', colour: 'green' },
  { name: 'melon', weight: '1,200 g', colour: 'yellow' },
]
const COLUMNS: Column<Fruit>[] = [
  { title: 'fruit', align: 'left', cell: fruit => fruit.name },
  { title: 'weight\nof one', align: 'right', cell: fruit => fruit.weight },
  { title: 'colour', align: 'left', cell: fruit => fruit.colour },
]

test('columns are aligned, and titles stand on the rule', () => {
  assert.deepEqual(tableText(FRUITS, COLUMNS, { width: 80, paint: PLAIN }).split('\n'), [
    '        weight',
    'fruit   of one  colour',
    '─────  ───────  ──────',
    'apple    150 g  green',
    'melon  1,200 g  yellow',
  ])
})

test('a table that is too wide continues below, with its first column again', () => {
  const lines = tableText(FRUITS, COLUMNS, { width: 21, paint: PLAIN }).split('\n')
  assert.deepEqual(lines.slice(5), ['', 'fruit  colour', '─────  ──────', 'apple  green', 'melon  yellow'])
  for (const line of lines) assert.ok(line.length <= 21, line)
})

test('a single column wider than the terminal is shown anyway', () => {
  const text = tableText(FRUITS, COLUMNS, { width: 3, paint: PLAIN })
  for (const fruit of FRUITS) for (const value of Object.values(fruit)) assert.ok(text.includes(value), value)
})

test('emphasis has no width', () => {
  const marked = (text: string) => `<${text}>`
  const paint = { bold: marked, dim: marked, green: marked, red: marked }
  const painted = tableText(FRUITS, COLUMNS, { width: 80, paint, tone: () => marked })
  assert.equal(painted.split('<').length, 6)
  assert.equal(painted.replace(/[<>]/g, ''), tableText(FRUITS, COLUMNS, { width: 80, paint: PLAIN }))
})

test('text is wrapped between words, not between a number and its unit', () => {
  const text = 'The whole program never had more than 4.78 GiB in use at once, and took 1.18 s, modelled.'
  for (let width = 12; width < 100; width++) {
    const lines = wrapText(text, width, '  ').split('\n')
    for (const line of lines) assert.ok(line.length <= width, `${line} (${width})`)
    for (const line of lines.slice(1)) assert.match(line, /^ {2}\S/)
    assert.equal(lines.map(line => line.trim()).join(' '), text)
    assert.ok(lines.some(line => line.includes('4.78 GiB')))
    assert.ok(lines.some(line => line.includes('1.18 s,')))
  }
})

test('a word longer than the line stays whole', () => {
  assert.equal(wrapText('a/very/long/path is here', 8), 'a/very/long/path\nis here')
})

test('the place of a line loses folders from the left if it is too long, and no part of its name', () => {
  const text = 'by transformers/models/conditional_detr/modeling_conditional_detr.py:1234 forward'
  assert.deepEqual(wrapText(text, 50).split('\n'), ['by …/modeling_conditional_detr.py:1234 forward'])
  assert.equal(wrapText('at::native::cudnn_convolution', 20), '…cudnn_convolution')
})
