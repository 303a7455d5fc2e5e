// The modules of this folder: `control` is a part of the package, `trials` is for tests and benchmarks alone.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** `control` initialises, resets and grows the memory of kernels; `trials` allocates, stamps, verifies and frees. */
export type PtxModule = 'control' | 'trials'
export const MODULES: readonly PtxModule[] = ['control', 'trials']
/** This folder among the sources, where the PTX is. */
export const FOLDER = fileURLToPath(new URL('../../cuda', import.meta.url))

/** The committed PTX of a module, for `device.loadModule`. */
export function ptxOf(module: PtxModule): string {
  return readFileSync(join(FOLDER, `${module}.ptx`), 'utf8')
}
