// Finds and opens libnccl, NVIDIA's library of collectives; native-nccl.ts calls it. It comes with PyTorch and with
// NVIDIA's packages, not with the driver, so it is opened only for the first communicator. A library older than
// LEAST_VERSION, which cannot register memory, is skipped.

import type { LibraryHandle } from 'koffi'
import { NoLibraryError } from '../core/base/errors.js'
import { checkDeepStack } from '../core/base/stack.js'
import { type Koffi, openFirst } from '../core/libraries/koffi.js'
import {
  type Environment,
  libraryFolders,
  pythonLibraryFolders,
  toolkitFolders,
  toolkitsIn,
} from '../core/libraries/toolkits.js'
import { LEAST_VERSION, NCCL_SINCE, UNIQUE_ID_BYTES, versionText } from './constants.js'
import type { Nccl, NcclCall } from './nccl.js'

/** The functions that take pointers to host memory, an id by value, or that return a null pointer for no text. */
interface WithMemory {
  ncclGetLastError(comm: number): string | null
  ncclCommInitRankConfig(
    comm: Uint32Array,
    ranks: number,
    id: { readonly internal: Uint8Array },
    rank: number,
    config: Uint8Array | null,
  ): number
  ncclCommGetAsyncError(comm: number, state: Uint32Array): number
  ncclCommSplit(comm: number, color: number, key: number, split: Uint32Array, config: Uint8Array): number
  ncclCommRegister(comm: number, ptr: number, bytes: number, handle: Uint32Array): number
  ncclCommWindowRegister(comm: number, ptr: number, bytes: number, window: Uint32Array, flags: number): number
  ncclCommMemStats(comm: number, stat: number, value: Uint32Array): number
}

/** The functions of libnccl as C has them. */
export type NcclFunctions = Pick<Nccl, Exclude<NcclCall, keyof WithMemory>> & WithMemory

/** The opened library, as `NativeNccl` uses it. */
export interface NcclLibrary {
  /** the path under which it was found */
  readonly path: string
  /** such as 22809 for 2.28.9 */
  readonly version: number
  /** A function that this version lacks throws NoLibraryError when it is called. */
  readonly functions: NcclFunctions
}

const BUFFERS = 'uint64_t sendbuff, uint64_t recvbuff, size_t count, int datatype'
const TO_STREAM = 'uint64_t comm, uint64_t stream'

/**
 * Prototypes of nccl.h, with communicators, streams, handles and device memory as numbers. koffi passes the address of
 * a typed array for `void *`, and makes no copy. `initParameters` has those of ncclCommInitRankConfig.
 */
export const NCCL_PROTOTYPES: Readonly<Record<Exclude<keyof NcclFunctions, 'ncclCommInitRankConfig'>, string>> = {
  ncclGetErrorString: 'const char *ncclGetErrorString(int result)',
  ncclGetLastError: 'const char *ncclGetLastError(uint64_t comm)',
  ncclGetUniqueId: 'int ncclGetUniqueId(void *uniqueId)',
  ncclCommGetAsyncError: 'int ncclCommGetAsyncError(uint64_t comm, void *asyncError)',
  ncclCommSplit: 'int ncclCommSplit(uint64_t comm, int color, int key, void *newcomm, void *config)',
  ncclCommFinalize: 'int ncclCommFinalize(uint64_t comm)',
  ncclCommDestroy: 'int ncclCommDestroy(uint64_t comm)',
  ncclCommAbort: 'int ncclCommAbort(uint64_t comm)',
  ncclGroupStart: 'int ncclGroupStart()',
  ncclGroupEnd: 'int ncclGroupEnd()',
  ncclAllReduce: `int ncclAllReduce(${BUFFERS}, int op, ${TO_STREAM})`,
  ncclReduce: `int ncclReduce(${BUFFERS}, int op, int root, ${TO_STREAM})`,
  ncclReduceScatter: `int ncclReduceScatter(${BUFFERS}, int op, ${TO_STREAM})`,
  ncclAllGather: `int ncclAllGather(${BUFFERS}, ${TO_STREAM})`,
  ncclBroadcast: `int ncclBroadcast(${BUFFERS}, int root, ${TO_STREAM})`,
  ncclAlltoAll: `int ncclAlltoAll(${BUFFERS}, ${TO_STREAM})`,
  ncclSend: `int ncclSend(uint64_t sendbuff, size_t count, int datatype, int peer, ${TO_STREAM})`,
  ncclRecv: `int ncclRecv(uint64_t recvbuff, size_t count, int datatype, int peer, ${TO_STREAM})`,
  ncclCommRegister: 'int ncclCommRegister(uint64_t comm, uint64_t buff, size_t size, void *handle)',
  ncclCommDeregister: 'int ncclCommDeregister(uint64_t comm, uint64_t handle)',
  ncclCommWindowRegister:
    'int ncclCommWindowRegister(uint64_t comm, uint64_t buff, size_t size, void *win, int winFlags)',
  ncclCommWindowDeregister: 'int ncclCommWindowDeregister(uint64_t comm, uint64_t win)',
  ncclCommSuspend: 'int ncclCommSuspend(uint64_t comm, int flags)',
  ncclCommResume: 'int ncclCommResume(uint64_t comm)',
  ncclCommMemStats: 'int ncclCommMemStats(uint64_t comm, int stat, void *value)',
}

