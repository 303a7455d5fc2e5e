// Both painters against their definitions: each pixel painted on its own, from all blocks.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../core/base/random.js'
import { paintMap, rowStart } from './address-map.js'
import { CELLS, Cell, EDGE, type Painting } from './cells.js'
import { LiveBlocks } from './live-blocks.js'
import { type Moments, momentsOf } from './moments.js'
import { blockUnits, type Picture, UNIT_BYTES, unitsOf } from './picture.js'
import { pictureOf, randomPicture } from './pictures.fixture.js'
import { placeAt } from './place.js'
import { Pyramid } from './pyramid.js'
import { bandAt, bandsOf, paintStacked, type StackedScale } from './stacked.js'

/** A cell for each block: A, B, … in turn. */
function turns({ blocks }: Picture): Uint8Array {
  return Uint8Array.from({ length: blocks.count }, (_, block) => Cell.first + (block % (CELLS - Cell.first)))
}

/** A search that finds few blocks, so that some columns have small blocks of which it finds none. */
const searched = (picture: Picture) => turns(picture).map((cell, block) => (block % 9 === 0 ? cell : Cell.faded))

const LETTERS = ' ░·-oABCDEFGH'

/** A painting as text, a line for each row of pixels; edges are left out. */
function lettersOf({ width, height, cells }: Painting): string[] {
  return Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => LETTERS[cells[x * height + y] % EDGE]).join(''),
  )
}

function heldAt({ blocks }: Picture, event: number): number[] {
  const all = Array.from({ length: blocks.count }, (_, block) => block)
  return all.filter(block => blocks.allocatedAt[block] <= event && event < blocks.freeRequestedAt[block])
}

/** The column that shows a pixel, or -1. */
function columnAt({ left, count }: Moments, x: number): number {
  for (let column = 0; column < count; column++) if (left[column] <= x && x < left[column + 1]) return column
  return -1
}

function painted(
  width: number,
  height: number,
  moments: Moments,
  cellAt: (event: number, row: number) => number,
): Painting {
  const cells = new Uint8Array(width * height)
  for (let x = 0; x < width; x++) {
    const column = columnAt(moments, x)
    const event = column < 0 ? -1 : moments.event[column]
    if (event < 0) continue
    for (let row = 0; row < height; row++) cells[x * height + height - 1 - row] = cellAt(event, row)
  }
  return { width, height, cells }
}

/** Stacked blocks by their definition. */
function stackedTwin(picture: Picture, moments: Moments, cellOf: Uint8Array, scale: StackedScale): Painting {
  const { bytes } = picture.blocks
  const { width, height, topBytes } = scale
  const rows = (sum: number) => Math.min(height, Math.round((sum * height) / topBytes))
  return painted(width, height, moments, (event, row) => {
    const held = heldAt(picture, event)
    let sum = 0
    for (const block of held) {
      if ((bytes[block] * height) / topBytes < 0.5) continue
      sum += bytes[block]
      if (row < rows(sum)) return cellOf[block]
    }
    if (row >= rows(held.reduce((total, block) => total + bytes[block], 0))) return Cell.nothing
    const small = held.filter(block => (bytes[block] * height) / topBytes < 0.5 && cellOf[block] !== Cell.faded)
    return small.length > 0 || !cellOf.includes(Cell.faded) ? Cell.small : Cell.faded
  })
}

/** An address map by its definition: the cell that fills most of a row. */
function mapTwin(picture: Picture, moments: Moments, width: number, height: number): Painting {
  const [{ place, memory }] = picture.policies
  const units = unitsOf(picture.policies[0])
  const cellOf = turns(picture)
  return painted(width, height, moments, (event, row) => {
    const counts = new Array<number>(CELLS).fill(0)
    const start = rowStart(row, { height, units })
    const end = Math.max(start + 1, rowStart(row + 1, { height, units }))
    for (let unit = start; unit < end; unit++) {
      const owner = heldAt(picture, event).find(
        block => place![block] <= unit && unit < place![block] + blockUnits(picture.blocks.bytes[block]),
      )
      const exists = memory.some(
        each => each.at <= unit && unit < each.at + each.units && each.from <= event && event < each.to,
      )
      if (owner !== undefined) counts[cellOf[owner]]++
      else counts[exists ? Cell.unused : Cell.nothing]++
    }
    let best = 0
    counts.forEach((count, cell) => {
      if (count > 0 && count >= counts[best]) best = cell
    })
    return best
  })
}

/** Views of all, of a part, and of less than a column, by events and by time. */
function* views(picture: Picture, width: number) {
  for (const axis of ['event', 'time'] as const) {
    const end = axis === 'event' ? picture.events : picture.timeUs[picture.events - 1]
    yield { axis, from: 0, to: end, width }
    yield { axis, from: end * 0.31, to: end * 0.58, width }
    yield { axis, from: end * 0.5, to: end * 0.5 + 3, width }
  }
}

