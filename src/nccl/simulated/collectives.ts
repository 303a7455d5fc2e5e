// The collectives: the memory that a rank sends and receives, the result, and the words that must be the same on all
// ranks. Arguments count elements; ranges count bytes.

import { NCCL_TYPES, type NcclOp, type NcclType } from '../constants.js'
import { reduce } from './arithmetic.js'

/** A range of device memory. */
export interface MemoryRange {
  readonly ptr: number
  readonly bytes: number
}

/** A collective of one rank. */
export interface Collective {
  /** the call with its arguments that must be the same on all ranks, for people */
  readonly text: string
  /** the memory that this rank sends; null for nothing */
  readonly sends: MemoryRange | null
  /** where the result goes; null for nowhere */
  readonly receives: MemoryRange | null
  /** addresses that have one offset on all ranks if they lie in a window */
  readonly symmetric: readonly number[]
  /** the result, from the data of each rank */
  readonly combine: (sent: readonly Uint8Array[]) => Uint8Array
}

/** The place of a rank among all. */
interface Place {
  readonly rank: number
  readonly ranks: number
}

/** The buffers of a collective, and its elements. */
export interface Elements {
  readonly send: number
  readonly receive: number
  readonly count: number
  readonly type: NcclType
}

export function allReduce({ send, receive, count, type }: Elements, op: NcclOp): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  return {
    text: `ncclAllReduce of ${count} ${type} by ${op}`,
    sends: { ptr: send, bytes },
    receives: { ptr: receive, bytes },
    symmetric: [send, receive],
    combine: sent => reduce(type, op, sent),
  }
}

export function reduceTo({ send, receive, count, type }: Elements, op: NcclOp, root: number, place: Place): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  return {
    text: `ncclReduce of ${count} ${type} by ${op} to rank ${root}`,
    sends: { ptr: send, bytes },
    receives: place.rank === root ? { ptr: receive, bytes } : null,
    symmetric: [send],
    combine: sent => reduce(type, op, sent),
  }
}

export function reduceScatter(
  { send, receive, count, type }: Elements,
  op: NcclOp,
  { rank, ranks }: Place,
): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  const own = (sent: Uint8Array) => sent.subarray(rank * bytes, (rank + 1) * bytes)
  return {
    text: `ncclReduceScatter of ${count} ${type} by ${op}`,
    sends: { ptr: send, bytes: bytes * ranks },
    receives: { ptr: receive, bytes },
    symmetric: [send],
    combine: sent => reduce(type, op, sent.map(own)),
  }
}

export function allGather({ send, receive, count, type }: Elements, { ranks }: Place): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  return {
    text: `ncclAllGather of ${count} ${type}`,
    sends: { ptr: send, bytes },
    receives: { ptr: receive, bytes: bytes * ranks },
    symmetric: [receive],
    combine: sent => Buffer.concat(sent),
  }
}

export function broadcast({ send, receive, count, type }: Elements, root: number, { rank }: Place): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  return {
    text: `ncclBroadcast of ${count} ${type} from rank ${root}`,
    sends: rank === root ? { ptr: send, bytes } : null,
    receives: { ptr: receive, bytes },
    symmetric: [receive],
    combine: sent => sent[root],
  }
}

export function allToAll({ send, receive, count, type }: Elements, { rank, ranks }: Place): Collective {
  const bytes = count * NCCL_TYPES[type].bytes
  return {
    text: `ncclAlltoAll of ${count} ${type}`,
    sends: { ptr: send, bytes: bytes * ranks },
    receives: { ptr: receive, bytes: bytes * ranks },
    symmetric: [send, receive],
    combine: sent => Buffer.concat(sent.map(each => each.subarray(rank * bytes, (rank + 1) * bytes))),
  }
}
