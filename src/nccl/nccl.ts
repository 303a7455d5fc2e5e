// The contract of NCCL: its functions under their own names, without policy. A communicator calls NCCL through it.
// native-nccl.ts implements it over libnccl, and simulated/ without a GPU; both pass nccl.suite.ts.
//
// A join returns ncclInProgress, and ncclCommGetAsyncError tells when all ranks have come. So may calls that all ranks
// make together, such as that of a window. Collectives and messages are submitted when their call returns. Device
// pointers, handles and sizes are JS numbers, exact below 2^53. Calls act on the current CUDA context of the thread.

/** A pointer or number of 64 bits that NCCL writes, perhaps after its call has returned. The address stays. */
export class Cell {
  /** where NCCL writes */
  readonly words = new Uint32Array(2)

  /** the value that NCCL has written, or 0 */
  get value(): number {
    return this.words[0] + this.words[1] * 2 ** 32
  }

  set value(value: number) {
    this.words[0] = value % 2 ** 32
    this.words[1] = Math.floor(value / 2 ** 32)
  }
}

/**
 * The functions of NCCL that this library calls. Each returns an ncclResult_t, unless it says otherwise. NCCL_SINCE has
 * those that old versions lack: calling one of them is a mistake of the caller, and throws.
 */
export interface Nccl {
  /** true if no GPU is behind it */
  readonly simulated: boolean
  /** for people: the path of the opened library, or the simulation */
  readonly origin: string
  /** such as 22809 for 2.28.9 */
  readonly version: number

  /** the meaning of a result, for people */
  ncclGetErrorString(result: number): string
  /** the latest warning of NCCL in this process, for people; '' for none */
  ncclGetLastError(comm: number): string
  /** writes 128 bytes, with the address of a listener in this process */
  ncclGetUniqueId(id: Uint8Array): number
  /** `comm` is written before the call returns, unless it is refused */
  ncclCommInitRankConfig(comm: Cell, ranks: number, id: Uint8Array, rank: number): number
  /** writes the state of the communicator, an ncclResult_t */
  ncclCommGetAsyncError(comm: number, state: Cell): number
  ncclCommFinalize(comm: number): number
  ncclCommDestroy(comm: number): number
  ncclCommAbort(comm: number): number
  ncclGroupStart(): number
  ncclGroupEnd(): number

  ncclAllReduce(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    comm: number,
    stream: number,
  ): number
  ncclReduce(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    root: number,
    comm: number,
    stream: number,
  ): number
  /** `count` elements come to each rank */
  ncclReduceScatter(
    send: number,
    receive: number,
    count: number,
    type: number,
    op: number,
    comm: number,
    stream: number,
  ): number
  /** `count` elements come from each rank */
  ncclAllGather(send: number, receive: number, count: number, type: number, comm: number, stream: number): number
  ncclBroadcast(
    send: number,
    receive: number,
    count: number,
    type: number,
    root: number,
    comm: number,
    stream: number,
  ): number
  /** `count` elements go to each rank */
  ncclAlltoAll(send: number, receive: number, count: number, type: number, comm: number, stream: number): number
  ncclSend(send: number, count: number, type: number, peer: number, comm: number, stream: number): number
  ncclRecv(receive: number, count: number, type: number, peer: number, comm: number, stream: number): number

  /** local to the rank; `handle` is written before the call returns */
  ncclCommRegister(comm: number, ptr: number, bytes: number, handle: Cell): number
  ncclCommDeregister(comm: number, handle: number): number
  /** all ranks together; a window of 0 afterwards means that NCCL has no windows here */
  ncclCommWindowRegister(comm: number, ptr: number, bytes: number, window: Cell, flags: number): number
  ncclCommWindowDeregister(comm: number, window: number): number
  /** all ranks together */
  ncclCommSuspend(comm: number, flags: number): number
  /** all ranks together */
  ncclCommResume(comm: number): number
  ncclCommMemStats(comm: number, stat: number, value: Cell): number
}

/** The functions of the contract. */
export type NcclCall = Extract<keyof Nccl, `nccl${string}`>
