// LOCK_SEED and LOCK_TERMINATIONS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Random } from '../base/random.js'
import { At, section } from './lock-contender.worker.js'
import { contend, lockOf, newWords } from './robust-lock.fixture.js'

const SEED = Number(process.env['LOCK_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['LOCK_TERMINATIONS'] ?? 15)

test(`threads terminated at random moments (LOCK_SEED=${SEED} LOCK_TERMINATIONS=${TERMINATIONS})`, async () => {
  const words = newWords()
  const { lock, registry } = lockOf(words)
  const random = new Random(SEED)
  const running = Array.from({ length: 3 }, () => contend(words))
  for (let count = 0; count < TERMINATIONS; count++) {
    const sections = Atomics.load(words, At.sections)
    while (Atomics.load(words, At.sections) === sections) await setImmediate()
    for (let turns = random.below(20); turns > 0; turns--) await setImmediate()
    const victim = await running.splice(random.below(running.length), 1)[0]
    await victim.thread.terminate()
    section(words, lock)
    assert.notEqual(lock.owner, victim.worker)
    while (!registry.hasDied(victim.worker));
    registry.forget(victim.worker)
    running.push(contend(words))
  }
  for (const contender of running) await (await contender).thread.terminate()
  section(words, lock)
  assert.equal(words[At.broken], 0, 'never two at a time')
  assert.equal(words[At.left], words[At.right])
  assert.ok(words[At.takeovers] > 0, `${words[At.takeovers]} takeovers`)
})