/** How many of random pictures have a pixel unlike its definition. */
function differences(of: (picture: Picture) => Picture): { stacked: number; maps: number } {
  const found = { stacked: 0, maps: 0 }
  for (let seed = 1; seed <= 25; seed++) {
    const random = new Random(seed)
    const picture = randomPicture(random, 20 + random.below(200), 40)
    const live = new LiveBlocks(of(picture))
    const pyramid = new Pyramid(new LiveBlocks(picture).inUse)
    const [width, height] = [10 + random.below(60), 8 + random.below(30)]
    for (const view of views(picture, width)) {
      const moments = momentsOf(picture, pyramid, view)
      const topBytes = live.peakBytes * 1.1
      const plain = ({ cells }: Painting) => cells.map(cell => cell % EDGE)
      for (const cellOf of [turns(picture), searched(picture)]) {
        const scale = { width, height, topBytes }
        const stacked = paintStacked(live, moments, cellOf, scale)
        if (!equal(plain(stacked), stackedTwin(picture, moments, cellOf, scale).cells)) found.stacked++
      }
      const scale = { width, height, units: unitsOf(picture.policies[0]) }
      const map = paintMap(live, of(picture).policies[0], moments, turns(picture), scale)
      if (!equal(map.cells, mapTwin(picture, moments, width, height).cells)) found.maps++
    }
  }
  return found
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((cell, i) => cell === b[i])
}

test('every pixel of both pictures is as its definition says, on random programs', () => {
  assert.deepEqual(
    differences(picture => picture),
    { stacked: 0, maps: 0 },
  )
})

test('a painter that loses the event of the peak is caught', () => {
  const found = differences(picture => {
    const { peakEvent } = new LiveBlocks(picture)
    const freeRequestedAt = picture.blocks.freeRequestedAt.slice()
    freeRequestedAt[picture.block[peakEvent]] = picture.blocks.allocatedAt[picture.block[peakEvent]]
    return { ...picture, blocks: { ...picture.blocks, freeRequestedAt } }
  })
  assert.ok(found.stacked > 0 && found.maps > 0, JSON.stringify(found))
})

const SMALL = pictureOf(
  [
    ['allocate', 0, 4],
    ['allocate', 4, 2],
    ['free', 0],
    ['allocate', 0, 2],
    ['free', 4],
    ['free', 0],
  ],
  [
    { address: 0, bytes: 6, from: -1, to: 5 },
    { address: 100, bytes: 2, from: 3, to: 2 ** 31 - 1 },
  ],
)

function small() {
  const live = new LiveBlocks(SMALL)
  const moments = momentsOf(SMALL, new Pyramid(live.inUse), { axis: 'event', from: 0, to: 6, width: 6 })
  return { live, moments }
}

test('stacked blocks lie one above the other, the oldest at the bottom', () => {
  const { live, moments } = small()
  const scale = { width: 6, height: 7, topBytes: 7 * UNIT_BYTES }
  assert.deepEqual(lettersOf(paintStacked(live, moments, turns(SMALL), scale)), [
    '      ',
    ' B    ',
    ' B    ',
    'AA C  ',
    'AA C  ',
    'AABBC ',
    'AABBC ',
  ])
  assert.deepEqual(bandAt(live, 3, 2.5 * UNIT_BYTES, scale), { block: 2, from: 2 * UNIT_BYTES, to: 4 * UNIT_BYTES })
  assert.equal(bandAt(live, 3, 4.5 * UNIT_BYTES, scale), null)
  const coarse = { height: 2, topBytes: 12 * UNIT_BYTES }
  assert.deepEqual(bandAt(live, 3, UNIT_BYTES, coarse), { block: -1, from: 0, to: 4 * UNIT_BYTES })
})

test('an address map shows blocks, unused memory, and no memory; unused addresses between take no room', () => {
  const { live, moments } = small()
  const policy = SMALL.policies[0]
  const scale = { width: 6, height: 8, units: unitsOf(policy) }
  assert.deepEqual(lettersOf(paintMap(live, policy, moments, turns(SMALL), scale)), [
    '   ░░░',
    '   ░░░',
    '░BBB░ ',
    '░BBB░ ',
    'AA░░░ ',
    'AA░░░ ',
    'AA░CC ',
    'AA░CC ',
  ])
  assert.equal(placeAt(live, policy, 3, 5).block, 1)
  assert.equal(placeAt(live, policy, 3, 3).block, -1)
})

