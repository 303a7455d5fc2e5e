// Finds and opens NVTX, NVIDIA's tools extension, by which programs annotate profiles; nvtx.ts uses it. It comes with
// the CUDA toolkit and with Python packages, not with the driver, so only `openNvtx` opens it. NVTX itself is C
// headers. Two libraries export its functions: libnvtx3interop has version 3 with the memory extension.
// libnvToolsExt, its predecessor up to CUDA 12, has no memory extension.

import { NoLibraryError } from '../base/errors.js'
import { openFirst } from './koffi.js'
import { type Environment, libraryFolders, toolkitFolders, toolkitsIn } from './toolkits.js'

/** Handles and range numbers of a tool: 64 bits, as a bigint if a number is not exact. */
export type NvtxHandle = number | bigint

export type NvtxFunction = (...args: (NvtxHandle | string | ArrayBufferView)[]) => NvtxHandle

/** Prototypes of nvToolsExt.h, with handles as numbers. */
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

/** The opened library, as `Nvtx` uses it. */
export interface NvtxLibrary {
  /** the path under which it was found */
  readonly path: string
  /** Throws NoLibraryError if the library lacks the function. */
  bind(name: NvtxFunctionName): NvtxFunction
  /** The address of the first byte, valid while the buffer of the view is referenced. */
  addressOf(view: ArrayBufferView): bigint
}

const NAMES = ['libnvtx3interop.so.1', 'libnvToolsExt.so.1'] as const
const REMEDY =
  "NVTX comes with the CUDA toolkit and with Python's package nvidia-nvtx: put its folder into LD_LIBRARY_PATH, or give openNvtx the path of the library"

/**
 * The paths to try, in order: names for the dynamic linker, which searches LD_LIBRARY_PATH first, then the folders of
 * toolkits, CUDA_HOME and CUDA_PATH first.
 */
export function nvtxPaths(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  const folders = libraryFolders(toolkitFolders(env, installed))
  return [...NAMES, ...folders.flatMap(folder => NAMES.map(name => `${folder}/${name}`))]
}

/** Opens the first usable library of `paths`. Throws NoLibraryError with all attempts if none can be opened. */
export function openNvtxLibrary(paths: readonly string[]): NvtxLibrary {
  return openFirst(
    paths,
    (library, path, koffi) => ({ path, bind: name => bind(name, path, library), addressOf: koffi.address }),
    tried => `no NVTX library: none of ${tried} could be opened; ${REMEDY}`,
  )
}

function bind(name: NvtxFunctionName, path: string, library: { func(prototype: string): unknown }): NvtxFunction {
  try {
    return library.func(NVTX_PROTOTYPES[name]) as NvtxFunction
  } catch (error) {
    if (!(error as Error).message.startsWith(`Cannot find function '${name}'`)) throw error
    throw new NoLibraryError(`${path} has no ${name}; take libnvtx3interop.so.1 of CUDA 12 or later. ${REMEDY}`)
  }
}
