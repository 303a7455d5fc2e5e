// Random programs on the caching pool of one thread, with each of its options: nothing is refused while memory is
// left, and at the end the whole capacity is in one piece.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../src/core/base/bytes.js'
import { seedsFrom } from '../../src/core/base/seeds.fixture.js'
import { UNIT_BYTES } from '../../src/core/heap/size-classes.js'
import type { Stream } from '../../src/core/order/stream.js'
import { SMALL_UNITS } from '../../src/core/pool/backing/backing.js'
import { VirtualBacking } from '../../src/core/pool/backing/virtual-backing.js'
import type { DeviceBuffer } from '../../src/core/pool/buffer.js'
import type { CachingPool } from '../../src/core/pool/caching/caching-pool.js'
import { slabsOf } from '../../src/core/pool/caching/central/slabs.js'
import type { PoolOptions } from '../../src/core/pool/caching/options.js'
import { assertConsistent, type TestDevice } from '../../src/core/pool/pool.fixture.js'
import { CAPACITY_BYTES, isCaught, PoolProgram, type Progress } from './pool-program.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1000
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)
const GRANULE = 1 * MiB

const GROW = {
  allocate: 50,
  free: 15,
  useElsewhere: 15,
  hold: 4,
  release: 4,
  settle: 6,
  stream: 4,
  observe: 4,
  signal: 12,
}
const MIX = { ...GROW, allocate: 30, free: 30, hold: 5, release: 5, observe: 5 }
const SHRINK = {
  ...GROW,
  allocate: 12,
  free: 48,
  useElsewhere: 10,
  hold: 3,
  release: 6,
  settle: 10,
  stream: 5,
  observe: 6,
}

/** A range of addresses. */
interface Range {
  readonly ptr: number
  readonly bytes: number
}

function overlap(a: Range, b: Range): boolean {
  return a.ptr < b.ptr + b.bytes && b.ptr < a.ptr + a.bytes
}

class CachingProgram extends PoolProgram<CachingPool> {
  insertedWaits = 0

  constructor(seed: number, progress: Progress, options: PoolOptions, mostStreams?: number) {
    const open = (device: TestDevice) => device.createPool({ maxPoolBytes: CAPACITY_BYTES, ...options })
    super(seed, progress, open, GRANULE, mostStreams)
  }

  protected override ownSteps() {
    return { settle: () => this.settle() }
  }

  protected override request() {
    const { random } = this
    const bytes =
      random.below(3) === 0
        ? (1 + random.below(6)) * GRANULE
        : random.logUniform(4, [64 * KiB, 8 * MiB][random.below(2)])
    return random.below(8) === 0 ? { bytes, alignment: 2 ** random.below(22) } : { bytes }
  }

  /** A refusal is right if pieces without live bytes, and memory not reserved, are too little for the block. */
  protected override ranOut(bytes: number): void {
    const { backing } = this.pool.central
    const blockBytes = this.pool.config.powerOfTwo ? 2 ** Math.ceil(Math.log2(bytes)) : bytes
    const needed = blockBytes + 3 * GRANULE // an alignment of 2 MiB and a start inside a granule
    if (!(backing instanceof VirtualBacking)) {
      assert.ok(this.pool.live().length > 0, 'out of memory with nothing held')
      return
    }
    const [{ base, blocks }] = this.pool.snapshot().ranges
    const inUse = blocks.filter(({ state }) => state === 'live' || state === 'part')
    // A slab with a live block keeps all of its memory from large blocks.
    const { large } = this.pool.central
    const { records } = large
    const slabs = slabsOf(large)
      .map(slab => ({ ptr: base + records.offsetOf(slab) * UNIT_BYTES, bytes: records.unitsOf(slab) * UNIT_BYTES }))
      .filter(slab => inUse.some(block => overlap(block, slab)))
    const taken = [...inUse, ...slabs]
    const newBytes = CAPACITY_BYTES - backing.reservedBytes
    let [free, run, longest, end] = [0, 0, 0, 0]
    for (const { start, units, bytes: size } of backing['home'].pieces) {
      const piece = { ptr: base + start * UNIT_BYTES, bytes: size }
      if (taken.some(range => overlap(range, piece))) continue
      run = start === end ? run + size : size
      end = start + units
      free += size
      longest = Math.max(longest, run)
    }
    // A small block lies in a slab, whose memory no view makes contiguous.
    const isSmall = blockBytes < SMALL_UNITS * UNIT_BYTES
    const room = isSmall ? Math.max(newBytes, longest) : newBytes + free
    assert.ok(needed > room, `${bytes} refused, ${room} bytes have room`)
  }

  protected override giveBack(buffer: DeviceBuffer, on: Stream): void {
    if (on === buffer.stream && this.random.below(4) === 0) this.pool.deallocate(buffer.ptr)
    else buffer.free(on)
  }

  protected override check(): void {
    super.check()
    assertConsistent(this.pool, this.spareBytes())
  }

