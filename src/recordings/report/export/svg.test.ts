import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { inflateSync } from 'node:zlib'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { replay } from '../../trace/replay.js'
import { replayDevices } from '../../trace/replay-devices.js'
import { Action } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { pngOf } from './png.js'
import { pictureSvg } from './svg.js'

/** The names of elements that are open, checked to be closed in order. */
function checkWellFormed(svg: string): void {
  const open: string[] = []
  for (const [, close, name, rest] of svg.matchAll(/<(\/?)([a-z]+)([^<>]*)>/g)) {
    if (close === '/') assert.equal(open.pop(), name)
    else if (!rest.endsWith('/')) open.push(name)
  }
  assert.deepEqual(open, [])
  assert.equal(svg.replace(/<[^<>]*>/g, '').includes('<'), false)
}

describe('the picture as SVG', () => {
  test('has a box for each band of a small recording, in its place and colour', () => {
    const builder = new TraceBuilder()
    builder.add(Action.segmentAlloc, 2 ** 30, 4 * MiB, 0, 0)
    builder.add(Action.alloc, 2 ** 30, MiB, 0, 10)
    builder.add(Action.alloc, 2 ** 30 + MiB, 2 * MiB, 0, 20)
    builder.add(Action.freeRequested, 2 ** 30, MiB, 0, 30)
    const trace = builder.build({ file: 'tiny' })
    const svg = pictureSvg(trace)
    checkWellFormed(svg)
    for (const title of [
      'PyTorch reserved at most 4 MiB for at most 3 MiB in use: 1.33 ×.<',
      'In use and reserved',
      'Allocations, with bytes at the peak',
      'Where they lie: ',
    ]) {
      assert.ok(svg.includes(`>${title}`), title)
    }
    // Besides these pictures there are the signs of legends.
    const [stacked, map] = [...svg.matchAll(/<g transform="translate[^>]*crispEdges">(.*?)<\/g>/g)]
      .map(([, boxes]) =>
        [...boxes.matchAll(/x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"/g)].map(box => box.slice(1).map(Number)),
      )
      .filter(boxes => boxes.some(box => box[2] > 14))
    // Four columns of 268 pixels. At the top of a band lies its edge, one pixel high.
    const heights = (boxes: number[][], x: number) =>
      boxes.filter(box => box[0] <= x && x < box[0] + box[2]).reduce((sum, box) => sum + box[3], 0)
    const [one, three, two] = [300, 600, 900].map(x => heights(stacked, x))
    assert.ok(Math.abs(three - 3 * one) <= 2 && Math.abs(two - 2 * one) <= 2, `${one} ${three} ${two}`)
    assert.equal(heights(map, 600), 240, 'the segment fills its map')
  })

  test('has an image where a picture would have too many boxes, and both themes', () => {
    const builder = new TraceBuilder()
    const bytes = (i: number) => ((i * 7919) % 13) * MiB + MiB
    for (let i = 0; i < 4000; i++) {
      builder.add(Action.alloc, 2 ** 40 + i * 16 * MiB, bytes(i), 0, i)
      const old = i - 40
      if (old >= 0) builder.add(Action.freeRequested, 2 ** 40 + old * 16 * MiB, bytes(old), 0, i)
    }
    const trace = builder.build({ file: 'many' })
    const [light, dark] = [false, true].map(isDark => pictureSvg(trace, null, { isDark }))
    for (const svg of [light, dark]) {
      checkWellFormed(svg)
      assert.ok(svg.includes('href="data:image/png;base64,'), 'an image')
      assert.ok(svg.length < 2_000_000, `${svg.length}`)
    }
    assert.ok(light.includes('fill="#ffffff"'), 'light')
    assert.ok(dark.includes('fill="#15171b"') && !dark.includes('fill="#ffffff"'), 'dark')
  })

  test('tells without the page what it shows: lines, colours, failed requests, the file and its extent', async () => {
    const trace = readRecording('traces/oom-retry-2gib.pickle.gz')
    const report = await replay(trace, replayDevices(trace), { policies: ['recorded', 'pytorch'], placements: true })
    const svg = pictureSvg(trace, report)
    checkWellFormed(svg)
    const marks = svg.match(/<polyline [^>]*fill="#b3261e"/g)?.length ?? 0
    assert.equal(marks, 4 * 17 - 17 + 1, 'three pictures with 17 failed requests, and the sign of the legend')
    for (const text of [
      'Out of memory: fragmentation.',
      '1 PyTorch as recorded 2 GiB',
      '2 PyTorch, default 2.75 GiB, 2 GiB allocated',
      'in use, at most 1.93 GiB',
      'out of memory, 17 times',
      'obtained and unused',
      'oom-retry-2gib.pickle.gz · 6,067 events · 39.5 ms · by cuda-mempool',
    ]) {
      assert.ok(svg.includes(`>${text}<`), text)
    }
    assert.ok(svg.includes('stroke-dasharray="8 3"'), 'the second line is dashed')
  })

  test('shows markup in names as text', () => {
    const builder = new TraceBuilder()
    const { stacks } = builder
    const stack = stacks.number([stacks.entry('</text><script>alert(1)</script>.py', 1, '<b>"&')])
    builder.add(Action.alloc, 2 ** 30, MiB, 0, 0, stack)
    const svg = pictureSvg(builder.build({ file: '<script>' }))
    checkWellFormed(svg)
    assert.equal(svg.includes('<script'), false)
  })
})

test('a PNG has its pixels, row by row, and sums that are right', () => {
  const rgb = Uint8Array.from(Array.from({ length: 40 * 20 }, (_, i) => [i & 255, i >> 8, 7]).flat())
  const png = pngOf(40, 20, rgb)
  assert.equal(png.toString('latin1', 0, 8), '\x89PNG\r\n\x1a\n')
  // The sum of an IEND chunk is the same in each PNG file.
  assert.equal(png.subarray(-12).toString('hex'), '0000000049454e44ae426082')
  const length = png.readUInt32BE(33)
  assert.equal(png.toString('latin1', 37, 41), 'IDAT')
  const rows = inflateSync(png.subarray(41, 41 + length))
  assert.deepEqual([...rows.subarray(0, 121)], [0, ...rgb.subarray(0, 120)])
  assert.equal(rows.length, 20 * 121)
})

test('a PNG of few colours has a palette, in the order of their first pixels', () => {
  const png = pngOf(2, 2, Uint8Array.from([9, 8, 7, 1, 2, 3, 1, 2, 3, 9, 8, 7]))
  assert.deepEqual([png[25], png.toString('latin1', 37, 41)], [3, 'PLTE'])
  assert.deepEqual([...png.subarray(41, 47)], [9, 8, 7, 1, 2, 3])
  const length = png.readUInt32BE(51)
  assert.equal(png.toString('latin1', 55, 59), 'IDAT')
  assert.deepEqual([...inflateSync(png.subarray(59, 59 + length))], [0, 0, 1, 0, 1, 0])
})
