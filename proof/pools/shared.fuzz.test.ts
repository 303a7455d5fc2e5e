// Random programs on a caching pool that threads share. All of its fronts and its pool server are in one thread, so
// that a seed always gives the same program. Tests with threads: test/shared-pool-threads.test.ts.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../src/core/base/bytes.js'
import { seedsFrom } from '../../src/core/base/seeds.fixture.js'
import type { PoolOptions } from '../../src/core/pool/caching/options.js'
import type { TestDevice } from '../../src/core/pool/pool.fixture.js'
import type { SharedPool } from '../../src/core/pool/shared/shared-pool.js'
import { PoolProgram, type Progress } from './pool-program.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1500
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)

const GROW = {
  allocate: 50,
  free: 20,
  useElsewhere: 15,
  hold: 4,
  release: 4,
  settle: 3,
  trim: 1,
  handOver: 10,
  stream: 4,
  observe: 4,
}
const MIX = { ...GROW, allocate: 34, free: 34, hold: 5, release: 5 }
const SHRINK = { ...GROW, allocate: 12, free: 50, settle: 8, release: 6 }

class SharedProgram extends PoolProgram<SharedPool> {
  private readonly fronts: readonly SharedPool[]

  constructor(seed: number, progress: Progress, options: PoolOptions, mostStreams?: number) {
    let fronts: SharedPool[] = []
    const open = (device: TestDevice) => {
      const { pool, attach } = device.createSharedPool({ maxPoolBytes: 64 * MiB, ...options })
      fronts = [pool, attach(), attach()]
      return pool
    }
    super(seed, progress, open, undefined, mostStreams)
    this.fronts = fronts
  }

  protected override ownSteps() {
    return {
      settle: () => void this.pool.processDeferred(),
      trim: () => void this.pool.trimTo(this.random.below(64) * MiB),
      handOver: () => this.handOver(),
    }
  }

  /** A buffer goes from one thread to another, or back. */
  private handOver(): void {
    const held = this.held[this.random.below(this.held.length)]
    if (held === undefined) return
    const stale = held.buffer
    const front = this.fronts[this.random.below(this.fronts.length)]
    const sent = stale.transfer()
    const adopted = this.random.below(2) === 0 ? front.adopt(sent) : front.adoptAll([sent])[0]
    assert.equal(adopted.byteLength, held.bytes)
    Object.assign(held, { buffer: adopted })
  }

  protected override request() {
    const { random } = this
    const bytes = random.below(4) === 0 ? random.logUniform(1 * MiB, 12 * MiB) : random.logUniform(4, 512 * KiB)
    return random.below(8) === 0 ? { bytes, alignment: 2 ** random.below(20) } : { bytes }
  }

  protected override ranOut(bytes: number): void {
    const { liveBytes } = this.pool.stats()
    assert.ok(liveBytes + bytes > 16 * MiB, `${liveBytes} of 64 MiB are live, and ${bytes} are not to be had`)
  }

  protected override finish(): void {
    for (const front of this.fronts.slice(1)) assert.deepEqual(front.close(), { heldBuffers: 0, heldBytes: 0 })
    this.pool.trimTo(0) // places the last marks
    this.device.context.activate().cuCtxSynchronize()
    this.pool.trimTo(0)
    assert.equal(this.pool.stats().reservedBytes, 0)
    const whole = this.pool.allocate(64 * MiB, this.streams[1])
    whole.free()
    this.pool.check()
  }
}

describe(`random programs on shared pools (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const backing of ['virtual', 'segments'] as const) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of seedsFrom(SEED, 2, STEPS / USUAL_STEPS, 1000)) {
        it(`${backing}, ${progress} work, seed ${seed}`, () => {
          const program = new SharedProgram(seed, progress, { backing })
          program.run(STEPS, [GROW, MIX, SHRINK])
          for (const step of [...Object.keys(GROW), 'ranOut']) assert.ok(program.taken.has(step), `${step} happened`)
        })
      }
    }
    it(`${backing}, 1100 streams, seed ${SEED}`, () => {
      const program = new SharedProgram(SEED, 'eager', { backing }, 1100)
      program.run(STEPS, [GROW, MIX, SHRINK])
      assert.ok(program.takeovers > 10, 'streams got memory of other ones')
    })
  }
})