test('a peak of one event is in the picture, however many events share its column', () => {
  const random = new Random(7)
  const picture = randomPicture(random, 5000, 60)
  const live = new LiveBlocks(picture)
  const moments = momentsOf(picture, new Pyramid(live.inUse), { axis: 'event', from: 0, to: picture.events, width: 20 })
  assert.ok(moments.count >= 10 && moments.count <= 20, `${moments.count} columns`)
  assert.ok(moments.event.some(event => live.inUse[event] === live.peakBytes))
})

test('panning does not change the moments that stay in view', () => {
  const picture = randomPicture(new Random(9), 3000, 60)
  const pyramid = new Pyramid(new LiveBlocks(picture).inUse)
  const shared = (from: number) => {
    const { event } = momentsOf(picture, pyramid, { axis: 'event', from, to: from + 800, width: 100 })
    return [...event].filter(each => each >= 448 && each < 1192)
  }
  const first = shared(400)
  assert.ok(first.length > 80)
  assert.deepEqual(shared(437), first)
})

test('the band of a block is where it is painted, and that of a small one is the one of all small blocks', () => {
  let [painted, small] = [0, 0]
  for (let seed = 1; seed <= 10; seed++) {
    const random = new Random(seed)
    const picture = randomPicture(random, 100, 40)
    const live = new LiveBlocks(picture)
    const moments = momentsOf(picture, new Pyramid(live.inUse), { axis: 'event', from: 0, to: 100, width: 50 })
    const block = random.below(picture.blocks.count)
    const scale = { width: 50, height: 4 + random.below(20), topBytes: live.peakBytes }
    const cellOf = new Uint8Array(picture.blocks.count).fill(Cell.rest)
    cellOf[block] = Cell.first
    const { cells } = paintStacked(live, moments, cellOf, scale)
    const bands = bandsOf(live, moments, block, scale)
    const isSmall = picture.blocks.bytes[block] < (0.5 * scale.topBytes) / scale.height
    for (let column = 0; column < moments.count; column++) {
      const isHeld = heldAt(picture, moments.event[column]).includes(block)
      assert.equal(bands[2 * column] >= 0, isHeld, `column ${column}`)
      if (!isHeld) continue
      const start = moments.left[column] * scale.height
      const rows = [...cells.subarray(start, start + scale.height)].reverse()
      const wanted = isSmall ? Cell.small : Cell.first
      const found = rows.flatMap((cell, row) => (cell % EDGE === wanted ? [row] : []))
      if (found.length === 0) continue // rounded away
      assert.deepEqual([...bands.subarray(2 * column, 2 * column + 2)], [found[0], found.at(-1)! + 1])
      if (isSmall) small++
      else painted++
    }
  }
  assert.ok(painted > 0 && small > 0, `${painted} painted, ${small} small`)
})

test('each unit of a map has a block, a hole with its size, its start and its neighbours, or no memory', () => {
  let holes = 0
  for (let seed = 1; seed <= 15; seed++) {
    const random = new Random(seed)
    const picture = randomPicture(random, 60, 30)
    const live = new LiveBlocks(picture)
    const [policy] = picture.policies
    const { bytes } = picture.blocks
    const units = unitsOf(policy)
    const ownerAt = (event: number, unit: number) =>
      heldAt(picture, event).find(
        block => policy.place![block] <= unit && unit < policy.place![block] + blockUnits(bytes[block]),
      ) ?? -1
    const hasMemory = (event: number, unit: number) =>
      policy.memory.some(({ at, units, from, to }) => at <= unit && unit < at + units && from <= event && event < to)
    const isHole = (event: number, unit: number) => hasMemory(event, unit) && ownerAt(event, unit) < 0
    for (let i = 0; i < 40; i++) {
      const [event, unit] = [random.below(60), random.below(units)]
      const { at, units: length, block, hole } = placeAt(live, policy, event, unit)
      assert.equal(block, ownerAt(event, unit))
      assert.equal(hole !== null, isHole(event, unit))
      const own = Array.from({ length }, (_, j) => at + j)
      assert.ok(own.includes(unit))
      if (hole === null) {
        assert.ok(own.every(each => ownerAt(event, each) === block && hasMemory(event, each) === block >= 0))
        continue
      }
      holes++
      assert.ok(own.every(each => isHole(event, each)) && !isHole(event, at - 1) && !isHole(event, at + length))
      assert.deepEqual([hole.below, hole.above], [ownerAt(event, at - 1), ownerAt(event, at + length)])
      const wasHole = (then: number) => own.every(each => isHole(then, each))
      assert.ok(hole.since <= event && (hole.since < 0 || !wasHole(hole.since - 1)), `since ${hole.since}`)
      for (let then = Math.max(0, hole.since); then <= event; then++) assert.ok(wasHole(then), `at ${then}`)
    }
  }
  assert.ok(holes > 100, `${holes} holes`)
})
