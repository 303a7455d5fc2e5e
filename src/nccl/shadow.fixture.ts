// Arrays of all ranks with a shadow of their contents, and random collectives that change both, for random programs.

import assert from 'node:assert/strict'
import type { Random } from '../core/base/random.js'
import type { Stream } from '../core/order/stream.js'
import type { DeviceArray } from '../core/pool/array.js'
import type { Communicator } from './communicator.js'
import type { NcclOp } from './constants.js'

/** Elements that calls use of each array; 1, 2 and 3 ranks have equal parts of them. */
export const CELLS = 6

/** An array on each rank, and the contents that it must have. */
export class Family {
  /** by rank: the elements, or null while they are undefined */
  readonly values: (number[] | null)[]
  /** a collective has used it since the host last waited */
  isBusy = false
  /** graphs that use it */
  graphs = 0

  constructor(
    /** where its memory comes from */
    readonly home: unknown,
    /** by rank */
    readonly arrays: readonly DeviceArray<Uint32Array>[],
    /** the first element that calls use */
    private readonly offset: number,
  ) {
    this.values = arrays.map(() => null)
  }

  /** The elements that calls use on a rank. */
  view(rank: number): DeviceArray<Uint32Array> {
    return this.arrays[rank].subarray(this.offset, this.offset + CELLS)
  }

  write(rank: number, values: number[]): void {
    this.values[rank] = null
    this.arrays[rank].write(Uint32Array.from(values), this.offset)
    this.values[rank] = values
  }

  /** The contents are undefined from now on. */
  forget(): void {
    this.values.fill(null)
  }

  /** Waits for the work on the arrays, and compares them with the shadow; returns how many were known. */
  compare(message: string): number {
    for (const [rank, values] of this.values.entries()) {
      if (values !== null) assert.deepEqual([...this.view(rank).readSync()], values, `rank ${rank}, ${message}`)
    }
    this.isBusy = false
    return this.values.filter(values => values !== null).length
  }
}

/** Elements that a call writes on a rank, from `at` on; null for none. */
type Written = { readonly at: number; readonly values: readonly number[] } | null

/** A collective of all ranks. */
export class RandomCall {
  constructor(
    readonly name: string,
    readonly source: Family,
    readonly target: Family,
    readonly run: (comm: Communicator, rank: number, stream: Stream | undefined) => void,
    private readonly written: (sent: readonly number[][], rank: number) => Written,
  ) {}

  get uses(): Set<Family> {
    return new Set([this.source, this.target])
  }

  /** Changes the shadow in the same way. */
  apply(): void {
    const { source, target } = this
    const sent = source.values.map(values => values?.slice() ?? null)
    const isKnown = sent.every(values => values !== null)
    for (const [rank, old] of target.values.entries()) {
      const written = isKnown ? this.written(sent, rank) : { at: 0, values: [] }
      if (written === null) continue
      const { at, values } = written
      if (values.length === CELLS) target.values[rank] = [...values]
      else if (!isKnown || old === null) target.values[rank] = null
      else target.values[rank] = [...old.slice(0, at), ...values, ...old.slice(at + values.length)]
    }
  }
}

const OPS: Partial<Record<NcclOp, (a: number, b: number) => number>> = {
  sum: (a, b) => (a + b) >>> 0,
  prod: (a, b) => Math.imul(a, b) >>> 0,
  max: Math.max,
  min: Math.min,
}

/** A collective from `source` to `target`; in place if they are the same. */
export function randomCall(random: Random, ranks: number, source: Family, target: Family): RandomCall {
  const makers = source === target ? IN_PLACE : APART
  return makers[random.below(makers.length)](random, ranks, source, target)
}

type Maker = (random: Random, ranks: number, source: Family, target: Family) => RandomCall

const allReduce: Maker = (random, _ranks, source, target) => {
  const [op, combine] = anyOp(random)
  return new RandomCall(
    'allReduce',
    source,
    target,
    (comm, rank, stream) => comm.allReduce(source.view(rank), target.view(rank), { op, stream }),
    sent => ({ at: 0, values: reduced(sent, combine) }),
  )
}

const reduce: Maker = (random, ranks, source, target) => {
  const [op, combine] = anyOp(random)
  const root = random.below(ranks)
  return new RandomCall(
    'reduce',
    source,
    target,
    (comm, rank, stream) => comm.reduce(source.view(rank), target.view(rank), { op, root, stream }),
    (sent, rank) => (rank === root ? { at: 0, values: reduced(sent, combine) } : null),
  )
}

/** Each rank gets its part of the result, where that part is if it is in place. */
const reduceScatter: Maker = (random, ranks, source, target) => {
  const [op, combine] = anyOp(random)
  const share = CELLS / ranks
  const at = (rank: number) => (source === target ? rank * share : 0)
  return new RandomCall(
    'reduceScatter',
    source,
    target,
    (comm, rank, stream) =>
      comm.reduceScatter(source.view(rank), target.view(rank).subarray(at(rank), at(rank) + share), { op, stream }),
    (sent, rank) => ({ at: at(rank), values: reduced(sent, combine).slice(rank * share, (rank + 1) * share) }),
  )
}

const allGather: Maker = (_random, ranks, source, target) => {
  const share = CELLS / ranks
  const at = (rank: number) => (source === target ? rank * share : 0)
  return new RandomCall(
    'allGather',
    source,
    target,
    (comm, rank, stream) =>
      comm.allGather(source.view(rank).subarray(at(rank), at(rank) + share), target.view(rank), { stream }),
    sent => ({ at: 0, values: sent.flatMap((values, rank) => values.slice(at(rank), at(rank) + share)) }),
  )
}

const broadcast: Maker = (random, ranks, _source, target) => {
  const root = random.below(ranks)
  return new RandomCall(
    'broadcast',
    target,
    target,
    (comm, rank, stream) => comm.broadcast(target.view(rank), { root, stream }),
    sent => ({ at: 0, values: sent[root] }),
  )
}

const allToAll: Maker = (_random, ranks, source, target) => {
  const share = CELLS / ranks
  return new RandomCall(
    'allToAll',
    source,
    target,
    (comm, rank, stream) => comm.allToAll(source.view(rank), target.view(rank), { stream }),
    (sent, rank) => ({ at: 0, values: sent.flatMap(values => values.slice(rank * share, (rank + 1) * share)) }),
  )
}

/** Each rank sends to the next. */
const ring: Maker = (_random, ranks, source, target) =>
  new RandomCall(
    'ring',
    source,
    target,
    (comm, rank, stream) => {
      comm.send(source.view(rank), { to: (rank + 1) % ranks, stream })
      comm.receive(target.view(rank), { from: (rank + ranks - 1) % ranks, stream })
    },
    (sent, rank) => ({ at: 0, values: sent[(rank + ranks - 1) % ranks] }),
  )

const IN_PLACE: readonly Maker[] = [allReduce, reduce, reduceScatter, allGather, broadcast]
const APART: readonly Maker[] = [...IN_PLACE, allToAll, ring]

function anyOp(random: Random): [op: NcclOp, combine: (a: number, b: number) => number] {
  const ops = Object.entries(OPS)
  const [op, combine] = ops[random.below(ops.length)]
  return [op as NcclOp, combine]
}

function reduced(sent: readonly number[][], combine: (a: number, b: number) => number): number[] {
  return sent[0].map((first, cell) => sent.slice(1).reduce((sum, values) => combine(sum, values[cell]), first))
}
