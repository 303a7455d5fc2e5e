import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PathNumbers } from './path-numbers.js'

const call = (name: string) => ({ name })

test('equal paths have one number, and all others have other numbers', () => {
  const paths = new PathNumbers<{ name: string }>(({ name }) => name)
  const numbers = [['a'], ['a', 'b'], ['b', 'a'], ['b'], ['a', 'a'], ['a\nb'], []].map(names =>
    paths.of(names.map(call)),
  )
  assert.equal(new Set(numbers).size, numbers.length)
  assert.equal(paths.of([]), 0)
  assert.equal(paths.of(['b', 'a'].map(call)), numbers[2])
})

test('a name is asked for once a call, however long it is and however many paths have it', () => {
  let letters = 0
  const paths = new PathNumbers<{ name: string }>(({ name }) => {
    letters += name.length
    return name
  })
  const [long, short] = [call('n'.repeat(1e6)), call('short')]
  const repeated = new Array(1000).fill(long)
  const numbers = Array.from({ length: 1000 }, (_, i) => paths.of([...repeated.slice(i), short]))
  assert.equal(new Set(numbers).size, 1000)
  assert.equal(letters, 1e6 + 5)
})
