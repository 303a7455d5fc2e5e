import { Random } from '../src/core/base/random.js'
import { Generator } from './generator.js'
import type { GpuMachine } from './gpu-machine.js'
import { breakRule, type Rule } from './mutants.js'
import { drawSettings } from './settings.js'
import { System } from './system.js'

const CHECK_EVERY = 100

/**
 * Runs the program of a seed on a device without an oracle; throws on a failure. With a rule broken, its pools use
 * plain segments, so that no memory is unmapped while it is used.
 */
export async function runOnGpu(machine: GpuMachine, seed: number, count: number, rule?: Rule): Promise<void> {
  const restore = rule === undefined ? () => {} : breakRule(rule)
  try {
    const random = new Random(seed)
    const settings = drawSettings(random)
    const pools = settings.pools.map(pool => (rule === undefined ? pool : { ...pool, backing: 'segments' as const }))
    const system = new System({ ...settings, pools }, machine)
    const generator = new Generator(random, system)
    for (let step = 1; step <= count; step++) {
      await system.run(generator.next())
      if (step % CHECK_EVERY === 0) system.check()
    }
    await system.finish()
  } finally {
    restore()
  }
}
