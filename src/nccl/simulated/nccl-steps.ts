// The steps that the calls of the simulated NCCL have in common: checks of arguments, results of refusals, submission
// in groups. simulated-nccl.ts has the calls.

import {
  LEAST_VERSION,
  NCCL_RESULT,
  NCCL_SINCE,
  NCCL_TYPES,
  type NcclOp,
  type NcclType,
  versionText,
} from '../constants.js'
import type { NcclCall } from '../nccl.js'
import { opNamed, typeNamed } from './arithmetic.js'
import type { Message } from './batch.js'
import type { Collective, Elements } from './collectives.js'
import { NcclFaults } from './fault-rules.js'
import { SimulatedGroup } from './group.js'
import { Mistakes, NcclMistake, NcclRefusal } from './mistake.js'
import type { SimulatedRank } from './rank.js'
import type { RankQueue, SimulatedDriver } from './rank-device.js'

const DEFAULT_VERSION = 22809

/** Options of the simulated NCCL. */
export interface SimulatedNcclOptions {
  /** such as 22809 for 2.28.9, the default */
  readonly version?: number
  /** false: windows are not supported, and registering one writes 0; default true */
  readonly windows?: boolean
}

/** The arguments that all collectives have, as the calls take them. */
interface CollectiveArguments {
  readonly send: number
  readonly receive: number
  readonly count: number
  readonly type: number
  readonly comm: number
  readonly stream: number
}

/** The communicators of one thread, and the checks with which each call begins. */
export class NcclSteps {
  readonly version: number
  /** calls so far, by function */
  readonly calls = new Map<NcclCall, number>()
  protected readonly hasWindows: boolean
  protected readonly mistakes = new Mistakes()
  protected readonly faults = new NcclFaults()
  protected readonly group = new SimulatedGroup()
  protected readonly ranks = new Map<number, SimulatedRank>()
  /** destroyed and aborted communicators */
  protected readonly ended = new Set<number>()
  protected lastError = ''

  constructor(
    protected readonly driver: SimulatedDriver,
    { version = DEFAULT_VERSION, windows = true }: SimulatedNcclOptions,
  ) {
    if (version < LEAST_VERSION) throw new NcclMistake(`NCCL ${versionText(version)} is not used`)
    this.version = version
    this.hasWindows = windows
  }

