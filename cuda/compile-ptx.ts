// Compiles the kernels of this folder with nvcc. control.ptx is a part of the package and committed: the build runs
// this program, which compiles it if a source changed, and says so if nvcc is missing. trials.ptx lies in dist, where
// tests and benchmarks compile it.
//   node dist/cuda/compile-ptx.js

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { deviceIncludePath, SHIPPED_PTX } from '../src/core/kernel/device-code.js'

/** `control` initialises, resets and grows the memory of kernels; `trials` allocates, stamps, verifies and frees. */
export type PtxModule = 'control' | 'trials'
/** This folder among the sources. */
export const FOLDER = deviceIncludePath()
/** Why tests and benchmarks with the kernels of trials.cu do not run. */
export const NO_TRIALS = 'cuda/trials.cu cannot be compiled: nvcc is not installed'

const FLAGS = ['-std=c++17', `-arch=${SHIPPED_PTX.target.replace('sm', 'compute')}`, '-ptx']

export const readSource = (name: string) => readFileSync(join(FOLDER, name), 'utf8')

/** Identifies what a module was compiled from: its source, the header, and how. */
export function digestOf(module: PtxModule): string {
  const parts = [readSource('cuda_mempool.cuh'), readSource(`${module}.cu`), FLAGS.join(' '), SHIPPED_PTX.version]
  return createHash('sha256').update(parts.join('\0')).digest('hex')
}

/** Runs a tool of the CUDA toolkit; null if it is not installed. Throws if it cannot be run. */
export function runTool(
  tool: 'nvcc' | 'ptxas' | 'compute-sanitizer',
  ...args: string[]
): { failed: boolean; output: string } | null {
  const { error, status, stdout, stderr } = spawnSync(tool, args, { encoding: 'utf8' })
  if ((error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT') return null
  if (error !== undefined) throw error
  return { failed: status !== 0, output: `${stdout}${stderr}` }
}

/** The PTX of a module as nvcc makes it now; null without nvcc. Throws with the compiler's message. */
export function compile(module: PtxModule): string | null {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-ptx-'))
  try {
    const target = join(folder, 'out.ptx')
    const result = runTool('nvcc', ...FLAGS, join(FOLDER, `${module}.cu`), '-o', target)
    if (result === null) return null
    if (result.failed) throw new Error(`nvcc refuses ${module}.cu:\n${result.output}`)
    return shipped(readFileSync(target, 'utf8'), digestOf(module))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Says the least version that the code needs, not the compiler's own, and leaves out hints that it does not know. */
function shipped(ptx: string, digest: string): string {
  const lines = ptx.split('\n').filter(line => !line.startsWith('//') && !line.includes('.pragma "used_bytes_mask'))
  const text = lines.join('\n').replace(/^\.version .*$/m, `.version ${SHIPPED_PTX.version}`)
  return `// Made by cuda/compile-ptx.ts from the sources with the digest ${digest}\n${text.trimStart()}`
}

/** The PTX of a module at `path`, compiled if a source changed; null without nvcc. */
function current(module: PtxModule, path: string): string | null {
  const made = existsSync(path) ? readFileSync(path, 'utf8') : ''
  if (made.includes(digestOf(module))) return made
  const ptx = compile(module)
  if (ptx !== null) writeFileSync(path, ptx)
  return ptx
}

/** The PTX of trials.cu, for `device.loadModule`; null without nvcc, which takes 6 s after a change. */
export function trialsPtx(): string | null {
  return current('trials', fileURLToPath(new URL('trials.ptx', import.meta.url)))
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const ptx = current('control', join(FOLDER, 'control.ptx'))
  if (ptx === null) console.warn('cuda/control.ptx is out of date: install nvcc and build again')
}
