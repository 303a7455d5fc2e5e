// The device code that comes with the package: the header for a user's own kernels, and the library's kernels as PTX.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** What the shipped PTX needs at least: PTX 6.3 is CUDA 10.0, compute capability 7.5 is the least that it is compiled for. */
export const SHIPPED_PTX = { version: '6.3', target: 'sm_75', leastDriver: '410.48', leastCuda: '10.0' } as const

/** The folder with `cuda_mempool.cuh`, for nvcc's and NVRTC's option -I. */
export function deviceIncludePath(): string {
  return fileURLToPath(new URL('../../../cuda', import.meta.url))
}

/** The PTX of the kernels that initialise, reset and grow the memory of kernels, for `device.loadModule`. */
export function controlPtx(): string {
  return readFileSync(new URL('../../../cuda/control.ptx', import.meta.url), 'utf8')
}
