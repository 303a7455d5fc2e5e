// The one place that touches the file system's libcuda. It is opened when a device is asked for, never when the package
// is imported.
//
// libcuda is never unloaded, since its threads would go on running in unmapped code.

import type { LibraryHandle } from 'koffi'
import { CudaError, NoDeviceError } from '../../base/errors.js'
import { checkDeepStack } from '../../base/stack.js'
import { isMissing, type Koffi, keepOpen, loadKoffi } from '../../libraries/koffi.js'
import { RESULT } from '../constants.js'
import { DRIVER_TABLE, FUNCTION_NAMES, type FunctionName, koffiPrototype } from './table.js'

/** A function of libcuda: numbers for handles, sizes and addresses, views for host memory; returns the CUresult. */
export type DriverFunction = (...args: (number | string | ArrayBufferView)[]) => number

export type Functions = Record<FunctionName, DriverFunction>

/** What the native driver needs of the opened library. */
export interface Library {
  /** the name under which it was found */
  readonly path: string
  /** Throws CudaError 500 when this driver is too old to have the function. */
  bind(name: FunctionName): DriverFunction
  /** The address of the first byte; it holds while the view's buffer is referenced. */
  addressOf(view: ArrayBufferView): number
  /** The NUL-terminated text at an address. */
  textAt(address: number): string
}

/** Where libcuda is looked for, in order; a bare name is searched where the system keeps its libraries. */
export const LIBRARY_PATHS: readonly string[] = ['libcuda.so.1', 'libcuda.so', '/usr/lib/wsl/lib/libcuda.so.1']

/**
 * Opens the CUDA driver's library. Throws NoDeviceError when there is none or the platform has none, and CudaError when
 * there is one that cannot be loaded.
 */
export function openLibrary(paths = LIBRARY_PATHS, platform: string = process.platform, arch = process.arch): Library {
  if (platform !== 'linux' || (arch !== 'x64' && arch !== 'arm64')) {
    throw new NoDeviceError(
      `GPUs are supported on Linux (x64 and arm64) and in WSL, not on ${platform} ${arch}; use openDevice('simulated')`,
    )
  }
  const koffi = loadKoffi()
  for (const path of paths) {
    const loaded = load(koffi, path)
    if (loaded === null) continue
    keepOpen(koffi, path)
    return {
      path,
      bind: name => bind(loaded, name),
      addressOf: view => Number(koffi.address(view)),
      textAt: address => koffi.decode.string(address),
    }
  }
  throw new NoDeviceError(
    `no CUDA driver: none of ${paths.join(', ')} could be found; install the NVIDIA driver (for WSL, that of Windows), ` +
      "or use openDevice('simulated')",
  )
}

/** Functions that look themselves up in the library when they are called first. */
export function boundWhenCalled(library: Library): Functions {
  const functions = {} as Functions
  for (const name of FUNCTION_NAMES) {
    functions[name] = (...args) => {
      checkDeepStack() // V8 ends the process where it compiles a regular expression on a full stack
      functions[name] = library.bind(name)
      return functions[name](...args)
    }
  }
  return functions
}

interface Loaded {
  readonly handle: LibraryHandle
  /** the latest CUDA that the driver supports, 12040 for 12.4 */
  readonly version: number
}

/** The library at `path`, null when there is none. */
function load(koffi: Koffi, path: string): Loaded | null {
  try {
    const handle = koffi.load(path)
    const version = [0]
    handle.func('int cuDriverGetVersion(_Out_ int *version)')(version)
    return { handle, version: version[0] }
  } catch (error) {
    if (isMissing(error as Error, path)) return null
    const code = RESULT.CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
    throw new CudaError('dlopen', code, 'CUDA_ERROR_SHARED_OBJECT_INIT_FAILED', `${path}: ${(error as Error).message}`)
  }
}

function bind({ handle, version }: Loaded, name: FunctionName): DriverFunction {
  try {
    return handle.func(koffiPrototype(name)) as DriverFunction
  } catch (error) {
    const [symbol, , since] = DRIVER_TABLE[name]
    if (!(error as Error).message.startsWith(`Cannot find function '${symbol}'`)) throw error
    const present = `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
    const detail = `this driver (version ${present}) does not have ${symbol}; it needs driver ${since}`
    throw new CudaError(name, RESULT.CUDA_ERROR_NOT_FOUND, 'CUDA_ERROR_NOT_FOUND', detail)
  }
}
