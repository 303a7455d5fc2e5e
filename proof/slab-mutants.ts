// Rules of slabs, whose rest serves further small blocks, and of counters.

import type { SegregatedFit } from '../src/core/heap/segregated-fit.js'
import { VirtualBacking } from '../src/core/pool/backing/virtual-backing.js'
import type { Block } from '../src/core/pool/caching/block.js'
import { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { FreeMemory } from '../src/core/pool/caching/central/free-memory.js'
import type { Miss } from '../src/core/pool/caching/central/parts.js'
import { Steps } from '../src/core/pool/caching/central/steps.js'
import { replace, replacePrivate, replaceWithin } from './replace-method.js'

const KINDS = ['slabs'] as const
type TakeInSlab = (miss: Miss, slab: number, key: number, stamp: number) => number

export const SLAB_MUTANTS = {
  'the rest of a new slab keeps the dependency of old memory': {
    broken: 'the rest of a slab of old and new memory serves any stream at once',
    kinds: KINDS,
    break: () => breakRest('inNewSlab', take => (miss, slab) => take(miss, slab, 0, 0)),
  },
  'a grown block keeps the dependency of old memory': {
    broken: 'a block of old and new memory counts as unused',
    kinds: KINDS,
    break: () =>
      replace(
        VirtualBacking.prototype,
        'grow',
        original =>
          function (this: VirtualBacking, heap: SegregatedFit, ...request): number {
            const record = original.call(this, heap, ...request)
            if (record !== 0) heap.records.setDependency(record, 0, 0)
            return record
          },
      ),
  },
  "the rest of a slab in another stream's memory waits for a mark to come": {
    broken: "the rest of a slab in another stream's memory waits for the last mark of the stream that got it",
    kinds: KINDS,
    break: () => breakRest('inSlab', take => (miss, slab, key, stamp) => take(miss, slab, key, stamp - 1)),
  },
  "the rest of a slab in another stream's memory settles": {
    broken: "the rest of a slab in another stream's memory is never awaited",
    kinds: KINDS,
    break: () => replaceWithin(Steps.prototype, 'takeInSlab', FreeMemory.prototype, 'await', () => () => {}),
  },
  'each allocation is counted': {
    broken: 'an allocation with 77 bytes of slack is not counted',
    kinds: KINDS,
    break: () =>
      replacePrivate(
        CachingPool.prototype,
        'handOut',
        original =>
          function (this: CachingPool, block: Block, slack: number, stream: unknown): unknown {
            if (slack === 77) this['allocations']--
            return Reflect.apply(original, this, [block, slack, stream])
          },
      ),
  },
} as const

/** Breaks the call in a step that gives the rest of a slab to the heap for small blocks. */
function breakRest(step: 'inSlab' | 'inNewSlab', make: (take: TakeInSlab) => TakeInSlab): () => void {
  return replaceWithin(
    Steps.prototype,
    step,
    Steps.prototype,
    'takeInSlab',
    original =>
      function (this: Steps, ...request: Parameters<TakeInSlab>): number {
        return make((...given) => Reflect.apply(original, this, given) as number)(...request)
      },
  )
}
