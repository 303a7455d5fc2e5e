// The contract of NCCL over libnccl, which nccl-library.ts opens. Where all arguments are numbers, a function of the
// contract is the function of the library itself, so that a collective costs one call of koffi, about 70 ns.
//
// Threads of NCCL may write a communicator or a window after the call has returned, even after the program has given
// up waiting. So the cells of such calls are kept for good; a process makes few of them.

import { assert } from '../core/base/assert.js'
import { UNIQUE_ID_BYTES } from './constants.js'
import type { Cell, Nccl } from './nccl.js'
import { type NcclFunctions, type NcclLibrary, openNcclLibrary } from './nccl-library.js'

const CONFIG_BYTES = 48
const CONFIG_MAGIC = 0xcafebeef
/** Later libraries set what later versions of the configuration have. */
const CONFIG_VERSION = 21700
const BLOCKING = 16
const NET_NAME = 32
const UNSET = -(2 ** 31)

export class NativeNccl implements Nccl {
  readonly simulated = false
  readonly origin: string
  readonly version: number

  readonly ncclGetErrorString: Nccl['ncclGetErrorString']
  readonly ncclCommFinalize: Nccl['ncclCommFinalize']
  readonly ncclCommDestroy: Nccl['ncclCommDestroy']
  readonly ncclCommAbort: Nccl['ncclCommAbort']
  readonly ncclGroupStart: Nccl['ncclGroupStart']
  readonly ncclGroupEnd: Nccl['ncclGroupEnd']
  readonly ncclAllReduce: Nccl['ncclAllReduce']
  readonly ncclReduce: Nccl['ncclReduce']
  readonly ncclReduceScatter: Nccl['ncclReduceScatter']
  readonly ncclAllGather: Nccl['ncclAllGather']
  readonly ncclBroadcast: Nccl['ncclBroadcast']
  readonly ncclAlltoAll: Nccl['ncclAlltoAll']
  readonly ncclSend: Nccl['ncclSend']
  readonly ncclRecv: Nccl['ncclRecv']
  readonly ncclCommDeregister: Nccl['ncclCommDeregister']
  readonly ncclCommWindowDeregister: Nccl['ncclCommWindowDeregister']
  readonly ncclCommSuspend: Nccl['ncclCommSuspend']
  readonly ncclCommResume: Nccl['ncclCommResume']

  private readonly functions: NcclFunctions
  private readonly config: Uint8Array
  /** where NCCL may write later */
  private readonly written: Cell[] = []

  /** Opens libnccl; throws NoLibraryError if it is missing or too old. */
  static open(): NativeNccl {
    return new NativeNccl(openNcclLibrary())
  }

  /** `blocking` is for comparisons: joins and collectives return when they are complete or submitted. */
  constructor({ path, version, functions }: NcclLibrary, blocking = false) {
    this.config = configOf(blocking)
    this.origin = path
    this.version = version
    this.functions = functions
    this.ncclGetErrorString = functions.ncclGetErrorString
    this.ncclCommFinalize = functions.ncclCommFinalize
    this.ncclCommDestroy = functions.ncclCommDestroy
    this.ncclCommAbort = functions.ncclCommAbort
    this.ncclGroupStart = functions.ncclGroupStart
    this.ncclGroupEnd = functions.ncclGroupEnd
    this.ncclAllReduce = functions.ncclAllReduce
    this.ncclReduce = functions.ncclReduce
    this.ncclReduceScatter = functions.ncclReduceScatter
    this.ncclAllGather = functions.ncclAllGather
    this.ncclBroadcast = functions.ncclBroadcast
    this.ncclAlltoAll = functions.ncclAlltoAll
    this.ncclSend = functions.ncclSend
    this.ncclRecv = functions.ncclRecv
    this.ncclCommDeregister = functions.ncclCommDeregister
    this.ncclCommWindowDeregister = functions.ncclCommWindowDeregister
    this.ncclCommSuspend = functions.ncclCommSuspend
    this.ncclCommResume = functions.ncclCommResume
  }

  ncclGetLastError(comm: number): string {
    return this.functions.ncclGetLastError(comm) ?? ''
  }

  ncclGetUniqueId(id: Uint8Array): number {
    assert(id.length === UNIQUE_ID_BYTES, `an id should have ${UNIQUE_ID_BYTES} bytes`)
    return this.functions.ncclGetUniqueId(id)
  }

  ncclCommInitRankConfig(comm: Cell, ranks: number, id: Uint8Array, rank: number): number {
    assert(id.length === UNIQUE_ID_BYTES, `an id should have ${UNIQUE_ID_BYTES} bytes`)
    this.written.push(comm)
    return this.functions.ncclCommInitRankConfig(comm.words, ranks, { internal: id }, rank, this.config)
  }

  ncclCommGetAsyncError(comm: number, state: Cell): number {
    state.value = 0 // NCCL writes a C int, half of the cell
    return this.functions.ncclCommGetAsyncError(comm, state.words)
  }

  ncclCommRegister(comm: number, ptr: number, bytes: number, handle: Cell): number {
    return this.functions.ncclCommRegister(comm, ptr, bytes, handle.words)
  }

  ncclCommWindowRegister(comm: number, ptr: number, bytes: number, window: Cell, flags: number): number {
    this.written.push(window)
    return this.functions.ncclCommWindowRegister(comm, ptr, bytes, window.words, flags)
  }

  ncclCommMemStats(comm: number, stat: number, value: Cell): number {
    return this.functions.ncclCommMemStats(comm, stat, value.words)
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
