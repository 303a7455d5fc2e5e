// The collectives of a communicator. Each is checked, and then a call of NCCL on a stream. Source of their meaning:
// NCCL's user guide, chapter on collective operations.

import { PoolError } from '../core/base/errors.js'
import type { Device } from '../core/device/device.js'
import { type MemoryUse, type Plan, planCollective } from './collective-memory.js'
import {
  type CollectiveMemory,
  type CollectiveOptions,
  checkCollectiveNames,
  checkRank,
  opOf,
  type ReceiveOptions,
  type ReduceOptions,
  type ReduceToOptions,
  type RootOptions,
  type SendOptions,
} from './communicator-options.js'
import { NCCL_SINCE, versionText } from './constants.js'
import type { Nccl } from './nccl.js'

/** The calls of a rank that combine and move memory of all ranks. `Communicator` extends it. */
export abstract class Collectives {
  /** the device of this rank */
  abstract readonly device: Device
  /** the number of this rank, from 0 */
  abstract readonly rank: number
  /** how many ranks there are */
  abstract readonly ranks: number
  /** @internal */
  abstract readonly nccl: Nccl
  /**
   * NCCL's handle
   * @internal
   */
  abstract readonly handle: number

  /** Combines `send` of all ranks, element by element; each rank gets the result in `receive`, which may be `send`. */
  allReduce(send: CollectiveMemory, receive: CollectiveMemory, options: ReduceOptions = {}): void {
    checkCollectiveNames('allReduce', options)
    const op = opOf('allReduce', options.op)
    const plan = this.plan('allReduce', [sent(send), received(receive)], options, { first: 0, second: 0 })
    const { addresses, count, type } = plan
    this.submit('allReduce', plan, stream =>
      this.nccl.ncclAllReduce(addresses[0], addresses[1], count, type, op, this.handle, stream),
    )
  }

  /** As `allReduce`, but only the rank `root` gets the result. `receive` of the others stays as it is. */
  reduce(send: CollectiveMemory, receive: CollectiveMemory, options: ReduceToOptions): void {
    checkCollectiveNames('reduce', options)
    const { root } = options
    checkRank('reduce', 'root', root, this.ranks)
    const op = opOf('reduce', options.op)
    const plan = this.plan('reduce', [sent(send), received(receive)], options, { first: 0, second: 0 })
    const { addresses, count, type } = plan
    this.submit('reduce', plan, stream =>
      this.nccl.ncclReduce(addresses[0], addresses[1], count, type, op, root, this.handle, stream),
    )
  }

  /**
   * Combines `send` of all ranks, and gives each rank its part of the result: rank 0 the first, rank 1 the next.
   * `send` has as many elements as all `receive` together. `receive` may be this rank's part of `send`.
   */
  reduceScatter(send: CollectiveMemory, receive: CollectiveMemory, options: ReduceOptions = {}): void {
    checkCollectiveNames('reduceScatter', options)
    const op = opOf('reduceScatter', options.op)
    const uses = [sent(send, this.ranks), received(receive)]
    const plan = this.plan('reduceScatter', uses, options, { first: this.rank, second: 0 })
    const { addresses, count, type } = plan
    this.submit('reduceScatter', plan, stream =>
      this.nccl.ncclReduceScatter(addresses[0], addresses[1], count, type, op, this.handle, stream),
    )
  }

  /**
   * Gives each rank the elements of all, in the order of the ranks. `receive` has as many elements as all `send`
   * together. `send` may be this rank's part of `receive`.
   */
  allGather(send: CollectiveMemory, receive: CollectiveMemory, options: CollectiveOptions = {}): void {
    checkCollectiveNames('allGather', options)
    const uses = [sent(send), received(receive, this.ranks)]
    const plan = this.plan('allGather', uses, options, { first: 0, second: this.rank })
    const { addresses, count, type } = plan
    this.submit('allGather', plan, stream =>
      this.nccl.ncclAllGather(addresses[0], addresses[1], count, type, this.handle, stream),
    )
  }

