// Compiles the kernels of this folder to the PTX that is committed beside them. The build runs it. It does nothing if
// no source changed, and names the outdated PTX if nvcc is missing.
//   node dist/cuda/compile-ptx.js [--force]

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { SHIPPED_PTX } from '../src/kernel/device-code.js'
import { FOLDER, MODULES, type PtxModule } from './modules.js'

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

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const force = process.argv.includes('--force')
  for (const module of MODULES) {
    const target = join(FOLDER, `${module}.ptx`)
    let committed = ''
    try {
      committed = readFileSync(target, 'utf8')
    } catch {
      // Not there yet.
    }
    if (!force && committed.includes(digestOf(module))) continue
    const ptx = compile(module)
    if (ptx === null) console.warn(`cuda/${module}.ptx is out of date: install nvcc and build again`)
    else {
      writeFileSync(target, ptx)
      console.log(`cuda/${module}.ptx compiled`)
    }
  }
}
