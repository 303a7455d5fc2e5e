import { createRequire } from 'node:module'

export type Koffi = typeof import('koffi')

const STACK_BYTES = 16 << 20 // koffi's own stacks: its 2 MiB are little for the driver's PTX compiler

/**
 * Loads koffi, which costs 12 ms: when a device or a socket is asked for, never when the package is imported, since most
 * uses (replays, the simulated device) need neither.
 */
export function loadKoffi(): Koffi {
  const koffi = createRequire(import.meta.url)('koffi') as Koffi
  try {
    koffi.config({ sync_stack_size: STACK_BYTES, async_stack_size: STACK_BYTES })
  } catch {
    // refused once this thread has opened a library through koffi, ours or another's: the stacks stay as they are
  }
  return koffi
}

const RTLD_LAZY = 1

/**
 * Opens a library once more, for good: koffi closes one when its last function is collected or its worker ends, and a
 * library that has threads, or that a tool has hooked into, must not go away.
 */
export function keepOpen(koffi: Koffi, path: string): void {
  koffi.load(null).func('void *dlopen(const char *path, int flags)')(path, RTLD_LAZY)
}

/** Whether koffi's `error` says that there is no library at `path`, and not of one that is there that it is broken. */
export function isMissing(error: Error, path: string): boolean {
  const missing = 'No such file or directory'
  const said = [`cannot open shared object file: ${missing}`, `Error loading shared library ${path}: ${missing}`] // glibc, musl
  return said.some(text => error.message === `Failed to load shared library: ${text}`)
}
