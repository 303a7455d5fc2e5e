import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StreamQueue } from '../streams/stream-queue.js'
import { UnseenFrees } from './unseen-frees.js'

/** Frees of `count` streams with one block each, and the number of looks at their blocks so far. */
function freesOf(count: number) {
  const frees = new UnseenFrees<{ stream: StreamQueue; position: number }>()
  const streams = Array.from({ length: count }, () => ({ completed: 0 }) as StreamQueue & { completed: number })
  let looks = 0
  for (const stream of streams) {
    frees.add({
      stream,
      get position() {
        looks += 1
        return 1
      },
    })
  }
  return { frees, streams, looks: () => looks }
}

test('blocks of streams with nothing new are not looked at again', () => {
  const { frees, streams, looks } = freesOf(100)
  const seen = () => {
    let blocks = 0
    frees.eachCompleted(block => {
      frees.delete(block)
      blocks += 1
    })
    return blocks
  }
  assert.equal(seen(), 0)
  assert.equal(looks(), 100)
  for (const stream of streams) {
    stream.completed = 1
    assert.equal(seen(), 1)
  }
  assert.equal(looks(), 200)
})

test('a stream is looked at again when it gets another block', () => {
  const { frees, streams, looks } = freesOf(1)
  frees.eachCompleted(() => assert.fail('nothing has completed'))
  const late = { stream: streams[0], position: 0 }
  frees.add(late)
  const seen: object[] = []
  frees.eachCompleted(block => seen.push(block))
  assert.deepEqual(seen, [late])
  assert.equal(looks(), 2)
})
