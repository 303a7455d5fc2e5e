import { assert } from '../../../src/base/assert.js'
import { Bell } from '../../../src/threads/bell.js'
import { Mailbox, mailboxWords } from '../../../src/threads/mailbox.js'
import { type Cast, mayBeCut, type Scenario } from '../stage.js'

/** A thread that answers, and some that ask as numbers from 1; all may be cut short when they ask first. */
function askers(count: number, turns: number, isCut: boolean): Cast {
  const mailbox = new Mailbox(new Int32Array(new SharedArrayBuffer(mailboxWords(count) * 4)), new Bell())
  let asking = count
  const ask = (me: number, turn: number) => {
    if (mailbox.isLate(me)) mailbox.takeLate(me, () => null)
    const answer = mailbox.ask(me, [me, turn], () => null)
    assert(JSON.stringify(answer) === `{"to":[${me},${turn}]}`, 'a question has its own answer')
  }
  const askAll = (me: number) => {
    if (isCut) mayBeCut(() => ask(me, 0))
    for (let turn = 1; turn <= turns; turn++) ask(me, turn)
    asking--
    mailbox.bell.ring()
  }
  const answer = () => {
    for (;;) {
      const { rings } = mailbox.bell
      if (asking === 0) return
      if (mailbox.answer(question => ({ to: question })) === 0) mailbox.bell.sleep(rings, Infinity)
    }
  }
  return { threads: [answer, ...Array.from({ length: count }, (_, index) => () => askAll(index + 1))] }
}

export const scenarios: Record<string, Scenario> = {
  'every question has its own answer': { begin: () => askers(2, 2, false), isLarge: true },
  'a question that is cut short does not leave its answer to the next one': { begin: () => askers(1, 2, true) },
}
