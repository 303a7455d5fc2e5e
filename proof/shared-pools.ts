// Shared pools of every kind, with all threads and the pool server in one thread, so that a seed always gives the
// same program.

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import type { Context } from '../src/core/driver/context.js'
import type { Clocks } from '../src/core/order/clocks.js'
import type { Stream } from '../src/core/order/stream.js'
import { newSharedArena, SharedArenaPool } from '../src/core/pool/arena/shared-arena-pool.js'
import { newSharedBlocks, SharedBlockPool } from '../src/core/pool/blocks/shared-block-pool.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import { newSharedHost, SharedHostPool } from '../src/core/pool/host/shared-host-pool.js'
import { serve } from '../src/core/pool/pool.fixture.js'
import { newSharedPool } from '../src/core/pool/shared/new-shared-pool.js'
import { PoolServer } from '../src/core/pool/shared/pool-server.js'
import { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import { type SharedPoolState, SharedState } from '../src/core/pool/shared/shared-state.js'
import type { UnlockedDriver } from '../src/core/pool/shared/unlocked-driver.js'
import { limitMappings } from './limit-mappings.js'
import { CAPACITY_BYTES, drawLargeSize, drawSize, drawSpacers, type Spacer } from './settings.js'

export const SHARED_KINDS = ['shared-caching', 'shared-views', 'shared-block', 'shared-host', 'shared-arena'] as const

export type SharedKind = (typeof SHARED_KINDS)[number]
export type Front = SharedPool | SharedHostPool | SharedArenaPool
export type Buffer = DeviceBuffer | HostBuffer

/** A shared pool before its first front. */
export interface Common {
  /** the largest request that makes sense */
  readonly mostBytes: number
  readonly mostAlignment: number
  /** draws the size of a request, which may be too large */
  readonly draw: (random: Random) => number
  readonly spacers: readonly Spacer[]
  /** that a caching pool was made with, and that the program changes; 0 for other pools */
  readonly maxPoolBytes: number
  readonly server: PoolServer | null
  front(clocks: Clocks, defaultStream: Stream, creates: boolean): Front
}

function drawAnySize(random: Random): number {
  return random.below(2) === 0 ? drawSize(random) : random.logUniform(1, 32 * KiB)
}

/** What most kinds have. */
const USUAL = { mostAlignment: 32 * KiB, draw: drawAnySize, spacers: [], maxPoolBytes: 0 }

/** Makes the shared part of all fronts; `serverClocks` makes the clocks of the pool server's thread. */
export function drawCommon(kind: SharedKind, random: Random, clocks: Clocks, keeping: () => Keeping): Common {
  const one = <T>(choices: readonly T[]): T => choices[random.below(choices.length)]
  switch (kind) {
    case 'shared-caching':
    case 'shared-views': {
      const hasViews = kind === 'shared-views'
      const options = {
        maxPoolBytes: one(hasViews ? [20, 24] : [4, 8, 16]) * MiB,
        backing: hasViews ? 'virtual' : one(['virtual', 'segments'] as const),
        crossStreamReuse: one(['ordered', 'wait-before-grow', 'wait-before-oom'] as const),
        deterministic: random.below(5) === 0,
        sizeClasses: one(['sixteenPerOctave', 'powerOfTwo'] as const),
        releaseThresholdBytes: one([Infinity, Infinity, 2 * MiB]),
      }
      const mostMappings = hasViews ? one([Infinity, 12, 6]) : Infinity
      const state = newSharedPool(clocks, options, CAPACITY_BYTES, null)
      const { server, front } = kept(state, keeping, (...parts) => new SharedPool(...parts))
      limitMappings(server['central'].backing, mostMappings)
      return {
        mostBytes: (hasViews ? 8 : 3) * MiB,
        mostAlignment: 32 * KiB,
        draw: hasViews ? drawLargeSize : drawAnySize,
        spacers: hasViews ? drawSpacers(random, options.maxPoolBytes) : [],
        maxPoolBytes: options.maxPoolBytes,
        server,
        front,
      }
    }
    case 'shared-block': {
      const blockBytes = one([4 * KiB, 48 * KiB, 512 * KiB])
      const count = 1 + random.below(8)
      const state = newSharedBlocks(clocks, { blockBytes, count, maxCount: count + random.below(24) }, null)
      return {
        mostBytes: blockBytes,
        ...USUAL,
        mostAlignment: state.slabs.alignment,
        ...kept(state, keeping, (frontClocks, stream, _, creates, meanwhile) => {
          return new SharedBlockPool(frontClocks, stream, state, creates, meanwhile)
        }),
      }
    }
    case 'shared-host': {
      const maxPoolBytes = one([1, 4, 8]) * MiB
      const state = newSharedHost(clocks, { maxPoolBytes, segmentBytes: one([256 * KiB, 1 * MiB]) }, null)
      return {
        mostBytes: 512 * KiB,
        ...USUAL,
        ...kept(state, keeping, (frontClocks, stream, _, creates, meanwhile) => {
          return new SharedHostPool(frontClocks, stream, state, creates, meanwhile)
        }),
      }
    }
    case 'shared-arena': {
      const bytes = one([256 * KiB, 1 * MiB, 3 * MiB])
      const state = newSharedArena(clocks, { bytes }, null)
      return {
        mostBytes: bytes >> 2,
        ...USUAL,
        server: null,
        front: (frontClocks, stream, creates) => new SharedArenaPool(frontClocks, stream, state, creates, () => {}),
      }
    }
  }
}

/** The objects of a pool server's thread. */
interface Keeping {
  readonly clocks: Clocks
  readonly context: Context
  readonly outside: UnlockedDriver
}

function kept<F extends Front, S extends SharedPoolState<null>>(
  state: S,
  keeping: () => Keeping,
  make: (clocks: Clocks, stream: Stream, state: S, creates: boolean, meanwhile: () => void) => F,
): { readonly server: PoolServer; readonly front: Common['front'] } {
  const { clocks, context, outside } = keeping()
  const shared = new SharedState(state, clocks)
  const onClose = () => {
    clocks.close()
    context.release()
  }
  const server = new PoolServer(shared, clocks, state.config, outside, onClose)
  server['sweptAt'] = Infinity // the program decides when, not the time
  const front = (frontClocks: Clocks, stream: Stream, creates: boolean) => {
    const made = make(frontClocks, stream, state, creates, () => serve(server))
    if (creates && !(made instanceof SharedArenaPool)) made.begin()
    return made
  }
  return { server, front }
}
