import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Icicle, keyOf, type Step } from './icicle.js'

const step = (id: string, label = id): Step => ({ id, label, place: `at ${id}` })

function icicleOf(paths: readonly (readonly [weight: number, ...path: Step[]])[]): Icicle<{ weight: number }> {
  const icicle = new Icicle(
    () => ({ weight: 0 }),
    sum => sum.weight,
  )
  for (const [weight, ...path] of paths) {
    icicle.add(path, sum => {
      sum.weight += weight
    })
  }
  return icicle
}

test('boxes lie below their callers, the widest first, and steps with the same id are one box', () => {
  const icicle = icicleOf([
    [1, step('a'), step('leaf')],
    [2, step('b', 'name')],
    [3, step('c', 'name'), step('leaf')],
    [2, step('c', 'another name')],
  ])
  assert.deepEqual(icicle.boxes().boxes, [
    { depth: 0, left: 0, width: 1, label: 'all', place: '', weight: 8 },
    { depth: 1, left: 0, width: 5 / 8, label: 'name', place: 'at c', weight: 5 },
    { depth: 2, left: 0, width: 3 / 8, label: 'leaf', place: 'at leaf', weight: 3 },
    { depth: 1, left: 5 / 8, width: 2 / 8, label: 'name', place: 'at b', weight: 2 },
    { depth: 1, left: 7 / 8, width: 1 / 8, label: 'a', place: 'at a', weight: 1 },
    { depth: 2, left: 7 / 8, width: 1 / 8, label: 'leaf', place: 'at leaf', weight: 1 },
  ])
})

test('a box too narrow to be seen is left out with all below it, and without weight nothing is drawn', () => {
  const labels = (icicle: Icicle<{ weight: number }>) => icicle.boxes().boxes.map(({ label }) => label)
  const narrow = icicleOf([
    [1500, step('wide')],
    [1, step('narrow'), step('below')],
  ])
  assert.deepEqual(labels(narrow), ['all', 'wide'])
  assert.deepEqual(labels(icicleOf([])), [])
  assert.deepEqual(labels(icicleOf([[0, step('nothing')]])), [])
})

test('calls on a wanted path have boxes, and those below it are as narrow as if it were the whole', () => {
  const wide = Array.from({ length: 3000 }, (_, i): [number, ...Step[]] => [1, step('many'), step(`${i}`)])
  const icicle = icicleOf([[9e6, step('most')], ...wide, [1, step('many'), step('tiny'), step('leaf')]])
  const labels = (under: readonly Step[]) => icicle.boxes(under.map(keyOf)).boxes.map(({ label }) => label)
  assert.deepEqual(labels([]), ['all', 'most'])
  assert.deepEqual(labels([step('many')]), ['all', 'most', 'many'])
  assert.deepEqual(labels([step('many'), step('tiny')]), ['all', 'most', 'many', 'tiny', 'leaf'])
  assert.deepEqual(labels([step('gone')]), ['all', 'most'])
})

test('stacks of any depth are drawn, and rows that would make too many boxes are left out', () => {
  const deep = Array.from({ length: 20_000 }, (_, i) => step(String(i)))
  const { boxes } = icicleOf([[1, ...deep]]).boxes()
  assert.deepEqual([boxes.length, boxes.at(-1)?.label, boxes.at(-1)?.width], [20_001, '19999', 1])
  const wide = Array.from({ length: 1000 }, (_, i) => {
    const path = Array.from({ length: 400 }, (_, depth) => step(`${i}.${depth}`))
    return [1, ...path] as const
  })
  const { boxes: shown, isCut } = icicleOf(wide).boxes()
  assert.deepEqual([shown.length, Math.max(...shown.map(({ depth }) => depth)), isCut], [49_001, 49, true])
})
