// Finds and opens NVRTC, NVIDIA's run-time compiler of CUDA C++; nvrtc.ts uses it. NVRTC comes with the CUDA toolkit
// and with Python packages, not with the driver, so it is opened only to compile. A driver does not load code of a
// newer NVRTC, so a library with a higher major version than the driver is skipped.

import { NoLibraryError } from '../base/errors.js'
import { openFirst } from './koffi.js'
import { type Environment, libraryFolders, pythonLibraryFolders, toolkitFolders, toolkitsIn } from './toolkits.js'

/** Programs are numbers. NVRTC writes sizes and results to arrays of one element. */
type NvrtcArgument = number | string | readonly string[] | Uint8Array | number[] | (string | null)[]

export type NvrtcFunction = (...args: NvrtcArgument[]) => number

const STRINGS = 'const char **'

/** Prototypes of nvrtc.h, with programs as numbers, and with koffi's marks for out-parameters. */
const NVRTC_PROTOTYPES = {
  nvrtcVersion: 'int nvrtcVersion(_Out_ int *major, _Out_ int *minor)',
  nvrtcGetNumSupportedArchs: 'int nvrtcGetNumSupportedArchs(_Out_ int *numArchs)',
  nvrtcGetSupportedArchs: 'int nvrtcGetSupportedArchs(void *supportedArchs)',
  nvrtcCreateProgram:
    'int nvrtcCreateProgram(_Out_ uint64_t *prog, const char *src, const char *name, int numHeaders, ' +
    `${STRINGS}headers, ${STRINGS}includeNames)`,
  nvrtcDestroyProgram: 'int nvrtcDestroyProgram(_Inout_ uint64_t *prog)',
  nvrtcAddNameExpression: 'int nvrtcAddNameExpression(uint64_t prog, const char *name_expression)',
  nvrtcCompileProgram: `int nvrtcCompileProgram(uint64_t prog, int numOptions, ${STRINGS}options)`,
  nvrtcGetLoweredName:
    'int nvrtcGetLoweredName(uint64_t prog, const char *name_expression, _Out_ const char **lowered_name)',
  nvrtcGetProgramLogSize: 'int nvrtcGetProgramLogSize(uint64_t prog, _Out_ size_t *logSizeRet)',
  nvrtcGetProgramLog: 'int nvrtcGetProgramLog(uint64_t prog, void *log)',
  nvrtcGetPTXSize: 'int nvrtcGetPTXSize(uint64_t prog, _Out_ size_t *ptxSizeRet)',
  nvrtcGetPTX: 'int nvrtcGetPTX(uint64_t prog, void *ptx)',
  nvrtcGetCUBINSize: 'int nvrtcGetCUBINSize(uint64_t prog, _Out_ size_t *cubinSizeRet)',
  nvrtcGetCUBIN: 'int nvrtcGetCUBIN(uint64_t prog, void *cubin)',
}

type NvrtcFunctionName = keyof typeof NVRTC_PROTOTYPES

const FUNCTION_NAMES = Object.keys(NVRTC_PROTOTYPES) as NvrtcFunctionName[]

/** The opened library, as `openNvrtc` uses it. */
export interface NvrtcLibrary {
  /** the path under which it was found */
  readonly path: string
  readonly functions: Readonly<Record<NvrtcFunctionName, NvrtcFunction>>
}

/** The libraries of CUDA 13, 12, and 11.2 to 11.8. Toolkits of all versions link the last name to their library. */
const NAMES = ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'] as const
const REMEDY =
  "NVRTC comes with the CUDA toolkit and with Python's package nvidia-cuda-nvrtc: put its folder into LD_LIBRARY_PATH or " +
  'CUDA_HOME, or compile beforehand (nvcc -ptx) and give the PTX to device.loadModule'

/**
 * The paths to try, in order: names for the dynamic linker, which searches LD_LIBRARY_PATH first, then the folders of
 * toolkits and of the active Python environment.
 */
export function nvrtcPaths(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  const folders = [...libraryFolders(toolkitFolders(env, installed)), ...pythonLibraryFolders(env)]
  return [...NAMES, ...folders.flatMap(folder => NAMES.map(name => `${folder}/${name}`))]
}

/**
 * Opens the first usable library of `paths` that is not too new for a driver of `driverVersion` (12040 for 12.4).
 * Throws NoLibraryError with the attempts, their failures, and the way without NVRTC.
 */
export function openNvrtcLibrary(paths: readonly string[], driverVersion: number): NvrtcLibrary {
  return openFirst(
    paths,
    (library, path) => {
      const functions = {} as Record<NvrtcFunctionName, NvrtcFunction>
      for (const name of FUNCTION_NAMES) functions[name] = library.func(NVRTC_PROTOTYPES[name]) as NvrtcFunction
      const [major, minor] = versionOf(functions.nvrtcVersion)
      if (major > Math.floor(driverVersion / 1000)) {
        throw new NoLibraryError(`of CUDA ${major}.${minor}, which is above the driver's`)
      }
      return { path, functions }
    },
    tried => `no NVRTC, which compiles CUDA C++: none of ${tried} could be used; ${REMEDY}`,
  )
}

/** The CUDA version of an NVRTC. */
export function versionOf(nvrtcVersion: NvrtcFunction): readonly [major: number, minor: number] {
  const [major, minor]: [number[], number[]] = [[0], [0]]
  nvrtcVersion(major, minor)
  return [major[0], minor[0]]
}
