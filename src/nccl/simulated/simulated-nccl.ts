// NCCL without a GPU: the contract of ../nccl.ts over simulated devices. The ranks of a world are in one thread, in
// several threads or processes; they meet in a folder (world.ts).
//
// Where NCCL leaves a choice, the simulation takes the choice that reveals mistakes. A send waits for its receive, and
// all ranks wait for each other in every collective. A refusal has NCCL's result. A mistake that would hang, corrupt
// memory or crash throws NcclMistake, at the call or from the work, which then ends its context.

import { GiB, MiB } from '../../core/base/bytes.js'
import { NCCL_RESULT, STAT_TOTAL, SUSPEND_MEMORY, UNIQUE_ID_BYTES, versionText } from '../constants.js'
import type { Cell, Nccl } from '../nccl.js'
import * as collectives from './collectives.js'
import type { NcclFaultRule } from './fault-rules.js'
import { NcclSteps, type SimulatedNcclOptions } from './nccl-steps.js'
import { ownMark } from './processes.js'
import { SimulatedRank } from './rank.js'
import { keyOf, type SimulatedDriver } from './rank-device.js'
import { folderOf, makeUniqueId } from './unique-id.js'

/** Device memory that a communicator holds for itself. */
const OWN_BYTES = GiB
const SUSPENDED_BYTES = 16 * MiB
const FIRST_COMMUNICATOR = 0x7b00_0010

/** NCCL on the devices of a simulated driver, for one thread. */
export function openSimulatedNccl(driver: SimulatedDriver, options: SimulatedNcclOptions = {}): SimulatedNccl {
  return new SimulatedNccl(driver, options)
}

/** The functions of NCCL, and controls for tests. */
export class SimulatedNccl extends NcclSteps implements Nccl {
  /** true: no GPU is behind it */
  readonly simulated = true

  get origin(): string {
    return `NCCL ${versionText(this.version)}, simulated on ${this.driver.origin}`
  }

  /** Makes a call fail; rules add up. */
  failCall(rule: NcclFaultRule): void {
    this.faults.add(rule)
  }

  /** Ends all rules of `failCall`. */
  clearFaults(): void {
    this.faults.clear()
  }

  /** Registered memory of all communicators, and windows, for leak checks. */
  get registered(): number {
    return [...this.ranks.values()].reduce((sum, rank) => sum + rank.registrations.count, 0)
  }

  // Communicators and groups

  ncclGetErrorString(result: number): string {
    return Object.entries(NCCL_RESULT).find(([, value]) => value === result)?.[0] ?? `unknown result ${result}`
  }

  ncclGetLastError(_comm: number): string {
    return this.lastError
  }

  ncclGetUniqueId(id: Uint8Array): number {
    return this.call('ncclGetUniqueId', () => {
      makeUniqueId(id)
    })
  }

  ncclCommInitRankConfig(comm: Cell, ranks: number, id: Uint8Array, rank: number): number {
    return this.call('ncclCommInitRankConfig', () => {
      if (!(ranks >= 1 && rank >= 0 && rank < ranks)) this.refuse('ncclInvalidArgument', `rank ${rank} of ${ranks}`)
      const folder = id.length < UNIQUE_ID_BYTES ? null : folderOf(id)
      if (folder === null) return this.refuse('ncclInvalidArgument', 'the bytes are no id of a communicator')
      const device = this.driver.libraryDevice()
      if (device === null) return this.refuse('ncclUnhandledCudaError', 'no context is current')
      const made = new SimulatedRank(folder, rank, ranks, device, this.version, this.mistakes)
      comm.value = FIRST_COMMUNICATOR + 16 * (this.ranks.size + this.ended.size)
      this.ranks.set(comm.value, made)
      made.join({ ...ownMark(), ranks, device: keyOf(this.driver, device) })
      return this.waits(made)
    })
  }

  ncclCommGetAsyncError(comm: number, state: Cell): number {
    return this.call(
      'ncclCommGetAsyncError',
      () => {
        const rank = this.rankOf('ncclCommGetAsyncError', comm)
        state.value = rank.poll()
        if (rank.failureText !== '') this.lastError = rank.failureText
        return NCCL_RESULT.ncclSuccess
      },
      fault => {
        state.value = fault
        return NCCL_RESULT.ncclSuccess
      },
    )
  }

  ncclCommFinalize(comm: number): number {
    return this.call('ncclCommFinalize', () => {
      const rank = this.readyRank('ncclCommFinalize', comm)
      if (rank.isFinalized) this.refuse('ncclInvalidArgument', 'the communicator was finalized before')
      rank.isFinalized = true
      rank.together('ncclCommFinalize', () => {})
      return this.waits(rank)
    })
  }

  /** Waits on the host for the work of the communicator. */
  ncclCommDestroy(comm: number): number {
    return this.call('ncclCommDestroy', () => {
      const rank = this.readyRank('ncclCommDestroy', comm)
      rank.finishWork()
      this.end(comm, rank, 'destroyed')
    })
  }

  ncclCommAbort(comm: number): number {
    return this.call('ncclCommAbort', () => {
      this.end(comm, this.rankOf('ncclCommAbort', comm), 'aborted')
    })
  }

  ncclGroupStart(): number {
    return this.call('ncclGroupStart', () => {
      this.group.start()
    })
  }