  /** Gives all ranks the elements of `memory` of the rank `root`. */
  broadcast(memory: CollectiveMemory, options: RootOptions): void {
    checkCollectiveNames('broadcast', options)
    const { root } = options
    checkRank('broadcast', 'root', root, this.ranks)
    const plan = this.plan('broadcast', [received(memory)], options, null)
    const [address] = plan.addresses
    this.submit('broadcast', plan, stream =>
      this.nccl.ncclBroadcast(address, address, plan.count, plan.type, root, this.handle, stream),
    )
  }

  /**
   * Sends each rank another part of `send`; `receive` gets a part from each, in the order of the ranks. The first
   * call blocks as `send` does. Before NCCL 2.28 it throws PoolError: use a group of `send` and `receive` there.
   */
  allToAll(send: CollectiveMemory, receive: CollectiveMemory, options: CollectiveOptions = {}): void {
    checkCollectiveNames('allToAll', options)
    this.needs('allToAll', 'ncclAlltoAll', 'send and receive in Communicator.group do the same')
    const plan = this.plan('allToAll', [sent(send, this.ranks), received(receive, this.ranks)], options, null)
    const { addresses, count, type } = plan
    this.submit('allToAll', plan, stream =>
      this.nccl.ncclAlltoAll(addresses[0], addresses[1], count, type, this.handle, stream),
    )
  }

  /**
   * Sends elements to the rank `to`, which receives as many. Two ranks that send to each other do it in a group, each
   * its `send` and its `receive`. The first message between two ranks connects them: it blocks the thread until both
   * have begun it, without a limit.
   */
  send(memory: CollectiveMemory, options: SendOptions): void {
    checkCollectiveNames('send', options)
    const { to } = options
    checkRank('send', 'to', to, this.ranks)
    const plan = this.plan('send', [sent(memory)], options, null)
    this.submit('send', plan, stream =>
      this.nccl.ncclSend(plan.addresses[0], plan.count, plan.type, to, this.handle, stream),
    )
  }

  /** Receives elements that the rank `from` sends. The first message between two ranks blocks, as with `send`. */
  receive(memory: CollectiveMemory, options: ReceiveOptions): void {
    checkCollectiveNames('receive', options)
    const { from } = options
    checkRank('receive', 'from', from, this.ranks)
    const plan = this.plan('receive', [received(memory)], options, null)
    this.submit('receive', plan, stream =>
      this.nccl.ncclRecv(plan.addresses[0], plan.count, plan.type, from, this.handle, stream),
    )
  }

  /** Lets NCCL begin a checked call, or the open group take it. */
  protected abstract submit(call: string, plan: Plan, work: (stream: number) => number): void

  /** Throws, in the name of `call`, unless the communicator takes calls. */
  protected abstract checkOpen(call: string): void

  /** Throws PoolError unless this version of NCCL has the function. */
  protected needs(call: string, name: keyof typeof NCCL_SINCE, instead: string): void {
    const since = NCCL_SINCE[name]
    if (this.nccl.version >= since) return
    throw new PoolError(
      `${call}: NCCL ${versionText(since)} or later is needed, and this is ${versionText(this.nccl.version)}; ${instead}`,
      'ERR_NOT_SUPPORTED',
    )
  }

  private plan(
    call: string,
    uses: readonly MemoryUse[],
    options: CollectiveOptions,
    inPlace: { readonly first: number; readonly second: number } | null,
  ): Plan {
    this.checkOpen(call)
    return planCollective(call, this.device.defaultStream, uses, options, inPlace)
  }
}

function sent(memory: CollectiveMemory, shares = 1): MemoryUse {
  return { argument: 'send', memory, shares }
}

function received(memory: CollectiveMemory, shares = 1): MemoryUse {
  return { argument: 'receive', memory, shares }
}
