// NCCL over libnccl: its contract over two GPUs, each a rank of this process, and ranks in processes of their own,
// which may share a GPU. Fails without a GPU; is skipped without libnccl, and the contract with one GPU.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { NoLibraryError } from '../core/base/errors.js'
import { NativeDriver } from '../core/driver/native/native-driver.js'
import { withKilledRank } from './killed-rank.fixture.js'
import { NativeNccl } from './native-nccl.js'
import { ncclSuite } from './nccl.suite.js'
import { openNcclLibrary } from './nccl-library.js'

/** The number of GPUs. */
function countOf(): number {
  const driver = NativeDriver.open()
  driver.cuInit()
  return driver.cuDeviceGetCount()
}

/** Why libnccl cannot be used here; false when it can. */
function obstacle(): string | false {
  try {
    openNcclLibrary()
    return false
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}

const gpus = countOf()
const missing = obstacle()
const skip = gpus < 2 ? `this needs two GPUs, and the driver finds ${gpus}` : missing

describe('two GPUs', { skip }, () => {
  if (skip === false) ncclSuite('libnccl', () => ({ driver: NativeDriver.open(), nccl: NativeNccl.open() }))
})

describe('ranks in processes of their own', { skip: missing }, () => {
  it('survive a rank that is killed', async () => {
    const [beside, left] = await withKilledRank(3, Math.min(gpus, 3))
    assert.deepEqual(beside, Array(2).fill({ sums: true, kept: true, error: 'ERR_COMMUNICATOR' }))
    assert.deepEqual(left, Array(2).fill({ sums: true, kept: true, error: null }))
  })
})
