// Random programs of communicators: pools that grow, shrink, sleep and wake, registrations, collectives, symmetric
// arenas, captures, and the end of communicators in any order. A shadow has the contents; the simulated NCCL and the
// simulated devices report mistakes by themselves. With faults, NCCL or the driver refuses a call of some steps.

import assert from 'node:assert/strict'
import { CudaError, OutOfMemoryError, PoolError } from '../core/base/errors.js'
import type { Graph } from '../core/order/graph.js'
import type { Stream } from '../core/order/stream.js'
import { Communicator } from './communicator.js'
import { CommunicatorError } from './communicator-error.js'
import type { NcclCall } from './nccl.js'
import { signal } from './random-memory.fixture.js'
import { RandomRanks, type Ranks } from './random-ranks.fixture.js'
import { type Family, type RandomCall, randomCall } from './shadow.fixture.js'

/** Weights of the steps. */
export const STEP_WEIGHTS = {
  allocate: 14,
  free: 8,
  fill: 10,
  collect: 30,
  collectAndFree: 8,
  compare: 4,
  hold: 8,
  trim: 6,
  limit: 3,
  replaceStream: 2,
  sleep: 4,
  wake: 12,
  register: 6,
  deregister: 2,
  openArena: 3,
  allocateInArena: 4,
  resetArena: 2,
  compareOffsets: 2,
  closeArena: 1,
  join: 8,
  finish: 2,
  close: 1,
  abort: 1,
  capture: 6,
  launch: 12,
  closeGraph: 3,
}
type Step = keyof typeof STEP_WEIGHTS

interface Captured {
  readonly graph: Graph<undefined>
  readonly calls: readonly RandomCall[]
}

const NCCL_CALLS: readonly NcclCall[] = [
  'ncclGetUniqueId',
  'ncclCommInitRankConfig',
  'ncclCommGetAsyncError',
  'ncclGroupStart',
  'ncclGroupEnd',
  'ncclAllReduce',
  'ncclReduceScatter',
  'ncclAllGather',
  'ncclBroadcast',
  'ncclSend',
  'ncclRecv',
  'ncclCommRegister',
  'ncclCommDeregister',
  'ncclCommWindowRegister',
  'ncclCommWindowDeregister',
  'ncclCommFinalize',
  'ncclCommDestroy',
]

/** Whether an error is one that programs are promised. */
function isTyped(error: unknown): boolean {
  return [CommunicatorError, CudaError, OutOfMemoryError, PoolError].some(kind => error instanceof kind)
}

export class RandomProgram extends RandomRanks {
  private readonly graphs: Captured[] = []

  constructor(seed: number, ranks: number, hasFaults = false) {
    super(seed, ranks, hasFaults)
  }

  async run(steps: number): Promise<void> {
    const choices = Object.entries(STEP_WEIGHTS).flatMap(([step, weight]) => Array<Step>(weight).fill(step as Step))
    await this.join()
    for (let count = 0; count < steps; count++) {
      const step = choices[this.random.below(choices.length)]
      this.note(step)
      await this.attempt(step)
      this.check(`step ${count}, ${step}`)
    }
    await this.end()
    this.world[Symbol.dispose]() // not after a failure, which an error of the end would hide
  }

  /** Runs a step, which a refused call may end. */
  private async attempt(step: Step): Promise<void> {
    if (this.hasFaults && this.random.below(3) === 0) this.refuse()
    try {
      await this[step]()
    } catch (error) {
      if (error instanceof OutOfMemoryError) this.note('ranOut')
      else if (this.hasFaults && isTyped(error)) this.note('refused')
      else throw error
      if (this.hasFaults) this.recover()
    }
    this.clearFaults()
    if (this.hasFaults) this.abortFailed()
  }

  /** Makes a call of NCCL or of the driver fail in the next step. */
  private refuse(): void {
    const nth = this.random.logUniform(1, 12)
    if (this.random.below(2) === 0) this.world.driver.failCall({ call: '*', nth, code: 1 + this.random.below(2) })
    else {
      const call = NCCL_CALLS[this.random.below(NCCL_CALLS.length)]
      this.world.nccl.failCall({ call, nth: Math.min(nth, 4), result: [2, 3, 6][this.random.below(3)] })
    }
  }

