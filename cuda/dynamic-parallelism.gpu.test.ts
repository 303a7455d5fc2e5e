// Kernels launched by kernels, on one heap: compiled and run where the CUDA toolkit is installed.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { it } from 'node:test'
import { FOLDER, runTool } from './compile-ptx.js'

const skip = runTool('nvcc', '--version') === null ? 'nvcc is not installed' : false

it('children take from and give back to the heap of their parent', { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-dynamic-'))
  try {
    const program = join(folder, 'dynamic-parallelism')
    const source = join(FOLDER, 'dynamic-parallelism.cu')
    const built = runTool('nvcc', '-std=c++17', '-rdc=true', '-arch=native', source, '-lcudadevrt', '-o', program)
    assert.equal(built?.failed, false, built?.output)
    const { stdout, stderr } = spawnSync(program, { encoding: 'utf8' })
    const { allocations, frees, ...rest } = JSON.parse(stdout || `{ "error": ${JSON.stringify(stderr)} }`)
    assert.deepEqual(rest, { error: 'no error', usedSuperblocks: 0, doubleFrees: 0, invalidFrees: 0, faults: 0 })
    assert.deepEqual([allocations, frees], [10 * (2 + 2 * 2048), 10 * (2 + 2 * 2048)])
  } finally {
    rmSync(folder, { recursive: true })
  }
})
