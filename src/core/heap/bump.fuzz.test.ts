// HEAP_FUZZ_SEED and HEAP_FUZZ_STEPS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../base/random.js'
import { Shadowed } from './bump.fixture.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['HEAP_FUZZ_STEPS'] ?? 20_000)

test(`random programs agree with a shadow model, in phases (HEAP_FUZZ_SEED=${SEED} HEAP_FUZZ_STEPS=${STEPS})`, () => {
  const random = new Random(SEED)
  const PROGRAM_STEPS = 400
  const counts = { took: 0, full: 0, freed: 0, rewound: 0, refused: 0, dropped: 0 }
  for (let step = 0; step < STEPS; step += PROGRAM_STEPS) {
    const start = random.below(50)
    const stack = new Shadowed(start, start + 1 + random.below(3000))
    for (let inProgram = 0; inProgram < PROGRAM_STEPS; inProgram++) {
      const allocating = inProgram < PROGRAM_STEPS / 2 ? 0.7 : 0.3
      const dice = random.fraction()
      if (dice < allocating) {
        const alignUnits = random.below(4) === 0 ? 2 ** random.below(8) : 1
        counts[stack.take(random.logUniform(1, 60_000), alignUnits) ? 'took' : 'full']++
      } else if (dice < allocating + 0.1) {
        const { live } = stack
        if (live.length > 0) stack.free(live[random.below(live.length)])
        counts.freed++
      } else if (dice < allocating + 0.16) stack.mark()
      else if (dice < allocating + 0.22) {
        const mark = stack.marks[random.below(stack.marks.length)]
        if (mark !== undefined) counts[stack.rewind(mark) ? 'rewound' : 'refused']++
      } else if (dice < allocating + 0.23) {
        stack.drop()
        counts.dropped++
      } else if (random.below(8) === 0) stack.checkSum()
      if (inProgram % 16 === 0) stack.check()
    }
    stack.drop()
    stack.check()
  }
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 10, `${what}: ${count}`)
})
