// Rules of memory that is mapped in views.

import type { SimulatedDevice } from '../src/core/driver/simulated/device.js'
import { VirtualMemory } from '../src/core/driver/simulated/memory/virtual-memory.js'
import { partsOf } from '../src/core/heap/lent-parts.js'
import { Word } from '../src/core/heap/records.js'
import type { SegregatedFit } from '../src/core/heap/segregated-fit.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { FIRST_VIEW_RANGE } from '../src/core/pool/backing/backing.js'
import { ViewUses } from '../src/core/pool/backing/pieces/last-uses.js'
import type { Piece } from '../src/core/pool/backing/pieces/piece.js'
import type { StitchPlan } from '../src/core/pool/backing/pieces/stitch-plan.js'
import { Views } from '../src/core/pool/backing/pieces/views.js'
import { VirtualBacking } from '../src/core/pool/backing/virtual-backing.js'
import { FreeMemory } from '../src/core/pool/caching/central/free-memory.js'
import { replace, replacePrivate } from './replace-method.js'

/** By key: admits every free block. */
const ALL = new Float64Array(MOST_STREAMS + 1).fill(Infinity)

/** Gives access to views to some of the devices only. Breaks the device, since the proof's drivers keep their calls. */
function giveAccessTo(chosen: (devices: readonly SimulatedDevice[]) => readonly SimulatedDevice[]): () => void {
  let isOfView = false
  const restoreAccess = replace(
    VirtualMemory.prototype,
    'setAccess',
    original =>
      function (this: VirtualMemory, ptr, bytes, devices, flags) {
        const left = isOfView ? chosen(devices) : devices
        if (left.length > 0) original.call(this, ptr, bytes, left, flags)
      },
  )
  return replace(
    Views.prototype,
    'map',
    original =>
      function (this: Views, pieces: readonly Piece[]) {
        isOfView = true
        try {
          return original.call(this, pieces)
        } finally {
          isOfView = false
        }
      },
    restoreAccess,
  )
}

/** Gives blocks in views back by `broken`, where `giveBack` does the rest, with another key and stamp if given. */
function breakGivingBack(
  broken: (memory: FreeMemory, record: number, giveBack: (key?: number, stamp?: number) => void) => void,
): () => void {
  return replace(
    FreeMemory.prototype,
    'giveBack',
    original =>
      function (this: FreeMemory, record: number, key: number, stamp: number): SegregatedFit {
        const giveBack = (newKey = key, newStamp = stamp) => original.call(this, record, newKey, newStamp)
        const isInView = this.hasSlabs && this.records.rangeOf(record) >= FIRST_VIEW_RANGE
        if (!isInView) return giveBack()
        broken(this, record, giveBack)
        return this.large
      },
  )
}

/** The pools with views. */
const BOTH = ['views', 'shared-views'] as const

export const VIEW_MUTANTS = {
  'a piece is in a view once': {
    broken: 'a piece that is free at both ends is joined with itself',
    kinds: BOTH,
    break: () =>
      replacePrivate(
        VirtualBacking.prototype,
        'planWithRoom',
        original =>
          function (this: VirtualBacking, ...request: number[]): StitchPlan | null {
            const plan = Reflect.apply(original, this, request) as StitchPlan | null
            const enough = request[0] + request[1] - 1
            const same = this['home'].pieces.find(({ endFree, startFree }) => endFree + startFree >= enough)
            return plan === null || same === undefined ? plan : { pieces: [same, same], newUnits: 0 }
          },
      ),
  },
  'the last uses of parts are compared': {
    broken: 'free memory is joined in a view whatever it waits for',
    kinds: BOTH,
    break: () =>
      replacePrivate(
        VirtualBacking.prototype,
        'findFreeEnds',
        original =>
          function (this: VirtualBacking): void {
            Reflect.apply(original, this, [ALL])
          },
      ),
  },
  'a block in a view gives all its parts back': {
    broken: 'the last part of a block in a view stays taken',
    kinds: BOTH,
    break: () =>
      breakGivingBack(({ records }, record, giveBack) => {
        const before = partsOf(records, record).at(-2) ?? record
        records.words[(before << 4) | Word.binNext] = 0
        giveBack()
      }),
  },
  'parts keep the dependency of their block': {
    broken: 'the parts of a freed block in a view depend on nothing',
    kinds: BOTH,
    break: () => breakGivingBack((_memory, _record, giveBack) => giveBack(0, 0)),
  },
  'a view remembers its last use': {
    broken: 'a view is unmapped though its last use is not known to be complete',
    kinds: BOTH,
    break: () => replace(ViewUses.prototype, 'isSettled', () => () => true),
  },
  'a view with a block stays': {
    broken: 'a view is unmapped though it has a block',
    kinds: BOTH,
    break: () =>
      replace(
        Views.prototype,
        'isIdle',
        () =>
          function (this: Views, view): boolean {
            return this['uses'].isSettled(view.number)
          },
      ),
  },
  'a view is accessible': {
    broken: 'a view is mapped without access to it',
    kinds: BOTH,
    break: () => giveAccessTo(() => []),
  },
  'a view is accessible to peers': {
    broken: 'other devices with access to a pool have none to its views',
    kinds: ['views'], // a shared pool refuses `setAccess`, so it has no peers,
    break: () => giveAccessTo(devices => devices.slice(0, 1)),
  },
} as const
