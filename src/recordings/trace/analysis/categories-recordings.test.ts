// Categories of trainings recorded on a GPU, beside the purpose of each tensor by its own program:
// traces/record/categories.py wrote both.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readRecording } from '../formats/read-recording.js'
import type { Trace } from '../trace.js'
import { CATEGORIES, type Category, categoriesOf } from './categories.js'
import { inUseOf, liveAfter } from './curves.js'

const FOLDER = fileURLToPath(new URL('../../../../../traces/categories/', import.meta.url))
/** Of the bytes at the peak, in the right category. */
const LEAST_RIGHT = 0.95

/** The categories that a letter of the truth allows; temporaries and others are one there. */
const MEANINGS: Readonly<Record<string, readonly Category[]>> = {
  p: ['parameters'],
  g: ['gradients'],
  o: ['optimizer state'],
  a: ['activations'],
  i: ['activations'],
  u: ['activations', 'temporaries'],
  t: ['temporaries', 'other'],
}

interface Truth {
  readonly blocks: string
  readonly initial: Readonly<Record<string, string>>
}

const names = readdirSync(FOLDER).flatMap(file => /^(?!series-)(.*)\.json$/.exec(file)?.slice(1) ?? [])

/** The share of the bytes at the peak that the categories count where the truth does. */
function rightShare(trace: Trace, truth: Truth): number {
  const { blocks } = trace
  const { ofBlock } = categoriesOf(trace)!
  const names = [new Map<string, number>(), new Map<string, number>()]
  let all = 0
  for (const number of liveAfter(trace, inUseOf(trace).peakEvent)) {
    const address = `0x${blocks.address[number].toString(16)}`
    const known = number < blocks.initial ? truth.initial[address] : truth.blocks[number - blocks.initial]
    const found = CATEGORIES[ofBlock[number]]
    const allowed = MEANINGS[known ?? 't']
    const counted = [found, allowed.includes(found) ? found : allowed[0]]
    counted.forEach((category, i) => {
      names[i].set(category, (names[i].get(category) ?? 0) + blocks.bytes[number])
    })
    all += blocks.bytes[number]
  }
  return CATEGORIES.reduce((sum, each) => sum + Math.min(names[0].get(each) ?? 0, names[1].get(each) ?? 0), 0) / all
}

test('there are recordings of at least five kinds of training', () => {
  const kinds = new Set(names.map(name => name.split('-')[0]))
  assert.ok(kinds.size >= 5, [...kinds].join())
})

for (const name of names) {
  test(`at the peak of ${name}, 95 % of the bytes are in the right category`, () => {
    const truth = JSON.parse(readFileSync(`${FOLDER}${name}.json`, 'utf8')) as Truth
    const trace = readRecording(`${FOLDER}${name}.pickle.gz`)
    assert.equal(truth.blocks.length, trace.allocations)
    const share = rightShare(trace, truth)
    assert.ok(share >= LEAST_RIGHT, `${(100 * share).toFixed(2)} %`)
  })
}

test('a recording of the profiler says the categories itself', () => {
  const recorded = categoriesOf(readRecording(`${FOLDER}mlp-profile.profile.pickle.gz`))!
  assert.equal(recorded.recorded, true)
  const found = new Set(Array.from(recorded.ofBlock, index => CATEGORIES[index]))
  for (const category of CATEGORIES.slice(0, 5)) assert.ok(found.has(category), category)
})
