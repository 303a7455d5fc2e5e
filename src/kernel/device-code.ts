// The device code that comes with the package: the header for kernels of one's own, and kernels as PTX.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** What the shipped PTX needs at least: PTX 6.3 is CUDA 10.0, compute capability 7.5 is the least that it is compiled for. */
export const SHIPPED_PTX = { version: '6.3', target: 'sm_75', leastDriver: '410.48', leastCuda: '10.0' } as const

/** `control` initialises, resets and grows the memory of kernels; `trials` allocates, stamps, verifies and frees. */
export type ShippedModule = 'control' | 'trials'

/** The folder with `cuda_mempool.cuh`, for nvcc's and NVRTC's option -I. */
export function deviceIncludePath(): string {
  return fileURLToPath(new URL('../../../cuda', import.meta.url))
}

/** The PTX of kernels that come with the package, for `device.loadModule`. */
export function shippedPtx(module: ShippedModule): string {
  return readFileSync(new URL(`../../../cuda/${module}.ptx`, import.meta.url), 'utf8')
}
