// The library of NVTX, NVIDIA's tools extension, through which a program tells a profiler what it is doing. It comes with
// the CUDA toolkit and with Python packages, not with the driver, so it is looked for only when somebody wants to be
// profiled. NVTX is otherwise headers for C, but these libraries export the same functions: libnvtx3interop that of version
// 3 with the memory extension, libnvToolsExt, its predecessor up to CUDA 12, all the others.

import { NoLibraryError } from '../base/errors.js'
import { isMissing, keepOpen, loadKoffi } from './koffi.js'
import { type Environment, libraryFolders, toolkitFolders, toolkitsIn } from './toolkits.js'

/** Handles and range numbers are a tool's own, of any 64 bits: a bigint where a number is not exact. */
export type NvtxHandle = number | bigint

export type NvtxFunction = (...args: (NvtxHandle | string | ArrayBufferView)[]) => NvtxHandle

export const NVTX_PROTOTYPES = {
  nvtxDomainCreateA: 'uint64_t nvtxDomainCreateA(const char *name)',
  nvtxDomainMarkEx: 'void nvtxDomainMarkEx(uint64_t domain, const void *event)',
  nvtxDomainRangePushEx: 'int nvtxDomainRangePushEx(uint64_t domain, const void *event)',
  nvtxDomainRangePop: 'int nvtxDomainRangePop(uint64_t domain)',
  nvtxDomainRangeStartEx: 'uint64_t nvtxDomainRangeStartEx(uint64_t domain, const void *event)',
  nvtxDomainRangeEnd: 'void nvtxDomainRangeEnd(uint64_t domain, uint64_t range)',
  nvtxNameCuStreamA: 'void nvtxNameCuStreamA(uint64_t stream, const char *name)',
  nvtxMemRegionsName: 'void nvtxMemRegionsName(uint64_t domain, const void *regions)',
}

export type NvtxFunctionName = keyof typeof NVTX_PROTOTYPES

/** What `Nvtx` needs of the opened library. */
export interface NvtxLibrary {
  /** the name under which it was found */
  readonly path: string
  /** Throws NoLibraryError when the library does not have the function. */
  bind(name: NvtxFunctionName): NvtxFunction
  /** The address of the first byte; it holds while the view's buffer is referenced. */
  addressOf(view: ArrayBufferView): bigint
}

const NAMES = ['libnvtx3interop.so.1', 'libnvToolsExt.so.1'] as const
const REMEDY =
  "NVTX comes with the CUDA toolkit and with Python's package nvidia-nvtx: put its folder into LD_LIBRARY_PATH, or give openNvtx the path of the library"

/**
 * Where NVTX is looked for, in order: by name where the system keeps its libraries, LD_LIBRARY_PATH first, then in the
 * usual folders of the toolkit, that of the one which CUDA_HOME or CUDA_PATH names first.
 */
export function nvtxPaths(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  const folders = libraryFolders(toolkitFolders(env, installed))
  return [...NAMES, ...folders.flatMap(folder => NAMES.map(name => `${folder}/${name}`))]
}

/** Opens the first of `paths` that can be. Throws NoLibraryError, which names them all, when none can. */
export function openNvtxLibrary(paths: readonly string[]): NvtxLibrary {
  const koffi = loadKoffi()
  const tried: string[] = []
  for (const path of paths) {
    try {
      const library = koffi.load(path)
      keepOpen(koffi, path)
      return { path, bind: name => bind(name, path, library), addressOf: koffi.address }
    } catch (error) {
      tried.push(isMissing(error as Error, path) ? path : `${path} (${(error as Error).message})`)
    }
  }
  throw new NoLibraryError(`no NVTX library: none of ${tried.join(', ')} could be opened; ${REMEDY}`)
}

function bind(name: NvtxFunctionName, path: string, library: { func(prototype: string): unknown }): NvtxFunction {
  try {
    return library.func(NVTX_PROTOTYPES[name]) as NvtxFunction
  } catch (error) {
    if (!(error as Error).message.startsWith(`Cannot find function '${name}'`)) throw error
    throw new NoLibraryError(`${path} has no ${name}; take libnvtx3interop.so.1 of CUDA 12 or later. ${REMEDY}`)
  }
}