  protected override finish(): void {
    const whole = this.pool.allocate(CAPACITY_BYTES, this.streams[1])
    whole.free()
    this.streams[1].synchronize()
    this.pool.processDeferred()
    this.pool.trimTo(0)
    assert.equal(this.device.freeBytes(), CAPACITY_BYTES)
    this.insertedWaits = this.pool.stats().insertedWaits
  }

  private settle(): void {
    if (this.random.below(2) === 0) this.pool.processDeferred()
    else this.pool.trimTo(this.random.below(CAPACITY_BYTES))
  }

  /** Memory that a growth took and did not need; whole granules. */
  private spareBytes(): number {
    const blocks = this.pool.snapshot().ranges.flatMap(range => range.blocks)
    const isMemory = ({ state }: { state: string }) => state !== 'absent' && state !== 'part'
    const used = blocks.filter(isMemory).reduce((sum, block) => sum + block.bytes, 0)
    const spare = this.pool.stats().reservedBytes - used
    assert.ok(spare >= 0 && spare % GRANULE === 0)
    return this.pool.central.backing.kind === 'virtual' ? spare : 0
  }
}

const OPTIONS: readonly (readonly [name: string, options: PoolOptions])[] = [
  ['virtual', { backing: 'virtual' }],
  ['virtual, giving back', { backing: 'virtual', releaseThresholdBytes: 16 * MiB }],
  ['segments', { backing: 'segments' }],
  ['segments, waiting before growing', { backing: 'segments', crossStreamReuse: 'wait-before-grow' }],
  ['virtual, waiting before growing', { backing: 'virtual', crossStreamReuse: 'wait-before-grow' }],
  ['virtual, ordered', { backing: 'virtual', crossStreamReuse: 'ordered' }],
  ['virtual, deterministic', { backing: 'virtual', deterministic: true }],
  ['segments, deterministic', { backing: 'segments', deterministic: true }],
  // Without redzones, since the program wants all of the memory; it makes no mistake, and none is found.
  ['virtual, debug', { backing: 'virtual', debug: { sites: 0, redzoneBytes: 0, quarantineBytes: 4 * MiB } }],
  ['powers of two', { sizeClasses: 'powerOfTwo', minBlockBytes: 4096 }],
]

describe(`random programs on caching pools (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  let insertedWaits = 0
  for (const [name, options] of OPTIONS) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of seedsFrom(SEED, 2, STEPS / USUAL_STEPS, 1000)) {
        it(`${name}, ${progress} work, seed ${seed}`, () => {
          const program = new CachingProgram(seed, progress, options)
          program.run(STEPS, [GROW, MIX, SHRINK])
          for (const step of [...Object.keys(GROW), 'ranOut']) assert.ok(program.taken.has(step), `${step} happened`)
          assert.ok(program.takeovers > 10, 'streams got memory of other ones')
          if (options.crossStreamReuse === 'ordered') assert.equal(program.insertedWaits, 0)
          else insertedWaits += program.insertedWaits
        })
      }
    }
  }

  for (const backing of ['virtual', 'segments', 'registrable'] as const) {
    it(`${backing}, 1100 streams, seed ${SEED}`, () => {
      const program = new CachingProgram(SEED, 'eager', { backing }, 1100)
      program.run(STEPS, [GROW, MIX, SHRINK])
      assert.ok(program.takeovers > 10, 'streams got memory of other ones')
    })
  }

  let changes = 0
  for (const backing of ['virtual', 'segments', 'registrable'] as const) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of seedsFrom(SEED, 2, STEPS / USUAL_STEPS, 1000)) {
        it(`${backing}, loose as with much room, ${progress} work, seed ${seed}`, () => {
          const program = new CachingProgram(seed, progress, { backing })
          const { central, caches } = program.pool
          // This pool is too small for whole steps of its own.
          Object.defineProperty(central.backing, 'growthStepBytes', { value: CAPACITY_BYTES / 16 })
          const setTight = caches.setTight.bind(caches)
          caches.setTight = isTight => {
            const isNew = setTight(isTight)
            if (isNew) changes++
            return isNew
          }
          program.run(STEPS, [GROW, MIX, SHRINK])
          assert.ok(program.takeovers > 10, 'streams got memory of other ones')
        })
      }
    }
  }

  it('pools became tight, and loose again', () => assert.ok(changes > 1))

  it('streams were made to wait for the memory of others', () => assert.ok(insertedWaits > 0))

  it('a pool that hands out freed memory at once is caught', () => {
    for (const backing of ['virtual', 'segments', 'registrable'] as const) {
      for (let seed = SEED; seed < SEED + 5; seed++) {
        const program = new CachingProgram(seed, 'eager', { backing, streamOrdered: false })
        assert.ok(
          isCaught(() => program.run(STEPS, [GROW, MIX, SHRINK])),
          `seed ${seed}`,
        )
      }
    }
  })
})
