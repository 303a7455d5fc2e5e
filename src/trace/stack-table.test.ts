import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { StackTable } from './stack-table.js'

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
        table.stacks[number],
        stack.map(entry => entry.frame),
      )
    }),
  )
  assert.equal(new Set(table.stacks.map(stack => JSON.stringify(stack))).size, table.stacks.length)
})

test('anything but a stack of this table has the number -1', () => {
  const table = new StackTable()
  assert.equal(table.number([table.entry('file.py', 1, 'a'), { frame: {}, number: 0 }]), -1)
  assert.equal(table.stacks.length, 1)
})
