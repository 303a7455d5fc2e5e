// Random programs on the block pool of one thread.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB } from '../../src/core/base/bytes.js'
import { seedsFrom } from '../../src/core/base/seeds.fixture.js'
import { MOST_STREAMS } from '../../src/core/order/clocks.js'
import type { BlockOptions } from '../../src/core/pool/blocks/block-options.js'
import type { BlockPool } from '../../src/core/pool/blocks/block-pool.js'
import { isCaught, PoolProgram, type Progress } from './pool-program.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1000
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)

const GROW = { allocate: 50, free: 20, useElsewhere: 15, hold: 4, release: 4, settle: 4, stream: 4, observe: 4 }
const MIX = { allocate: 34, free: 34, useElsewhere: 15, hold: 5, release: 5, settle: 5, stream: 4, observe: 5 }
const SHRINK = { allocate: 12, free: 50, useElsewhere: 10, hold: 3, release: 6, settle: 8, stream: 5, observe: 6 }

class BlockProgram extends PoolProgram<BlockPool> {
  constructor(seed: number, progress: Progress, options: BlockOptions) {
    super(seed, progress, device => device.createBlockPool(options))
  }

  protected override ownSteps() {
    return { settle: () => void this.pool.processDeferred() }
  }

  protected override request() {
    const { random, pool } = this
    const bytes = random.below(2) === 0 ? pool.blockBytes : random.logUniform(4, pool.blockBytes)
    return random.below(8) === 0 ? { bytes, alignment: 2 ** random.below(Math.log2(pool.alignment) + 1) } : { bytes }
  }

  protected override ranOut(): void {
    assert.equal(this.pool.stats().liveBuffers, this.pool.maxCount, 'out of memory means that all blocks are held')
  }

  protected override finish(): void {
    const { pool } = this
    const all = Array.from({ length: pool.maxCount }, () => pool.allocate(pool.blockBytes, this.streams[1]))
    assert.equal(pool.tryAllocate(1), null)
    assert.equal(pool.availableBlocks, 0)
    for (const buffer of all) buffer.free()
    pool.check()
  }
}

const OPTIONS: readonly (readonly [name: string, options: BlockOptions])[] = [
  ['fixed', { blockBytes: 16 * KiB, count: 24 }],
  ['growing', { blockBytes: 48 * KiB, count: 5, maxCount: 33 }],
]

describe(`random programs on block pools (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const [name, options] of OPTIONS) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of seedsFrom(SEED, 2, STEPS / USUAL_STEPS, 1000)) {
        it(`${name}, ${progress} work, seed ${seed}`, () => {
          const program = new BlockProgram(seed, progress, options)
          program.run(STEPS, [GROW, MIX, SHRINK])
          for (const step of [...Object.keys(GROW), 'ranOut']) assert.ok(program.taken.has(step), `${step} happened`)
        })
      }
    }
  }

  const defects: readonly (readonly [name: string, spoil: (pool: BlockPool) => void])[] = [
    [
      'that takes all work for complete',
      ({ caches }) => {
        const takeElsewhere = caches.takeElsewhere.bind(caches)
        const seen = new Float64Array(MOST_STREAMS).fill(Infinity)
        caches.takeElsewhere = (slot, units, known) => takeElsewhere(slot, units, known, seen)
      },
    ],
    ['that forgets uses on other streams', ({ central }) => Object.assign(central, { announceUse: () => {} })],
  ]
  for (const [defect, spoil] of defects) {
    it(`a pool ${defect} is caught`, () => {
      const caught = [1, 2, 3].filter(seed => {
        const program = new BlockProgram(seed, 'eager', OPTIONS[0][1])
        spoil(program.pool)
        return isCaught(() => program.run(STEPS, [GROW, MIX, SHRINK]))
      })
      assert.deepEqual(caught, [1, 2, 3])
    })
  }
})
