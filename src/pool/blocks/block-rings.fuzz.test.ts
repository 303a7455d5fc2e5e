// HEAP_FUZZ_SEED and HEAP_FUZZ_STEPS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../base/random.js'
import { KEYS, Shadowed } from './block-rings.fixture.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['HEAP_FUZZ_STEPS'] ?? 20_000)

test(`random programs against a shadow model, in phases (HEAP_FUZZ_SEED=${SEED} HEAP_FUZZ_STEPS=${STEPS})`, () => {
  const random = new Random(SEED)
  const PROGRAM_STEPS = 500
  const counts = { took: 0, none: 0, put: 0, shared: 0, deferred: 0, settled: 0, added: 0 }
  for (let step = 0; step < STEPS; step += PROGRAM_STEPS) {
    const world = new Shadowed()
    world.add(1 + random.below(60))
    for (let inProgram = 0; inProgram < PROGRAM_STEPS; inProgram++) {
      const allocating = inProgram < PROGRAM_STEPS / 2 ? 0.6 : 0.3
      const dice = random.fraction()
      const key = 1 + random.below(KEYS - 1)
      const handle = world.held[random.below(world.held.length)]
      if (dice < allocating) counts[world.take(key, random.below(3) * 1000) ? 'took' : 'none']++
      else if (dice < 0.92 && handle !== undefined) {
        if (handle.shared) {
          world.defer(handle)
          counts.deferred++
        } else if (random.below(8) === 0) {
          world.share(handle)
          world.put(handle, key, false)
          counts.shared++
        } else {
          world.put(handle, random.below(6) === 0 ? 0 : key, random.below(3) === 0)
          counts.put++
        }
      } else if (dice < 0.96) world.putDeferred()
      else counts.settled += world.settle(key, random.below(3))
      if (random.below(200) === 0) {
        world.add(1 + random.below(40))
        counts.added++
      }
      if (inProgram % 16 === 0) world.check()
    }
    world.finish()
  }
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 10, `${what}: ${count}`)
})
