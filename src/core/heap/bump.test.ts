import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Shadowed } from './bump.fixture.js'
import { Bump } from './bump.js'

test('blocks follow each other, and a block that does not fit changes nothing', () => {
  const stack = new Shadowed(3, 13)
  for (const [bytes, fits] of [
    [1, true],
    [256, true],
    [257, true],
    [7 * 256, false],
    [6 * 256, true],
    [1, false],
  ] as const) {
    assert.equal(stack.take(bytes), fits)
    stack.check()
  }
  assert.deepEqual(
    stack.blocks.map(block => block.start),
    [3, 4, 5, 7],
  )
  stack.drop()
  stack.check()
  assert.equal(stack.take(10 * 256), true, 'all of it in one piece')
})

test('an aligned block skips units, which come back with it', () => {
  const stack = new Shadowed(3, 100)
  stack.take(256)
  stack.mark()
  stack.take(100, 16)
  stack.take(1, 8)
  stack.take(1)
  stack.checkSum()
  stack.check()
  assert.deepEqual(
    stack.blocks.map(block => block.start),
    [3, 16, 24, 25],
  )
  assert.equal(stack.take(256, 128), false)
  assert.equal(stack.rewind(stack.marks[0]), true)
  stack.check()
  assert.equal(stack.bump.top, 4)
})

test('the limit can rise', () => {
  const bump = new Bump(0, 2)
  assert.equal(bump.fits(3), false)
  assert.equal(bump.pushAligned(3, 600, 1), 0)
  bump.limit = 3
  assert.equal(bump.fits(3), true)
  assert.equal(bump.push(3, 600), 1)
  bump.check()
})

test('the stack takes more entries than it had room for at first', () => {
  const stack = new Shadowed(0, 10_000)
  for (let count = 0; count < 5000; count++) assert.equal(stack.take(1 + (count % 300), count % 7 === 0 ? 2 : 1), true)
  stack.check()
  stack.checkSum()
})

test('every sequence of six operations over eight units agrees with a list of blocks', () => {
  const FIXED = 5
  let sequences = 0
  const play = (choices: readonly number[]): number => {
    const stack = new Shadowed(1, 9)
    for (const choice of choices) {
      const { live, marks } = stack
      if (choice === 0) stack.take(1)
      else if (choice === 1) stack.take(3 * 256)
      else if (choice === 2) stack.take(500, 4)
      else if (choice === 3) stack.mark()
      else if (choice === 4) stack.drop()
      else if (choice < FIXED + live.length) stack.free(live[choice - FIXED])
      else stack.rewind(marks[choice - FIXED - live.length])
      stack.check()
      if (choice % 2 === 0) stack.checkSum()
    }
    sequences++
    return FIXED + stack.live.length + stack.marks.length
  }
  const extend = (prefix: number[]) => {
    const branches = play(prefix)
    if (prefix.length === 6) return
    for (let choice = 0; choice < branches; choice++) extend([...prefix, choice])
  }
  extend([])
  assert.ok(sequences > 10_000, `${sequences} sequences`)
})
