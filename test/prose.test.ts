// Comments, documents and titles of tests are plain English: few phrases that make a reader read twice, and no wide
// comments.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { describe, it } from 'node:test'
import { knotsIn, proseFiles, proseOf, wordsIn } from './prose.js'

/** Phrases for each hundred words. Well-kept projects of the field stay below. */
const MOST_KNOTS = 0.3
const MOST_COLUMNS = 120

/** Sentences that this repository had, and what stands there now. */
const REWRITTEN: readonly (readonly [knotted: string, plain: string])[] = [
  [
    'Of each kind of home by itself, though all do the same: so the engine sees which one it is once, and there which owner.',
    'Each class repeats this body so that its call sites stay monomorphic.',
  ],
  [
    'Two calls: of a stream that may be either one the engine would have to find out what it is.',
    'Two call sites on purpose: one variable for both streams would lose type feedback.',
  ],
  [
    'Each says what it does before it looks at what the other one does, so that not both go in.',
    'Each side sets its flag before it reads the other flag, so at most one enters.',
  ],
  [
    'What every thread of the process has stored before it is interrupted is seen by the caller after that.',
    'Calling the returned function is a full memory barrier on every thread of the process.',
  ],
  [
    'Whether blocks are given back before new memory is taken; where not, they are when there is none.',
    'If true, the cache is drained before the pool grows; if false, only when it cannot grow.',
  ],
  [
    'The thread has ended, which only others can say, so that of several who say so one cleans up.',
    'Marks a thread as dead. Returns true to exactly one caller, which must clean up.',
  ],
  [
    'The next message, of which is known that it was sent: only to a thread that is being terminated, nothing is given any more.',
    'Spins until a message that was sent already arrives.',
  ],
  [
    'When freed memory goes to another stream is told in the document, with a picture.',
    'The document explains when freed memory may move to another stream.',
  ],
  [
    'A block that goes from stream to stream is had in half the time.',
    'Cross-stream reuse of a cached block is twice as fast.',
  ],
]

describe('the count of knotted phrases', () => {
  for (const [knotted, plain] of REWRITTEN) {
    it(`finds some in "${knotted.slice(0, 50)}…" and none in its rewrite`, () => {
      assert.notDeepEqual(knotsIn(knotted), [])
      assert.deepEqual(knotsIn(plain), [])
    })
  }

  it('reads comments, documents and titles, and no code', () => {
    const code = `const nobody = 1 // nobody is here\n/** Whoever asks\n * gets it. */\nit('is had by nobody', () => {})\n`
    assert.deepEqual(
      proseOf('a.ts', code).map(({ line, text }) => [line, text]),
      [[1, 'nobody is here Whoever asks gets it. . is had by nobody.']],
    )
    assert.deepEqual(
      proseOf('a.md', '# Nobody\n\nPlain `nobody`.\n\n```ts\n// nobody\n```\n').map(({ text }) => text),
      ['Plain code.'],
    )
  })
})

describe('prose', () => {
  const folders = new Map<string, { words: number; hits: string[] }>()
  for (const path of proseFiles()) {
    const folder = folders.get(dirname(path)) ?? { words: 0, hits: [] }
    folders.set(dirname(path), folder)
    for (const { line, text } of proseOf(path, readFileSync(path, 'utf8'))) {
      folder.words += wordsIn(text)
      for (const knot of knotsIn(text)) folder.hits.push(`${path}:${line} "${knot}"`)
    }
  }
  for (const [folder, { words, hits }] of folders) {
    it(`of ${folder} has at most ${MOST_KNOTS} knotted phrases for each hundred words`, () => {
      const rate = (100 * hits.length) / words
      assert.ok(rate <= MOST_KNOTS, `${rate.toFixed(2)}: say these plainly\n${hits.join('\n')}`)
    })
  }

  it(`has no comment wider than ${MOST_COLUMNS} columns`, () => {
    const wide = proseFiles()
      .filter(path => !path.endsWith('.md'))
      .flatMap(path => {
        const lines = readFileSync(path, 'utf8').split('\n')
        const isWide = (line: string) => line.length > MOST_COLUMNS && /^\s*(\/\/|\*|\/\*)/.test(line)
        return lines.flatMap((line, index) => (isWide(line) ? [`${path}:${index + 1}`] : []))
      })
    assert.deepEqual(wide, [])
  })
})
