import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { StackTable } from './stack-table.js'
import { stackFrames } from './trace.js'

test('each stack has one number, by its frames and their order', () => {
  const table = new StackTable()
  const frames = ['a', 'b', 'c'].map(name => table.entry('file.py', 1, name))
  assert.equal(table.entry('file.py', 1, 'a'), frames[0])
  assert.equal(table.number([]), 0)
  fc.assert(
    fc.property(fc.array(fc.nat(2), { maxLength: 5 }), picks => {
      const stack = picks.map(pick => frames[pick])
      const number = table.number(stack)
      assert.equal(table.number(['x', ...stack, 'y'], 1, stack.length + 1), number)
      assert.deepEqual(
        stackFrames(table.callStacks(), number),
        stack.map(entry => entry.frame),
      )
    }),
  )
  const stacks = table.callStacks()
  const texts = Array.from({ length: stacks.count }, (_, stack) => JSON.stringify(stackFrames(stacks, stack)))
  assert.equal(new Set(texts).size, stacks.count)
})

test('anything but a stack of this table has the number -1', () => {
  const table = new StackTable()
  assert.equal(table.number([table.entry('file.py', 1, 'a'), { frame: {}, number: 0 }]), -1)
  assert.equal(table.callStacks().count, 1)
})

test('stacks share the frames with which they begin, and a table of many stays right', () => {
  const table = new StackTable()
  const outer = Array.from({ length: 60 }, (_, i) => table.entry('train.py', i, 'f'))
  const numbers = Array.from({ length: 5000 }, (_, i) => table.number([table.entry('model.py', i, 'g'), ...outer]))
  const stacks = table.callStacks()
  assert.equal(stacks.parent.length, 1 + outer.length + numbers.length)
  for (const [i, number] of numbers.entries()) {
    const frames = stackFrames(stacks, number)
    assert.deepEqual([frames.length, frames[0].line, frames[1], frames[60]], [61, i, outer[0].frame, outer[59].frame])
  }
})

test('a list that is no stack does not disturb the stack after it', () => {
  const table = new StackTable()
  const [a, b, c] = ['a', 'b', 'c'].map(name => table.entry('file.py', 1, name))
  table.number([c, b, a])
  assert.equal(table.number([1, c, a]), -1)
  assert.deepEqual(
    stackFrames(table.callStacks(), table.number([c, b, a])).map(({ name }) => name),
    ['c', 'b', 'a'],
  )
})
