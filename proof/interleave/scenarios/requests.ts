import { assert } from '../../../src/core/base/assert.js'
import { Doorbell } from '../../../src/core/threads/doorbell.js'
import { channelWords, RequestChannel } from '../../../src/core/threads/request-channel.js'
import { type Cast, mayBeCut, type Scenario } from '../stage.js'

/** A thread that answers, and some that ask as numbers from 1; all may be cut short when they ask first. */
function askers(count: number, turns: number, isCut: boolean): Cast {
  const channel = new RequestChannel(new Int32Array(new SharedArrayBuffer(channelWords(count) * 4)), new Doorbell())
  let asking = count
  const ask = (me: number, turn: number) => {
    if (channel.isLate(me)) channel.takeLate(me, () => null)
    const answer = channel.ask(me, [me, turn], () => null)
    assert(JSON.stringify(answer) === `{"to":[${me},${turn}]}`, 'a question has its own answer')
  }
  const askAll = (me: number) => {
    if (isCut) mayBeCut(() => ask(me, 0))
    for (let turn = 1; turn <= turns; turn++) ask(me, turn)
    asking--
    channel.doorbell.ring()
  }
  const answer = () => {
    for (;;) {
      const { rings } = channel.doorbell
      if (asking === 0) return
      if (channel.answer(question => ({ to: question })) === 0) channel.doorbell.sleep(rings, Infinity)
    }
  }
  return { threads: [answer, ...Array.from({ length: count }, (_, index) => () => askAll(index + 1))] }
}

export const scenarios: Record<string, Scenario> = {
  'every question has its own answer': { begin: () => askers(2, 2, false), isLarge: true },
  'a question that is cut short does not leave its answer to the next one': { begin: () => askers(1, 2, true) },
}
