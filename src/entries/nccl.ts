// cuda-mempool/nccl: collectives between GPUs by NCCL, with memory of pools.

export { Communicator, type CommunicatorStats } from '../nccl/communicator.js'
export { CommunicatorError } from '../nccl/communicator-error.js'
export type {
  CollectiveMemory,
  CollectiveOptions,
  CommunicatorOptions,
  JoinOptions,
  ReceiveOptions,
  ReduceOptions,
  ReduceToOptions,
  RootOptions,
  SendOptions,
  SymmetricArenaOptions,
} from '../nccl/communicator-options.js'
export type { NcclOp, NcclType } from '../nccl/constants.js'
export { uniqueId } from '../nccl/joins.js'
export type { RegistrablePool } from '../nccl/registrations.js'
export type { SymmetricArena } from '../nccl/symmetric-arena.js'
