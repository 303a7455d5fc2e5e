import { fileURLToPath } from 'node:url'

/**
 * The folder of `cuda_mempool.cuh`, the header for allocating inside kernels: for `-I` of one's own compiler. What
 * `device.compileKernels` compiles finds it by itself.
 */
export function kernelIncludePath(): string {
  return fileURLToPath(new URL('../../../cuda', import.meta.url))
}
