import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Doorbell } from './doorbell.js'
import { channelWords, LATER, RequestChannel } from './request-channel.js'

const newChannel = () => new RequestChannel(new Int32Array(new SharedArrayBuffer(channelWords(2) * 4)), new Doorbell())
const double = (question: unknown) => (question as number) * 2
const cutShort = () => {
  throw new RangeError('Maximum call stack size exceeded')
}

test('each thread gets the answer to its own request', () => {
  const channel = newChannel()
  const meanwhile = () => {
    channel.answer((question, asker) => [question, asker])
    return null
  }
  assert.deepEqual(channel.ask(1, 'one', meanwhile), ['one', 1])
  assert.deepEqual(channel.ask(2, 'two', meanwhile), ['two', 2])
})

test('the late answer goes to the request that was cut short', () => {
  const channel = newChannel()
  assert.throws(() => channel.ask(1, 4, cutShort), RangeError)
  assert.deepEqual([channel.isLate(1), channel.isLate(2)], [true, false])
  const meanwhile = () => {
    channel.answer(double)
    return null
  }
  assert.equal(channel.takeLate(1, meanwhile), 8)
  assert.equal(channel.isLate(1), false)
  assert.equal(channel.ask(1, 5, meanwhile), 10)
})

test('the request of a thread that has ended is not answered', () => {
  const channel = newChannel()
  assert.throws(() => channel.ask(1, 4, cutShort), RangeError)
  channel.forget(1)
  assert.deepEqual([channel.answer(double), channel.isLate(1)], [0, false])
})

test('every thread throws the reason why no request is answered any more', () => {
  const channel = newChannel()
  assert.equal(channel.failure, null)
  channel.fail(new TypeError('no more'))
  for (const thread of [1, 2, 1]) {
    assert.throws(() => channel.ask(thread, 4, () => null), { name: 'TypeError', message: 'no more' })
  }
})

test('a kept request delays no other request, and is answered later', () => {
  const channel = newChannel()
  const keep = () => channel.answer(() => LATER)
  const answer = () => {
    channel.answer(double)
    return null
  }
  const meanwhile = () => {
    if (keep() === 0) channel.reply(1, () => 'in the end')
    assert.equal(channel.ask(2, 5, answer), 10)
    return null
  }
  assert.equal(channel.ask(1, 4, meanwhile), 'in the end')
})

test('a kept request of an ended thread is dropped', () => {
  const channel = newChannel()
  assert.throws(() => channel.ask(1, 4, cutShort), RangeError)
  assert.equal(
    channel.answer(() => LATER),
    1,
  )
  channel.forget(1)
  const meanwhile = () => {
    channel.answer(double)
    return null
  }
  assert.equal(channel.ask(1, 6, meanwhile), 12)
})
