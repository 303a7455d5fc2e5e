// The device code that comes with the package: the header for users' kernels, and the library's own kernels as PTX.

import { readFileSync } from 'node:fs'
import { packageFile } from '../base/package-files.js'

/** The least that the shipped PTX needs: PTX 6.3, which is CUDA 10.0. It is compiled for compute capability 7.5. */
export const SHIPPED_PTX = { version: '6.3', target: 'sm_75', leastDriver: '410.48', leastCuda: '10.0' } as const

/**
 * The folder with `cuda_mempool.cuh`, for nvcc's and NVRTC's option -I. Throws MissingFileError in a bundle, which has
 * no such folder.
 */
export function deviceIncludePath(): string {
  return packageFile('cuda', 'the include path of kernels')
}

/**
 * The PTX of the kernels that initialise, reset and grow device arenas and heaps, for `device.loadModule`. Throws
 * MissingFileError in a bundle.
 */
export function controlPtx(): string {
  return readFileSync(packageFile('cuda/control.ptx', 'device memory for kernels'), 'utf8')
}
