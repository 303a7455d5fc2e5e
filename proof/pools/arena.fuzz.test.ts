// Random programs on the arena of one thread, with resets, marks and rewinds.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../src/core/base/bytes.js'
import { PoolError } from '../../src/core/base/errors.js'
import { seedsFrom } from '../../src/core/base/seeds.fixture.js'
import type { ArenaMark } from '../../src/core/pool/arena/arena-mark.js'
import type { ArenaOptions } from '../../src/core/pool/arena/arena-options.js'
import type { ArenaPool } from '../../src/core/pool/arena/arena-pool.js'
import type { TestDevice } from '../../src/core/pool/pool.fixture.js'
import { type Held, isCaught, PoolProgram, type Progress } from './pool-program.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1000
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)
const BYTES = 3 * MiB

const GROW = {
  allocate: 60,
  free: 6,
  useElsewhere: 15,
  mark: 8,
  rewind: 3,
  reset: 1,
  hold: 4,
  release: 4,
  stream: 4,
  observe: 4,
}
const TURN = {
  allocate: 30,
  free: 8,
  useElsewhere: 12,
  mark: 6,
  rewind: 12,
  reset: 8,
  hold: 5,
  release: 5,
  stream: 4,
  observe: 5,
}

class ArenaProgram extends PoolProgram<ArenaPool> {
  growths = 0
  private marks: { mark: ArenaMark; below: ReadonlySet<Held> }[] = []

  constructor(seed: number, progress: Progress, options: ArenaOptions, isOnBuffer = false) {
    super(seed, progress, device => (isOnBuffer ? onBuffer(device) : device.createArenaPool(options)))
  }

  protected override ownSteps() {
    return { mark: () => this.mark(), rewind: () => this.rewind(), reset: () => this.reset() }
  }

  protected override request() {
    const { random } = this
    const bytes = random.logUniform(4, [64 * KiB, 2 * MiB][random.below(2)])
    return random.below(8) === 0 ? { bytes, alignment: 2 ** random.below(22) } : { bytes }
  }

  protected override ranOut(bytes: number, alignment: number): void {
    assert.ok(bytes + Math.max(256, alignment) > this.pool.availableBytes, `${bytes} bytes refused`)
  }

  protected override finish(): void {
    this.growths = this.pool.stats().growths
    this.pool.reset(this.streams[1])
    assert.equal(this.pool.availableBytes, BYTES)
    this.pool.allocate(BYTES, this.streams[1]).free()
    this.pool.check()
  }

  private mark(): void {
    this.marks.push({ mark: this.pool.mark(), below: new Set(this.held) })
  }

  private rewind(): void {
    const index = Math.max(this.random.below(this.marks.length), this.random.below(this.marks.length))
    const chosen = this.marks[index]
    if (chosen === undefined) return
    this.marks.length = index + 1
    this.giveAllBack(
      this.held.filter(held => !chosen.below.has(held)),
      stream => this.pool.rewind(chosen.mark, stream),
    )
  }

  private reset(): void {
    this.giveAllBack([...this.held], stream => this.pool.reset(stream))
    for (const { mark } of this.marks.splice(0)) assert.throws(() => this.pool.rewind(mark), PoolError)
  }

  private giveAllBack(dropped: readonly Held[], work: (stream: ReturnType<typeof this.anyStream> | undefined) => void) {
    const stream = this.random.below(3) === 0 ? undefined : this.anyStream()
    this.settleUses(dropped, stream)
    this.letGo(dropped)
    this.forget(dropped)
    work(stream)
    for (const { buffer } of dropped) assert.equal(buffer.freed, true)
    for (const { buffer } of this.held) assert.equal(buffer.freed, false)
  }
}

/** An arena on a buffer, which its close frees. */
function onBuffer(device: TestDevice): ArenaPool {
  const region = device.createPlainPool().allocate(BYTES)
  const arena = device.createArenaPool({ region })
  const close = arena.close.bind(arena)
  arena.close = () => {
    const report = close()
    region[Symbol.dispose]()
    return report
  }
  return arena
}

const OPTIONS: readonly (readonly [name: string, options: ArenaOptions, isOnBuffer?: boolean])[] = [
  ['fixed', { bytes: BYTES }],
  ['growing', { bytes: 700 * KiB, maxPoolBytes: BYTES }],
  ['on a buffer', { bytes: BYTES }, true],
]

describe(`random programs on arenas (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const [name, options, isOnBuffer] of OPTIONS) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of seedsFrom(SEED, 2, STEPS / USUAL_STEPS, 1000)) {
        it(`${name}, ${progress} work, seed ${seed}`, () => {
          const program = new ArenaProgram(seed, progress, options, isOnBuffer)
          program.run(STEPS, [GROW, TURN])
          if (options.maxPoolBytes !== undefined) assert.ok(program.growths > 1, `${program.growths} growths`)
          for (const step of [...Object.keys(GROW), 'ranOut']) assert.ok(program.taken.has(step), `${step} happened`)
        })
      }
    }
  }

  type Broken = { epochs: { join(): void; use(): void; isUser(): boolean } }
  const defects: readonly (readonly [name: string, spoil: (pool: Broken) => void])[] = [
    ['whose streams do not wait for the reset', ({ epochs }) => Object.assign(epochs, { join: () => {} })],
    ['whose reset waits for nobody', ({ epochs }) => Object.assign(epochs, { isUser: () => false })],
    ['that forgets uses on other streams', ({ epochs }) => Object.assign(epochs, { use: () => {} })],
  ]
  for (const [defect, spoil] of defects) {
    it(`an arena ${defect} is caught`, () => {
      const caught = [1, 2, 3].filter(seed => {
        const program = new ArenaProgram(seed, 'eager', { bytes: BYTES })
        spoil(program.pool as unknown as Broken)
        return isCaught(() => program.run(STEPS, [GROW, TURN]))
      })
      assert.deepEqual(caught, [1, 2, 3])
    })
  }
})
