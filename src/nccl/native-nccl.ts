// The contract of NCCL over libnccl, which nccl-library.ts opens. Where all arguments are numbers, a function of the
// contract is the function of the library itself, so that a collective costs one call of koffi, about 70 ns.
//
// Threads of NCCL may write a communicator or a window after the call has returned, even after the program has given
// up waiting. So the cells of such calls are kept for good; a process makes few of them.

import { assert } from '../core/base/assert.js'
import { loadKoffi } from '../core/libraries/koffi.js'
import { UNIQUE_ID_BYTES } from './constants.js'
import { NativeJoin } from './native-join.js'
import type { Cell, Nccl } from './nccl.js'
import { type NcclFunctions, type NcclLibrary, openNcclLibrary } from './nccl-library.js'

export class NativeNccl implements Nccl {
  readonly simulated = false
  readonly origin: string
  readonly version: number

  readonly ncclGetErrorString: Nccl['ncclGetErrorString']
  readonly ncclCommFinalize: Nccl['ncclCommFinalize']
  readonly ncclCommDestroy: Nccl['ncclCommDestroy']
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
  /** joins that go on, by the communicator so far */
  private readonly joins = new Map<number, NativeJoin>()
  /** where NCCL may write later */
  private readonly written: object[] = []

  /** Opens libnccl; throws NoLibraryError if it is missing or too old. */
  static open(): NativeNccl {
    const library = openNcclLibrary()
    prepareJoins()
    return new NativeNccl(library)
  }

  constructor({ path, version, functions }: NcclLibrary) {
    this.origin = path
    this.version = version
    this.functions = functions
    this.ncclGetErrorString = functions.ncclGetErrorString
    this.ncclCommFinalize = functions.ncclCommFinalize
    this.ncclCommDestroy = functions.ncclCommDestroy
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
    const join = new NativeJoin(this.functions, comm, rank)
    this.written.push(comm, join)
    const result = join.begin(ranks, id)
    if (comm.value !== 0) this.joins.set(comm.value, join)
    return result
  }

  ncclCommGetAsyncError(comm: number, state: Cell): number {
    state.value = 0 // NCCL writes a C int, half of the cell
    const join = this.joins.get(comm)
    if (join === undefined) return this.functions.ncclCommGetAsyncError(comm, state.words)
    const result = join.proceed(state)
    if (join.isDone) this.joins.delete(comm)
    return result
  }

  ncclCommAbort(comm: number): number {
    this.joins.delete(comm)
    return this.functions.ncclCommAbort(comm)
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

/**
 * Lets the join connect the ranks for all collectives, as NCCL did before 2.22, unless the program says otherwise. By
 * default NCCL connects them in the first collective, and blocks Node until the other ranks make it, too. The join says
 * which communicators block (native-join.ts), and NCCL_COMM_BLOCKING would overrule it.
 */
function prepareJoins(): void {
  const libc = loadKoffi().load('libc.so.6')
  libc.func('int setenv(const char *name, const char *value, int overwrite)')('NCCL_RUNTIME_CONNECT', '0', 0)
  libc.func('int unsetenv(const char *name)')('NCCL_COMM_BLOCKING')
}