const PROTOTYPE_NAMES = Object.keys(NCCL_PROTOTYPES) as (keyof typeof NCCL_PROTOTYPES)[]

const NAME = 'libnccl.so.2'
const SYSTEMS: Readonly<Record<string, string>> = { win32: 'Windows', darwin: 'macOS' }
const REMEDY =
  "NCCL comes with PyTorch, with Python's packages nvidia-nccl-cu12 and nvidia-nccl-cu13, and with NVIDIA's packages " +
  'for apt (libnccl2) and conda (nccl); neither npm nor Debian has it. Install ' +
  `${versionText(LEAST_VERSION)} or later, and put its folder into LD_LIBRARY_PATH before Node starts`

/**
 * The paths to try, in order: the name for the dynamic linker, which searches LD_LIBRARY_PATH first, then the folders
 * of the active Python environment and of toolkits.
 */
export function ncclPaths(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  const folders = [...pythonLibraryFolders(env), ...libraryFolders(toolkitFolders(env, installed))]
  return [NAME, ...folders.map(folder => `${folder}/${NAME}`)]
}

/**
 * Opens the first usable library of `paths`. Throws NoLibraryError on other systems than Linux, and if no path has
 * NCCL from LEAST_VERSION on, with the attempts and the ways to get it.
 */
export function openNcclLibrary(
  paths: readonly string[] = ncclPaths(),
  platform: string = process.platform,
): NcclLibrary {
  if (platform !== 'linux') {
    throw new NoLibraryError(
      `NCCL is for Linux, and this is ${SYSTEMS[platform] ?? platform}; communicators of simulated devices work here: ` +
        "openDevice('simulated')",
    )
  }
  checkDeepStack() // koffi compiles regular expressions, and on a full stack V8 aborts the process then
  return openFirst(
    paths,
    (library, path, koffi) => {
      const version = versionOf(library)
      if (version < LEAST_VERSION) {
        throw new NoLibraryError(`version ${versionText(version)}, which is below ${versionText(LEAST_VERSION)}`)
      }
      return { path, version, functions: bindAll(library, koffi, path, version) }
    },
    tried => `no NCCL, which communicators of GPUs use: none of ${tried} could be used. ${REMEDY}`,
  )
}

function versionOf(library: LibraryHandle): number {
  const version = [0]
  library.func('int ncclGetVersion(_Out_ int *version)')(version)
  return version[0]
}

/** All functions at once: Node ends the process when a worker is terminated while koffi binds a function. */
function bindAll(library: LibraryHandle, koffi: Koffi, path: string, version: number): NcclFunctions {
  const bind = (call: keyof NcclFunctions, func: () => ReturnType<LibraryHandle['func']>) => {
    try {
      return func()
    } catch (error) {
      const since = (NCCL_SINCE as Partial<Record<keyof NcclFunctions, number>>)[call]
      if (since === undefined || !(error as Error).message.startsWith(`Cannot find function '${call}'`)) throw error
      const lacking = `${path} is NCCL ${versionText(version)} and lacks ${call}; it needs ${versionText(since)}`
      return () => {
        throw new NoLibraryError(lacking)
      }
    }
  }
  const functions: Partial<Record<keyof NcclFunctions, unknown>> = {
    ncclCommInitRankConfig: library.func('ncclCommInitRankConfig', 'int', initParameters(koffi)),
  }
  for (const call of PROTOTYPE_NAMES) functions[call] = bind(call, () => library.func(NCCL_PROTOTYPES[call]))
  return functions as unknown as NcclFunctions
}

/** Those of ncclCommInitRankConfig: the communicator, ranks, the id by value, the rank and the configuration. */
export function initParameters(koffi: Koffi) {
  // A type without a name, since koffi refuses a name that another copy of this module has taken.
  const id = koffi.struct({ internal: koffi.array('uint8_t', UNIQUE_ID_BYTES) })
  return ['void *', 'int', id, 'int', 'void *']
}
