// Rules of shared pools.

import { slotOfKey } from '../src/core/heap/key.js'
import type { Block } from '../src/core/pool/caching/block.js'
import { Deferred, type Use } from '../src/core/pool/caching/central/deferred.js'
import { PoolServer } from '../src/core/pool/shared/pool-server.js'
import { ThreadCache } from '../src/core/pool/shared/thread-cache.js'
import { replace, replacePrivate } from './replace-method.js'

export const SHARED_MUTANTS = {
  'a passed block has the key of its stream': {
    broken: "a block that a thread has cached for another stream keeps that stream's key",
    kinds: ['shared-caching'],
    break: () =>
      replace(
        ThreadCache.prototype,
        'claimFor',
        () =>
          function (this: ThreadCache, block: Block): boolean {
            return this.claim(block)
          },
      ),
  },
  'a drained block keeps its stamp': {
    broken: 'a block taken from the cache of a thread that has ended depends on nothing',
    kinds: ['shared-caching'],
    break: () =>
      replacePrivate(
        PoolServer.prototype,
        'giveToHeap',
        () =>
          function (this: PoolServer, record: number): void {
            const { records, memory } = this['state']
            memory.giveToHeap(record, slotOfKey(records.keyOf(record)), 0)
          },
      ),
  },
  'each announced use is waited for': {
    broken: 'one of the streams that use a block is not waited for',
    kinds: ['shared-caching'],
    break: () =>
      replacePrivate(
        Deferred.prototype,
        'usesOf',
        original =>
          function (this: Deferred, record: number): Use[] {
            return (Reflect.apply(original, this, [record]) as Use[]).slice(1)
          },
      ),
  },
} as const