  ncclGroupEnd(): number {
    return this.call(
      'ncclGroupEnd',
      () => this.group.end(),
      fault => {
        this.group.refuse(fault)
        return this.group.end()
      },
    )
  }

  // Collectives and messages

  ncclAllReduce(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    comm: number,
    stream: number,
  ): number {
    return this.collect('ncclAllReduce', { send, receive, count, type, comm, stream }, elements =>
      collectives.allReduce(elements, this.op(op)),
    )
  }

  ncclReduce(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    root: number,
    comm: number,
    stream: number,
  ): number {
    return this.collect('ncclReduce', { send, receive, count, type, comm, stream }, (elements, rank) =>
      collectives.reduceTo(elements, this.op(op), this.member(root, rank), rank),
    )
  }

  ncclReduceScatter(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    comm: number,
    stream: number,
  ): number {
    return this.collect('ncclReduceScatter', { send, receive, count, type, comm, stream }, (elements, rank) =>
      collectives.reduceScatter(elements, this.op(op), rank),
    )
  }

  ncclAllGather(send: number, receive: number, count: number, type: number, comm: number, stream: number): number {
    return this.collect('ncclAllGather', { send, receive, count, type, comm, stream }, collectives.allGather)
  }

  ncclBroadcast(
    send: number,
    receive: number,
    count: number,
    type: number,
    root: number,
    comm: number,
    stream: number,
  ): number {
    return this.collect('ncclBroadcast', { send, receive, count, type, comm, stream }, (elements, rank) =>
      collectives.broadcast(elements, this.member(root, rank), rank),
    )
  }

  ncclAlltoAll(send: number, receive: number, count: number, type: number, comm: number, stream: number): number {
    return this.collect('ncclAlltoAll', { send, receive, count, type, comm, stream }, collectives.allToAll)
  }

  ncclSend(send: number, count: number, type: number, peer: number, comm: number, stream: number): number {
    return this.exchange('ncclSend', send, count, type, peer, comm, stream)
  }

  ncclRecv(receive: number, count: number, type: number, peer: number, comm: number, stream: number): number {
    return this.exchange('ncclRecv', receive, count, type, peer, comm, stream)
  }

  // Registered memory, windows, and memory of NCCL's own

  ncclCommRegister(comm: number, ptr: number, bytes: number, handle: Cell): number {
    return this.call('ncclCommRegister', () => {
      const rank = this.rankOf('ncclCommRegister', comm)
      if (!rank.hasJoined) rank.checkReady()
      this.checkMemoryCall('ncclCommRegister', rank, ptr, bytes)
      handle.value = rank.registrations.register(ptr, bytes)
    })
  }

  ncclCommDeregister(comm: number, handle: number): number {
    return this.call('ncclCommDeregister', () => {
      this.rankOf('ncclCommDeregister', comm).registrations.remove('ncclCommDeregister', 'segment', handle)
    })
  }

  ncclCommWindowRegister(comm: number, ptr: number, bytes: number, window: Cell, flags: number): number {
    return this.call('ncclCommWindowRegister', () => {
      const rank = this.activeRank('ncclCommWindowRegister', comm)
      this.checkMemoryCall('ncclCommWindowRegister', rank, ptr, bytes)
      window.value = 0
      if (!this.hasWindows) return NCCL_RESULT.ncclSuccess
      const refusal = rank.registrations.windowRefusal(ptr, bytes)
      if (refusal !== null)
        return rank.failing(() => {
          throw refusal
        })
      rank.together(`ncclCommWindowRegister of ${bytes} bytes with flags ${flags}`, () => {
        window.value = rank.registrations.openWindow(ptr, bytes)
      })
      return this.waits(rank)
    })
  }

  ncclCommWindowDeregister(comm: number, window: number): number {
    return this.call('ncclCommWindowDeregister', () => {
      const { registrations } = this.rankOf('ncclCommWindowDeregister', comm)
      if (window !== 0) registrations.remove('ncclCommWindowDeregister', 'window', window)
    })
  }

  ncclCommSuspend(comm: number, flags: number): number {
    return this.call('ncclCommSuspend', () => {
      const rank = this.activeRank('ncclCommSuspend', comm)
      if (flags !== SUSPEND_MEMORY) this.refuse('ncclInvalidArgument', `there are no flags ${flags}`)
      rank.together('ncclCommSuspend', () => {
        rank.isSuspended = true
      })
      return this.waits(rank)
    })
  }

  ncclCommResume(comm: number): number {
    return this.call('ncclCommResume', () => {
      const rank = this.readyRank('ncclCommResume', comm)
      if (!rank.isSuspended) this.refuse('ncclInvalidUsage', 'the communicator is not suspended')
      rank.together('ncclCommResume', () => {
        rank.isSuspended = false
      })
      return this.waits(rank)
    })
  }

  ncclCommMemStats(comm: number, stat: number, value: Cell): number {
    return this.call('ncclCommMemStats', () => {
      const { isSuspended } = this.readyRank('ncclCommMemStats', comm)
      if (stat !== STAT_TOTAL) this.refuse('ncclInvalidArgument', `there is no figure ${stat}`)
      value.value = isSuspended ? SUSPENDED_BYTES : OWN_BYTES
    })
  }
}
