// The contract of NCCL over libnccl and two GPUs, each a rank of this process. Fails without a GPU; is skipped with
// one, and without libnccl.

import { describe } from 'node:test'
import { NoLibraryError } from '../core/base/errors.js'
import { NativeDriver } from '../core/driver/native/native-driver.js'
import { NativeNccl } from './native-nccl.js'
import { ncclSuite } from './nccl.suite.js'
import { openNcclLibrary } from './nccl-library.js'

/** Why the tests cannot run here; false when they can. */
function obstacle(): string | false {
  const driver = NativeDriver.open()
  driver.cuInit()
  const count = driver.cuDeviceGetCount()
  if (count < 2) return `this needs two GPUs, and the driver finds ${count}`
  try {
    openNcclLibrary()
    return false
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}

const skip = obstacle()

describe('two GPUs', { skip }, () => {
  if (skip === false) ncclSuite('libnccl', () => ({ driver: NativeDriver.open(), nccl: NativeNccl.open() }))
})
