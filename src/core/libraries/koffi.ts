// Loads koffi, the foreign-function library. All files that call C open their libraries through it.

import type { LibraryHandle } from 'koffi'
import { NoLibraryError } from '../base/errors.js'
import { runningFile } from '../base/package-root.js'

export type Koffi = typeof import('koffi')

const STACK_BYTES = 16 << 20 // stacks of koffi; its default of 2 MiB is too little for the driver's PTX compiler

/**
 * Loads koffi, which takes 12 ms. Call it with the first device or socket, never at import of the package: replays
 * and the simulated device do not need it. Throws NoLibraryError if koffi, or its binary for this system, is missing.
 */
export function loadKoffi(): Koffi {
  const koffi = requireKoffi()
  try {
    koffi.config({ sync_stack_size: STACK_BYTES, async_stack_size: STACK_BYTES })
  } catch {
    // koffi refuses after this thread has opened a library: the stacks keep their size
  }
  return koffi
}

/** Bundlers that see an imported `createRequire` follow it, and fail on koffi's binaries. */
function requireKoffi(): Koffi {
  const require = process.getBuiltinModule('node:module').createRequire(runningFile())
  try {
    return require('koffi') as Koffi
  } catch (error) {
    const [reason] = (error as Error).message.split('\n')
    throw new NoLibraryError(
      `koffi, which calls C libraries, cannot be loaded (${reason}); ` +
        "install it with its optional binary ('npm install --include=optional'), and leave it out of a bundle",
      { cause: error },
    )
  }
}

const RTLD_LAZY = 1

/**
 * Opens a library a second time and never closes it. koffi closes a library when its last function is collected or
 * its worker ends. A library with threads, or with hooks of a tool, must stay mapped.
 */
export function keepOpen(koffi: Koffi, path: string): void {
  koffi.load(null).func('void *dlopen(const char *path, int flags)')(path, RTLD_LAZY)
}

/**
 * What `use` makes of the first usable library of `paths`, which stays open. `use` throws for a library that does not
 * suit. Throws NoLibraryError with what `missing` makes of the attempts and their failures.
 */
export function openFirst<T>(
  paths: readonly string[],
  use: (library: LibraryHandle, path: string, koffi: Koffi) => T,
  missing: (tried: string) => string,
): T {
  const koffi = loadKoffi()
  const tried: string[] = []
  for (const path of paths) {
    try {
      const used = use(koffi.load(path), path, koffi)
      keepOpen(koffi, path)
      return used
    } catch (error) {
      tried.push(isMissing(error as Error, path) ? path : `${path} (${(error as Error).message})`)
    }
  }
  throw new NoLibraryError(missing(tried.join(', ')))
}

/** Whether koffi's `error` says that `path` does not exist, not that the library there is broken. */
export function isMissing(error: Error, path: string): boolean {
  const missing = 'No such file or directory'
  const said = [`cannot open shared object file: ${missing}`, `Error loading shared library ${path}: ${missing}`] // glibc, musl
  return said.some(text => error.message === `Failed to load shared library: ${text}`)
}
