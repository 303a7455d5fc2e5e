import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { openDevice } from '../core/device/open.js'
import { SCALE_PTX } from './scale-kernel.js'

const ptxas = (...args: string[]) => spawnSync('ptxas', args, { encoding: 'utf8' })
const noPtxas = ptxas('--version').status !== 0 && 'no ptxas on the PATH'

test('a launch scales as many floats as its count and its threads allow', async () => {
  using device = openDevice('simulated')
  using pool = device.createPool()
  using module = device.loadModule(SCALE_PTX)
  using data = pool.allocateArray(Float32Array, 8)
  const scale = module.kernel('scale')
  data.write(Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8))
  scale.launch({ grid: 1, block: 32 }, data, 0.5, 6)
  scale.launch({ grid: 2, block: 2 }, data, 10, 8)
  assert.deepEqual([...(await data.read())], [5, 10, 15, 20, 2.5, 3, 7, 8])
})

test('the PTX assembles for Turing and Hopper', { skip: noPtxas }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-ptx-'))
  try {
    const file = join(folder, 'scale.ptx')
    writeFileSync(file, SCALE_PTX)
    for (const architecture of ['sm_75', 'sm_90']) {
      const { status, stderr } = ptxas(`-arch=${architecture}`, '-o', `${file}.cubin`, file)
      assert.equal(status, 0, stderr)
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
})
