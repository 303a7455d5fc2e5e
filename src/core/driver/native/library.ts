// Opens libcuda and binds its functions; only native-driver.ts and bound-library.ts use it. It is opened with
// the first device, never at import of the package. It is never unloaded, because its threads would run on in
// unmapped code.

import type { LibraryHandle } from 'koffi'
import { CudaError, NoDeviceError, NoLibraryError } from '../../base/errors.js'
import { checkDeepStack } from '../../base/stack.js'
import { HostPages } from '../../libraries/host-pages.js'
import { isMissing, type Koffi, keepOpen, loadKoffi } from '../../libraries/koffi.js'
import { RESULT } from '../constants.js'
import { DRIVER_TABLE, FUNCTION_NAMES, type FunctionName, koffiPrototype } from '../table.js'

/** A function of libcuda: numbers for handles, sizes and addresses, views for host memory; returns the CUresult. */
export type DriverFunction = (...args: (number | string | ArrayBufferView)[]) => number

/** All functions of the table. */
export type Functions = Record<FunctionName, DriverFunction>

/** The opened library, as the native driver uses it. */
export interface Library {
  /** the path under which it was found */
  readonly path: string
  /** Throws CudaError 500 if this driver is too old to have the function. */
  bind(name: FunctionName): DriverFunction
  /** Calls a function in another thread; `done` gets its result in a later turn of the event loop. */
  start(name: FunctionName, args: readonly number[], done: (code: number) => void): void
  /** The address of the first byte, valid while the buffer of the view is referenced. */
  addressOf(view: ArrayBufferView): number
  /** The NUL-terminated text at an address. */
  textAt(address: number): string
  /** The pages of host memory; null in a library of no system. */
  readonly pages: HostPages | null
}

/** The paths to try, in order. The dynamic linker searches for a bare name. */
const LIBRARY_PATHS: readonly string[] = ['libcuda.so.1', 'libcuda.so', '/usr/lib/wsl/lib/libcuda.so.1']

const SYSTEMS: Readonly<Record<string, string>> = { win32: 'Windows', darwin: 'macOS', linux: 'Linux' }

/**
 * Opens the library of the CUDA driver. Throws NoDeviceError if it is missing or the platform is not supported, or,
 * with a NoLibraryError as its cause, if koffi is missing. Throws CudaError if the library cannot be loaded.
 */
export function openLibrary(paths = LIBRARY_PATHS, platform: string = process.platform, arch = process.arch): Library {
  if (platform !== 'linux' || (arch !== 'x64' && arch !== 'arm64')) {
    throw new NoDeviceError(
      `GPUs work on Linux (x64 and arm64) and in WSL, not on ${SYSTEMS[platform] ?? platform} (${arch}); ` +
        "recordings and openDevice('simulated') work here",
    )
  }
  const koffi = koffiForDevice()
  for (const path of paths) {
    const loaded = load(koffi, path)
    if (loaded === null) continue
    keepOpen(koffi, path)
    return {
      path,
      bind: name => bind(loaded, name),
      start: (name, args, done) => {
        checkDeepStack() // as in bindFunctions
        bind(loaded, name).async(...args, (_error: unknown, code: number) => done(code))
      },
      addressOf: view => Number(koffi.address(view)),
      textAt: address => koffi.decode.string(address),
      pages: HostPages.open(),
    }
  }
  throw new NoDeviceError(
    `no CUDA driver: none of ${paths.join(', ')} could be found; install the NVIDIA driver (for WSL, that of Windows), ` +
      "or use openDevice('simulated')",
  )
}

function koffiForDevice(): Koffi {
  try {
    return loadKoffi()
  } catch (error) {
    if (!(error instanceof NoLibraryError)) throw error
    throw new NoDeviceError(`no GPU can be used: ${error.message}; or use openDevice('simulated')`, { cause: error })
  }
}

/**
 * The functions of the table, bound when they are first called, or `atOnce`. In a worker they are bound at once: Node
 * ends the process when a worker is terminated while koffi binds a function. A function that this driver does not
 * have throws when it is called.
 */
export function bindFunctions(library: Library, atOnce: boolean): Functions {
  const functions = {} as Functions
  for (const name of FUNCTION_NAMES) {
    functions[name] = (...args) => {
      checkDeepStack() // koffiPrototype compiles regular expressions, for which V8 aborts the process on a full stack
      functions[name] = library.bind(name)
      return functions[name](...args)
    }
  }
  if (atOnce) bindAll(library, functions)
  return functions
}

function bindAll(library: Library, functions: Functions): void {
  checkDeepStack() // as above
  for (const name of FUNCTION_NAMES) {
    try {
      functions[name] = library.bind(name)
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
    }
  }
}

interface Loaded {
  readonly handle: LibraryHandle
  /** the latest CUDA that the driver supports, 12040 for 12.4 */
  readonly version: number
}

/** The library at `path`; null if it does not exist. */
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

function bind({ handle, version }: Loaded, name: FunctionName): ReturnType<LibraryHandle['func']> {
  try {
    return handle.func(koffiPrototype(name))
  } catch (error) {
    const [symbol, , since] = DRIVER_TABLE[name]
    if (!(error as Error).message.startsWith(`Cannot find function '${symbol}'`)) throw error
    const present = `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
    const detail = `this driver (version ${present}) does not have ${symbol}; it needs driver ${since}`
    throw new CudaError(name, RESULT.CUDA_ERROR_NOT_FOUND, 'CUDA_ERROR_NOT_FOUND', detail)
  }
}
