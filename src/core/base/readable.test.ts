import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describe } from './bytes.js'
import { showAsText } from './readable.js'

test('a value that two copies of this package tell apart is named as such', async () => {
  const other: typeof import('./readable.js') = await import(`${import.meta.resolve('./readable.js')}?copy`)
  class Stream {}
  class DerivedStream extends Stream {}
  showAsText(Stream)
  assert.equal(describe(new DerivedStream()), 'a DerivedStream')
  class Event {}
  class DerivedEvent extends Event {}
  other.showAsText(Event)
  const expected = 'a DerivedEvent of another copy of cuda-mempool: this program has loaded two'
  assert.equal(describe(new DerivedEvent()), expected)
})

test('a value is described whatever its name is', () => {
  const named = (name: unknown) => Object.defineProperty(() => {}, 'name', { value: name }) as () => void
  assert.equal(describe(named(Symbol('x'))), 'the function Symbol(x)')
  assert.equal(describe({ constructor: named(Symbol('x')) }), 'a Symbol(x)')
  assert.equal(describe(Object.create(null)), 'an object')
})
