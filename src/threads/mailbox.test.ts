import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Bell } from './bell.js'
import { LATER, Mailbox, mailboxWords } from './mailbox.js'

const newMailbox = () => new Mailbox(new Int32Array(new SharedArrayBuffer(mailboxWords(2) * 4)), new Bell())
const double = (question: unknown) => (question as number) * 2
const cutShort = () => {
  throw new RangeError('Maximum call stack size exceeded')
}

test('each thread gets the answer to its own request', () => {
  const mailbox = newMailbox()
  const meanwhile = () => {
    mailbox.answer((question, asker) => [question, asker])
    return null
  }
  assert.deepEqual(mailbox.ask(1, 'one', meanwhile), ['one', 1])
  assert.deepEqual(mailbox.ask(2, 'two', meanwhile), ['two', 2])
})

test('a late answer is taken for the request that was cut short', () => {
  const mailbox = newMailbox()
  assert.throws(() => mailbox.ask(1, 4, cutShort), RangeError)
  assert.deepEqual([mailbox.isLate(1), mailbox.isLate(2)], [true, false])
  const meanwhile = () => {
    mailbox.answer(double)
    return null
  }
  assert.equal(mailbox.takeLate(1, meanwhile), 8)
  assert.equal(mailbox.isLate(1), false)
  assert.equal(mailbox.ask(1, 5, meanwhile), 10)
})

test('the request of a thread that has ended is not answered', () => {
  const mailbox = newMailbox()
  assert.throws(() => mailbox.ask(1, 4, cutShort), RangeError)
  mailbox.forget(1)
  assert.deepEqual([mailbox.answer(double), mailbox.isLate(1)], [0, false])
})

test('every thread is told why no request is answered any more', () => {
  const mailbox = newMailbox()
  assert.equal(mailbox.failure, null)
  mailbox.fail(new TypeError('no more'))
  for (const thread of [1, 2, 1]) {
    assert.throws(() => mailbox.ask(thread, 4, () => null), { name: 'TypeError', message: 'no more' })
  }
})

test('a request that is kept holds up no other one, and is answered later', () => {
  const mailbox = newMailbox()
  const keep = () => mailbox.answer(() => LATER)
  const answer = () => {
    mailbox.answer(double)
    return null
  }
  const meanwhile = () => {
    if (keep() === 0) mailbox.reply(1, () => 'in the end')
    assert.equal(mailbox.ask(2, 5, answer), 10)
    return null
  }
  assert.equal(mailbox.ask(1, 4, meanwhile), 'in the end')
})

test('a request that was kept for a thread that has ended is forgotten', () => {
  const mailbox = newMailbox()
  assert.throws(() => mailbox.ask(1, 4, cutShort), RangeError)
  assert.equal(
    mailbox.answer(() => LATER),
    1,
  )
  mailbox.forget(1)
  const meanwhile = () => {
    mailbox.answer(double)
    return null
  }
  assert.equal(mailbox.ask(1, 6, meanwhile), 12)
})
