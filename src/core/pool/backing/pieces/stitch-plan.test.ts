// Every small world: some pieces of one to three units, free in every possible way, and requests of every size.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Piece } from './piece.js'
import { planStitch, type StitchPlan } from './stitch-plan.js'
import { stretchOf } from './stretch.js'

/** Units of a piece, and how many are free at its start and end. */
const KINDS = [
  [1, 1, 1],
  [1, 0, 0],
  [2, 2, 2],
  [2, 1, 0],
  [2, 0, 1],
  [3, 3, 3],
  [3, 1, 0],
  [3, 0, 1],
  [3, 2, 0],
  [3, 0, 2],
  [3, 1, 1],
] as const

function worldOf(kinds: readonly number[]): Piece[] {
  return kinds.map((kind, index) => {
    const [units, startFree, endFree] = KINDS[kind]
    const piece = new Piece(index * 10, units)
    piece.startFree = startFree
    piece.endFree = endFree
    return piece
  })
}

/** Worlds of two and three pieces in any order, and of four and five in one order. */
function* worlds(): Generator<Piece[]> {
  const extend = function* (kinds: readonly number[]): Generator<Piece[]> {
    if (kinds.length > 1) yield worldOf(kinds)
    if (kinds.length === 5) return
    const least = kinds.length < 3 ? 0 : Math.max(...kinds)
    for (let kind = least; kind < KINDS.length; kind++) yield* extend([...kinds, kind])
  }
  yield* extend([])
}

/** The longest free memory in one place. A request of that size needs no view. */
function longestIn(world: readonly Piece[]): number {
  return Math.max(...world.map(({ startFree, endFree }) => Math.max(startFree, endFree)))
}

/** The most units that two pieces, or any number of them, have one behind another. */
function mostOf(world: readonly Piece[]): { pair: number; any: number } {
  let [pair, any] = [0, 0]
  for (const first of world) {
    for (const last of world) {
      if (first === last || first.endFree === 0 || last.startFree === 0) continue
      const between = world.filter(piece => piece.isFree && piece !== first && piece !== last)
      const room = first.endFree + last.startFree
      pair = Math.max(pair, room)
      any = Math.max(
        any,
        between.reduce((sum, { units }) => sum + units, room),
      )
    }
  }
  return { pair, any }
}

function assertValid({ pieces, newUnits }: StitchPlan, units: number): void {
  assert.equal(new Set(pieces).size, pieces.length, 'no piece is twice in a view')
  assert.ok(
    pieces.slice(1, -1).every(piece => piece.isFree),
    'pieces between are free',
  )
  assert.ok(pieces[0].endFree > 0 && (pieces.length === 1 || pieces[pieces.length - 1].startFree > 0))
  const room = pieces.length === 1 ? pieces[0].endFree : stretchOf(pieces).units
  if (newUnits > 0) {
    assert.ok(
      pieces.slice(1).every(piece => piece.isFree),
      'new memory follows whole pieces',
    )
    assert.equal(room + newUnits, units)
  } else assert.ok(room >= units, 'the room is enough')
}

test('a plan without new memory is found whenever one exists, with two pieces whenever two are enough', () => {
  let plans = 0
  for (const world of worlds()) {
    const { pair, any } = mostOf(world)
    for (let units = longestIn(world) + 1; units <= any + 1; units++) {
      const plan = planStitch(world, units, 0)
      assert.equal(plan !== null, units <= any)
      if (plan === null) continue
      plans++
      assertValid(plan, units)
      assert.equal(plan.newUnits, 0)
      assert.equal(plan.pieces.length === 2, units <= pair)
    }
  }
  assert.ok(plans > 1000, `${plans} plans`)
})

test('new memory is planned only where all pieces are not enough, and covers exactly the missing units', () => {
  let plans = 0
  for (const world of worlds()) {
    const { any } = mostOf(world)
    const whole = world.filter(piece => piece.isFree)
    const longestEnd = Math.max(0, ...world.filter(piece => !piece.isFree).map(piece => piece.endFree))
    const joined = longestEnd + whole.reduce((sum, { units }) => sum + units, 0)
    for (let units = longestIn(world) + 1; units <= joined + 3; units++) {
      const plan = planStitch(world, units, 2)
      if (plan !== null) assertValid(plan, units)
      if (units <= any) assert.equal(plan?.newUnits, 0)
      else if (joined === 0 || units > joined + 2) assert.equal(plan, null)
      else {
        plans++
        assert.equal(plan?.newUnits, units - joined)
      }
    }
  }
  assert.ok(plans > 1000, `${plans} plans`)
})

test('the pair of pieces that leaves the least free memory is joined', () => {
  const world = worldOf([9, 4, 8, 7]) // ends of 2 and 1 units, a start of 2 units, an end of 1 unit
  const plan = planStitch(world, 3, 0)
  assert.deepEqual(
    plan?.pieces.map(piece => piece.start),
    [10, 20],
  )
})
