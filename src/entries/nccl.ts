// cuda-mempool/nccl: collectives between GPUs by NCCL, with memory of pools.

export { Communicator, type CommunicatorStats, uniqueId } from '../nccl/communicator.js'
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
export type { RegistrablePool } from '../nccl/registrable-pool.js'
export type { SymmetricArena } from '../nccl/symmetric-arena.js'
