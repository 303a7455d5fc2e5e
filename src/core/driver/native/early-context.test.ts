// The reference that the other thread takes on a context is given up once, whoever is first.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { RESULT } from '../constants.js'
import { EarlyContext } from './early-context.js'
import { FakeLibrary } from './fake-library.fixture.js'

/** An early context of device 3; the driver writes `handle` and returns `code`. */
function begin(handle: number, code: number = RESULT.CUDA_SUCCESS) {
  const library = new FakeLibrary({
    cuDevicePrimaryCtxRetain: (_address, device) => {
      assert.equal(device, 3)
      library.memory.setBigUint64(0, BigInt(handle), true)
      return code
    },
  })
  const released = { times: 0 }
  const early = new EarlyContext(library, 3, () => released.times++)
  return { library, released, early }
}

describe('a context made in another thread', () => {
  it('is ready as soon as the driver has written its handle', () => {
    assert.equal(begin(2 ** 40).early.isReady, true)
    assert.equal(begin(7).early.isReady, true)
    assert.equal(begin(0).early.isReady, false)
  })

  it('is given up at once if it is ready', () => {
    const { library, released, early } = begin(7)
    early.drop()
    early.drop()
    assert.equal(released.times, 1)
    library.finish()
    assert.equal(released.times, 1)
  })

  it('is given up when the thread ends if it was not ready', () => {
    const { library, released, early } = begin(0)
    early.drop()
    assert.equal(released.times, 0)
    library.finish()
    assert.equal(released.times, 1)
  })

  it('stays if it is never dropped', () => {
    const { library, released } = begin(7)
    library.finish()
    assert.equal(released.times, 0)
  })

  it('is given up after the thread has ended', () => {
    const { library, released, early } = begin(7)
    library.finish()
    early.drop()
    assert.equal(released.times, 1)
  })

  it('is never given up if the driver refuses it', () => {
    const { library, released, early } = begin(0, RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    early.drop()
    library.finish()
    early.drop()
    assert.equal(released.times, 0)
  })
})
