// Kernels launched by kernels, on one heap: compiled and run where the CUDA toolkit is installed, once as it is and
// once under the compute sanitizer, which looks for accesses out of bounds.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { FOLDER, runTool } from './compile-ptx.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-dynamic-'))
const program = join(folder, 'dynamic-parallelism')
after(() => rmSync(folder, { recursive: true }))
const skip = runTool('nvcc', '--version') === null ? 'nvcc is not installed' : false

describe('a heap that kernels and their children use', { skip }, () => {
  before(() => {
    const source = join(FOLDER, 'dynamic-parallelism.cu')
    const built = runTool('nvcc', '-std=c++17', '-rdc=true', '-arch=native', source, '-lcudadevrt', '-o', program)
    assert.equal(built?.failed, false, built?.output)
  })

  it('is empty when all have freed what they took', () => {
    const { stdout, stderr } = spawnSync(program, { encoding: 'utf8' })
    const found = JSON.parse(stdout || `{ "error": ${JSON.stringify(stderr)} }`)
    const wrong = { liveBlocks: 0, doubleFrees: 0, invalidFrees: 0, faults: 0 }
    assert.deepEqual(found, { error: 'no error', allocations: 10 * (2 + 2 * 2048), ...wrong })
  })

  it('is never accessed out of bounds', t => {
    const found = runTool('compute-sanitizer', '--tool', 'memcheck', '--error-exitcode', '3', program)
    if (found === null) return t.skip('the compute sanitizer is not installed')
    if (found.output.includes('not supported')) return t.skip('the compute sanitizer does not know this device')
    assert.equal(found.failed, false, found.output)
    assert.match(found.output, /ERROR SUMMARY: 0 errors/)
  })
})
