// The settings of a program, drawn from its seed: a small device, pools with tight limits and any options, and the
// numbers of streams and sizes.

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import type { PoolOptions } from '../src/index.js'

export interface Settings {
  readonly progress: 'eager' | 'seeded'
  readonly pools: readonly PoolOptions[]
  readonly mostStreams: number
  /** further streams that are open from the start, and have no work */
  readonly bystanders: number
  readonly mostHeld: number
  /** whether streams of a second device use the memory */
  readonly peer: boolean
  /** whether work is also captured */
  readonly captures: boolean
  /** whether some of these are captured in groups of graphs that share memory */
  readonly groups: boolean
  /** the sizes of most requests; `draw` makes up the rest */
  readonly sizes: readonly number[]
  readonly draw: (random: Random) => number
  /** sizes of blocks that keep the free memory of the first pool apart, and of the gaps between them; see drawing.ts */
  readonly spacers: readonly Spacer[]
  /** the most mappings that a pool may have in views, so that views are unmapped; Infinity leaves it to the pool */
  readonly mostMappings: number
  /** of programs with sleep and spillable buffers; null for none */
  readonly sleeps: SleepSettings | null
  /** whether small blocks often come out of memory that several streams used */
  readonly sharesSlabs: boolean
}

export interface SleepSettings {
  /** the most bytes of the host pool for copies */
  readonly hostBytes: number
  /** the most bytes of spillable buffers on the device */
  readonly spillBytes: number
}

/** A block that stays, and the free memory behind it. */
export interface Spacer {
  readonly bytes: number
  readonly gapBytes: number
}

export const CAPACITY_BYTES = 32 * MiB
export const GRANULE_BYTES = 256 * KiB
const LARGEST_BYTES = 3 * MiB

export function drawSettings(random: Random): Settings {
  const one = <T>(choices: readonly T[]): T => choices[random.below(choices.length)]
  return {
    progress: one(['eager', 'seeded']),
    mostStreams: one([2, 3, 4, 5, 6, 12, 70]),
    mostHeld: one([6, 12, 40]),
    bystanders: 0,
    captures: random.below(5) < 2,
    groups: false,
    peer: random.below(6) === 0,
    sizes: Array.from({ length: one([1, 2, 4]) }, () => drawSize(random)),
    draw: drawSize,
    spacers: [],
    mostMappings: Infinity,
    sleeps: null,
    sharesSlabs: false,
    pools: Array.from({ length: one([1, 1, 2, 3]) }, () => ({
      maxPoolBytes: one([4, 8, 16]) * MiB,
      backing: one(['virtual', 'segments']),
      crossStreamReuse: one(['ordered', 'wait-before-grow', 'wait-before-oom']),
      deterministic: random.below(5) === 0,
      sizeClasses: one(['sixteenPerOctave', 'sixteenPerOctave', 'powerOfTwo']),
      minBlockBytes: one([256, 256, 4 * KiB]),
      releaseThresholdBytes: one([Infinity, Infinity, 2 * MiB]),
    })),
  }
}

/** One pool with large blocks, between which few of their size find room in one place. */
export function drawViewSettings(random: Random): Settings {
  const settings = drawSettings(random)
  const [pool] = settings.pools
  const maxPoolBytes = (24 + 3 * random.below(3)) * MiB
  return {
    ...settings,
    mostStreams: Math.min(settings.mostStreams, 5),
    peer: random.below(3) === 0,
    mostHeld: 10 + random.below(8),
    sizes: Array.from({ length: 20 }, () => drawLargeSize(random)),
    draw: drawLargeSize,
    mostMappings: random.below(3) > 0 ? Infinity : 12,
    pools: [{ ...pool, maxPoolBytes, backing: 'virtual', sizeClasses: 'sixteenPerOctave' }],
    spacers: drawSpacers(random, maxPoolBytes),
  }
}

/** Pools that sleep, and rarely one that cannot; in some programs many blocks lie in views. */
export function drawSleepSettings(random: Random): Settings {
  const settings = random.below(4) === 0 ? drawViewSettings(random) : drawSettings(random)
  return {
    ...settings,
    captures: random.below(2) === 0,
    peer: random.below(8) === 0,
    mostHeld: Math.min(settings.mostHeld, 16),
    pools: settings.pools.map(pool => (random.below(10) === 0 ? pool : { ...pool, backing: 'virtual' })),
    sleeps: {
      hostBytes: [3, 16, 64][random.below(3)] * MiB,
      spillBytes: [3 * MiB, 6 * MiB, Infinity][random.below(3)],
    },
  }
}

/** A pool that sleeps seldom, in which slabs are made of memory that other streams used. */
export function drawSlabSettings(random: Random): Settings {
  const settings = drawSleepSettings(random)
  const [pool] = settings.pools
  return {
    ...settings,
    pools: [
      { ...pool, backing: 'virtual', maxPoolBytes: 16 * MiB, deterministic: false, sizeClasses: 'sixteenPerOctave' },
    ],
    mostStreams: 6,
    captures: false,
    peer: false,
    draw: drawSize,
    spacers: [],
    mostMappings: Infinity,
    sharesSlabs: true,
  }
}

/** Graphs that share memory, on few streams; in some programs the pools sleep. */
export function drawGroupSettings(random: Random): Settings {
  const sleeping = drawSleepSettings(random)
  return {
    ...sleeping,
    captures: true,
    groups: true,
    mostStreams: Math.min(sleeping.mostStreams, 6),
    mostHeld: Math.min(sleeping.mostHeld, 12),
    sizes: Array.from({ length: 3 }, () => drawSize(random)),
    draw: drawSize,
    spacers: [],
    sleeps: random.below(3) === 0 ? sleeping.sleeps : null,
    pools: sleeping.pools.map(pool => (random.below(4) === 0 ? { ...pool, backing: 'segments' } : pool)),
  }
}

/** Blocks of which each lies in another piece, where most of a pool is taken; the gaps are as short as a piece. */
export function drawSpacers(random: Random, poolBytes: number): Spacer[] {
  const spacers: Spacer[] = []
  const filledBytes = poolBytes * (0.8 + 0.1 * random.below(4))
  for (let bytes = 0; bytes < filledBytes; ) {
    const spacer = { bytes: random.logUniform(1 * MiB, 1.125 * MiB), gapBytes: random.logUniform(2.25 * MiB, 4 * MiB) }
    spacers.push(spacer)
    bytes += spacer.bytes + spacer.gapBytes
  }
  return spacers
}

/** The size of a block that is longer than a piece, or that lies in its way. */
export function drawLargeSize(random: Random): number {
  if (random.below(10) === 0) return drawSize(random)
  return random.below(4) === 0 ? random.logUniform(768 * KiB, 1.5 * MiB) : random.logUniform(4 * MiB, 9 * MiB)
}

export function drawSize(random: Random): number {
  return random.below(4) === 0
    ? (1 + random.below(8)) * GRANULE_BYTES
    : random.logUniform(4, random.below(2) === 0 ? 64 * KiB : LARGEST_BYTES)
}