  /** After an error: what it left is undone, and the rest is whole. */
  private recover(): void {
    this.clearFaults()
    this.abortFailed()
    this.synchronize()
    for (const family of this.families) if (!this.isAsleep(family)) family.compare('after a refused call')
  }

  /** Nothing is registered but what is open. */
  private check(message: string): void {
    for (const { registrable, virtual } of this.pools) for (const pool of [registrable, virtual]) pool.check()
    const open = this.opened.flatMap(({ isRegistered, arenas }) =>
      this.pools.map(({ registrable }) => arenas.length + (isRegistered ? registrable.segments().length : 0)),
    )
    const waiting = this.opened.flatMap(({ comms, isRegistered }) =>
      comms.map((comm, rank) =>
        isRegistered ? this.pools[rank].registrable.segments().length - comm.stats().registeredSegments : 0,
      ),
    )
    const sum = (numbers: number[]) => numbers.reduce((all, each) => all + each, 0)
    assert.equal(this.world.nccl.registered, sum(open) - sum(waiting), message)
    if (this.ranks > 1) assert.equal(sum(waiting), 0, message)
  }

  // Sleep

  /** Puts a virtual pool to sleep, and tries a collective on it meanwhile. A registrable pool stays awake. */
  private async sleep(): Promise<void> {
    const rank = this.random.below(this.ranks)
    const { virtual, registrable } = this.pools[rank]
    if (virtual.asleep) return
    this.releaseHolds()
    await assert.rejects(registrable.sleep(), PoolError)
    const used = this.anyFamily(({ home }) => home === 'virtual')
    const isKept = this.families.some(({ home, graphs }) => home === 'virtual' && graphs > 0)
    const sleeping = virtual.sleep()
    if (isKept) {
      await assert.rejects(sleeping, { name: 'PoolError', message: /a communicator or a graph/ })
      return this.note('keptAwake')
    }
    const ranks = this.anyRanks()
    const settled = Promise.allSettled([sleeping])
    if (used !== null && ranks !== null && virtual.asleep) {
      assert.throws(() => ranks.comms[rank].allReduce(used.view(rank), used.view(rank)), { name: 'PoolError' })
      this.note('refusedAsleep')
    }
    await settled
    await sleeping
  }

  private async wake(): Promise<void> {
    for (const { virtual } of this.pools) if (virtual.asleep) await virtual.wake()
  }

  // Collectives

  private collect(): void {
    const ranks = this.anyRanks()
    if (ranks !== null) this.begin(ranks)
  }

  /** Memory is freed and given again at once, while the collective may still use it on other streams. */
  private collectAndFree(): void {
    const ranks = this.anyRanks()
    for (let count = 0; count < 3; count++) this.hold()
    const calls = ranks === null ? [] : this.begin(ranks, true)
    for (const { target } of calls) {
      this.release(target)
      const { home, arrays } = target
      const [{ length }] = arrays
      const allocate = (rank: number) => this.poolOf(rank, home).allocateArray(Uint32Array, length, arrays[rank].stream)
      this.make(home, length, allocate)
    }
    for (const { source } of calls) if (this.families.includes(source)) this.release(source)
  }

  /** Makes one or two calls on all ranks, on any streams. Other work on the arrays comes after them, unless they go. */
  private begin(ranks: Ranks, willGo = false): RandomCall[] {
    const mayGo = ({ graphs, home }: Family) => graphs === 0 && typeof home === 'string'
    const calls = this.randomCalls(1 + this.random.below(2), family => !willGo || mayGo(family))
    const uses = calls.flatMap(call => [...call.uses])
    const streams = this.world.devices.map((_, rank) => this.anyStream(rank))
    for (const family of uses) family.isBusy = true
    try {
      if (this.random.below(4) > 0) this.order(uses, streams)
      try {
        this.submit(ranks, calls, streams)
      } catch (error) {
        if ((error as PoolError).code !== 'ERR_STREAM_ORDER') throw error
        this.note('unordered')
        this.order(uses, streams)
        this.submit(ranks, calls, streams)
      }
      if (!willGo) this.order(uses, streams, true)
    } catch (error) {
      for (const { target } of calls) target.forget()
      throw error
    }
    for (const call of calls) {
      call.apply()
      this.note(call.name)
    }
    return calls
  }