  /**
   * Makes a call: the version must have it, and no mistake came before. A rule of `failCall` refuses the call, or calls
   * `onFault`.
   */
  protected call(name: NcclCall, work: () => number | undefined, onFault?: (result: number) => number): number {
    this.mistakes.check()
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1)
    const since = (NCCL_SINCE as Partial<Record<NcclCall, number>>)[name] ?? LEAST_VERSION
    if (this.version < since) {
      throw new NcclMistake(`NCCL ${versionText(this.version)} lacks ${name}, which came with ${versionText(since)}`)
    }
    try {
      const fault = this.faults.next(name)
      if (fault === NCCL_RESULT.ncclSuccess) return work() ?? NCCL_RESULT.ncclSuccess
      if (onFault !== undefined) return onFault(fault)
      throw new NcclRefusal(fault, 'a fault rule of the simulated NCCL')
    } catch (error) {
      if (!(error instanceof NcclRefusal)) throw error
      this.lastError = `${name}: ${error.message}`
      this.group.refuse(error.result)
      return error.result
    }
  }

  /** Submits a collective, at the end of the open group or now. */
  protected collect(
    name: NcclCall,
    { send, receive, count, type, comm, stream }: CollectiveArguments,
    make: (elements: Elements, rank: SimulatedRank) => Collective,
  ): number {
    return this.call(name, () => {
      const rank = this.activeRank(name, comm)
      return rank.failing(() => {
        const collective = make({ send, receive, count: this.count(count), type: this.type(type) }, rank)
        const queue = this.queueOf(rank, stream)
        for (const range of [collective.sends, collective.receives]) rank.registrations.checkUse(name, range)
        this.group.start()
        this.group.batchOf(rank).addCollective(queue, withWindows(collective, rank))
        return this.group.end()
      })
    })
  }

  /** Submits a send or a receive. */
  protected exchange(
    name: 'ncclSend' | 'ncclRecv',
    ptr: number,
    count: number,
    type: number,
    peer: number,
    comm: number,
    stream: number,
  ): number {
    return this.call(name, () => {
      const rank = this.activeRank(name, comm)
      return rank.failing(() => {
        const element = this.type(type)
        const range = { ptr, bytes: this.count(count) * NCCL_TYPES[element].bytes }
        const kind = name === 'ncclSend' ? 'send' : 'receive'
        const message: Message = { kind, peer: this.member(peer, rank), text: `${count} ${element}`, range }
        const queue = this.queueOf(rank, stream)
        rank.registrations.checkUse(name, range)
        this.group.start()
        this.group.batchOf(rank).addMessage(queue, message)
        return this.group.end()
      })
    })
  }

  /** The result of a call that completes once all ranks have made it. */
  protected waits(rank: SimulatedRank): number {
    this.group.start()
    this.group.addWaiting(rank)
    return this.group.end()
  }

  protected end(comm: number, rank: SimulatedRank, how: 'destroyed' | 'aborted'): void {
    this.ranks.delete(comm)
    this.ended.add(comm)
    rank.leave(how)
  }

  protected rankOf(name: string, comm: number): SimulatedRank {
    if (this.ended.has(comm)) this.mistakes.report(`${name}: the communicator was destroyed or aborted before`)
    return this.ranks.get(comm) ?? this.refuse('ncclInvalidArgument', 'there is no such communicator')
  }

  protected readyRank(name: string, comm: number): SimulatedRank {
    const rank = this.rankOf(name, comm)
    rank.checkReady()
    return rank
  }

  protected activeRank(name: string, comm: number): SimulatedRank {
    const rank = this.rankOf(name, comm)
    rank.checkActive()
    return rank
  }

  protected queueOf(rank: SimulatedRank, stream: number): RankQueue {
    const queue = rank.device.isLost ? null : rank.device.queue(stream)
    return (
      queue ?? this.refuse('ncclUnhandledCudaError', `stream ${stream} of device ${rank.device.ordinal} takes no work`)
    )
  }

  protected checkMemoryCall(name: string, rank: SimulatedRank, ptr: number, bytes: number): void {
    if (ptr === 0 || !(bytes > 0)) this.refuse('ncclInvalidArgument', `${bytes} bytes from ${ptr}`)
    if (rank.device.isCapturing) this.mistakes.report(`${name} in a capture of ${rank.name}`)
  }

  protected count(count: number): number {
    return count >= 0 ? count : this.refuse('ncclInvalidArgument', `a count of ${count}`)
  }

  protected type(type: number): NcclType {
    return typeNamed(type) ?? this.refuse('ncclInvalidArgument', `there is no type ${type}`)
  }

  protected op(op: number): NcclOp {
    return opNamed(op) ?? this.refuse('ncclInvalidArgument', `there is no operation ${op}`)
  }

  /** A root or a peer. */
  protected member(number: number, { ranks }: SimulatedRank): number {
    return number >= 0 && number < ranks ? number : this.refuse('ncclInvalidArgument', `no rank ${number} of ${ranks}`)
  }

  protected refuse(result: keyof typeof NCCL_RESULT, fact: string): never {
    throw new NcclRefusal(NCCL_RESULT[result], fact)
  }
}

/** The same collective, with the places of its buffers in windows, which must be the same on all ranks. */
function withWindows(collective: Collective, rank: SimulatedRank): Collective {
  const places = collective.symmetric.map(ptr => rank.registrations.placeInWindow(ptr)).filter(place => place !== '')
  return places.length === 0 ? collective : { ...collective, text: `${collective.text} at ${places.join(' and ')}` }
}
