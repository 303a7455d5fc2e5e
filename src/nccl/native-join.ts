// The join of a rank over libnccl. A non-blocking communicator lets Node go on until all ranks have come, but NCCL
// starts a thread for each of its collectives (from 2.22 on), which costs more than a small collective. So its split is
// what the rank gets: the split waits in the same way, and makes a communicator whose collectives are submitted
// at once. The first one leaves then.

import { NCCL_RESULT } from './constants.js'
import { Cell } from './nccl.js'
import type { NcclFunctions } from './nccl-library.js'

const SAME_COLOR = 0
const CONFIG_BYTES = 48
const CONFIG_MAGIC = 0xcafebeef
/** Later libraries set what later versions of the configuration have. */
const CONFIG_VERSION = 21700
const BLOCKING = 16
const NET_NAME = 32
const UNSET = -(2 ** 31)

type JoinFunctions = Pick<
  NcclFunctions,
  'ncclCommInitRankConfig' | 'ncclCommSplit' | 'ncclCommGetAsyncError' | 'ncclCommFinalize' | 'ncclCommDestroy'
>

/** The step that a join waits for. */
type Phase = 'others' | 'split' | 'leave' | 'done'

export class NativeJoin {
  private static readonly first = configOf(false)
  private static readonly lasting = configOf(true)
  private phase: Phase = 'others'
  /** the communicator that all ranks join first */
  private first = 0
  /** NCCL writes the lasting communicator here, even after the program has given up waiting */
  private readonly split = new Cell()

  constructor(
    private readonly functions: JoinFunctions,
    /** gets the first communicator, and at the end the lasting one */
    private readonly comm: Cell,
    private readonly rank: number,
  ) {}

  begin(ranks: number, id: Uint8Array): number {
    const { comm, rank } = this
    const result = this.functions.ncclCommInitRankConfig(comm.words, ranks, { internal: id }, rank, NativeJoin.first)
    this.first = comm.value
    return result === NCCL_RESULT.ncclSuccess ? NCCL_RESULT.ncclInProgress : result
  }

  /** Writes the state of the join, and goes on with it. */
  proceed(state: Cell): number {
    const result = this.functions.ncclCommGetAsyncError(this.first, state.words)
    if (result !== NCCL_RESULT.ncclSuccess || state.value !== NCCL_RESULT.ncclSuccess) return result
    const next = this.next()
    state.value = next === NCCL_RESULT.ncclSuccess && !this.isDone ? NCCL_RESULT.ncclInProgress : next
    return NCCL_RESULT.ncclSuccess
  }

  get isDone(): boolean {
    return this.phase === 'done'
  }

  private next(): number {
    const { functions, first, comm, split } = this
    switch (this.phase) {
      case 'others':
        this.phase = 'split'
        return functions.ncclCommSplit(first, SAME_COLOR, this.rank, split.words, NativeJoin.lasting)
      case 'split':
        this.phase = 'leave'
        return functions.ncclCommFinalize(first)
      case 'leave':
        this.phase = 'done'
        comm.value = split.value
        return functions.ncclCommDestroy(first)
      default:
        return NCCL_RESULT.ncclSuccess
    }
  }
}

/** An ncclConfig_t. Unless it is `blocking`, calls that take long return ncclInProgress. All else is left to NCCL. */
function configOf(blocking: boolean): Uint8Array {
  const config = new DataView(new ArrayBuffer(CONFIG_BYTES))
  config.setUint32(0, CONFIG_BYTES, true)
  config.setUint32(8, CONFIG_MAGIC, true)
  config.setUint32(12, CONFIG_VERSION, true)
  for (let field = BLOCKING; field < CONFIG_BYTES; field += 4) config.setInt32(field, UNSET, true)
  config.setInt32(BLOCKING, blocking ? 1 : 0, true)
  config.setBigUint64(NET_NAME, 0n, true)
  return new Uint8Array(config.buffer)
}