  private submit({ comms }: Ranks, calls: readonly RandomCall[], streams: readonly Stream[]): void {
    Communicator.group(() => {
      for (const [rank, comm] of comms.entries()) for (const call of calls) call.run(comm, rank, streams[rank])
    })
  }

  /** Lets `streams` wait for the arrays' own, or the other way round. */
  private order(families: readonly Family[], streams: readonly Stream[], isAfter = false): void {
    for (const { arrays } of families) {
      for (const [rank, { stream }] of arrays.entries()) {
        if (isAfter) signal(streams[rank], stream)
        else signal(stream, streams[rank])
      }
    }
  }

  /** Calls that use different families, since NCCL runs them at the same time. */
  private randomCalls(most: number, isWanted: (family: Family) => boolean = () => true): RandomCall[] {
    const left = this.families.filter(family => !this.isAsleep(family) && isWanted(family))
    const calls: RandomCall[] = []
    while (left.length > 0 && calls.length < most) {
      const source = this.takeAny(left)
      const target = left.length > 0 && this.random.below(3) > 0 ? this.takeAny(left) : source
      calls.push(randomCall(this.random, this.ranks, source, target))
    }
    return calls
  }

  private takeAny(families: Family[]): Family {
    return families.splice(this.random.below(families.length), 1)[0]
  }

  // Captures, of one rank a thread

  private capture(): void {
    const ranks = this.anyRanks()
    if (this.ranks > 1 || ranks === null || this.graphs.length === 3) return
    const [device] = this.world.devices
    const stream = device.createStream()
    const calls = this.randomCalls(2)
    device.synchronize()
    stream.beginCapture()
    try {
      Communicator.group(() => {
        for (const call of calls) call.run(ranks.comms[0], 0, stream)
      })
      if (this.random.below(2) === 0) this.allocate()
      this.graphs.push({ graph: stream.endCapture(), calls })
      for (const call of calls) for (const family of call.uses) family.graphs++
    } catch (error) {
      this.clearFaults()
      if (stream.capture !== null) stream.abortCapture()
      throw error
    } finally {
      stream.close()
    }
  }

  private launch(): void {
    if (this.graphs.length === 0 || this.pools[0].virtual.asleep) return // the graph may have seen its addresses
    const { graph, calls } = this.graphs[this.random.below(this.graphs.length)]
    const uses = calls.flatMap(call => [...call.uses])
    const stream = this.anyStream(0)
    for (const family of uses) family.isBusy = true
    try {
      this.order(uses, [stream])
      graph.launch(stream)
      this.order(uses, [stream], true)
    } catch (error) {
      for (const { target } of calls) target.forget()
      throw error
    }
    for (const call of calls) call.apply()
    this.note('launched')
  }

  private closeGraph(): void {
    const [captured] = this.graphs.splice(0, 1)
    if (captured === undefined) return
    for (const call of captured.calls) for (const family of call.uses) family.graphs--
    captured.graph.close()
  }

  protected closeGraphs(): void {
    while (this.graphs.length > 0) this.closeGraph()
  }

  // The end

  /** A refused call of an earlier step may have left a rank that can only be aborted. */
  private async closeOrAbort(): Promise<void> {
    try {
      await this.close()
    } catch (error) {
      if (!this.hasFaults || !isTyped(error)) throw error
    }
  }

  /** Ends the program in one of several ways. */
  private async end(): Promise<void> {
    this.releaseHolds()
    this.closeGraphs()
    await this.wake().catch(error => {
      if (!(error instanceof OutOfMemoryError)) throw error // the registrable pool may have the room by now
    })
    const message = `at the end of seed ${this.seed}`
    for (const family of this.families) if (!this.isAsleep(family)) family.compare(message)
    this.synchronize()
    const way = this.random.below(4)
    this.note(`end ${way}`)
    if (way === 0) for (const device of this.world.devices) device.close()
    if (way === 1) for (const pool of this.pools) for (const each of Object.values(pool)) each.close()
    if (way === 2) while (this.opened.length > 0) await this.closeOrAbort()
    for (const ranks of [...this.opened]) this.abortAll(ranks)
    assert.equal(this.world.nccl.registered, 0, message)
  }
}
