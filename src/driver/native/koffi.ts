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
