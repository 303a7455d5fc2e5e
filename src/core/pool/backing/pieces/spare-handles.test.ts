import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../../../driver/constants.js'
import { TestDevice } from '../../pool.fixture.js'
import { SpareHandles } from './spare-handles.js'

/** Spare handles of these sizes, in MiB. */
function setUp(...sizes: readonly number[]) {
  const device = new TestDevice()
  const { context } = device
  const spares = new SpareHandles(context)
  const handles = sizes.map(size => {
    const bytes = size * MiB
    const handle = context.activate().cuMemCreate(bytes, context.device, CU_MEM_HANDLE_TYPE_NONE)
    spares.put({ bytes, handle })
    return handle
  })
  const heldMiB = () => (device.totalBytes - device.freeBytes()) / MiB
  return { device, spares, handles, heldMiB }
}

describe('spare handles', () => {
  it('fit by their exact size, and each serves once', () => {
    const { spares, handles, heldMiB } = setUp(2, 4, 2)
    assert.equal(spares.take(4 * MiB), handles[1])
    assert.deepEqual([spares.take(2 * MiB), spares.take(2 * MiB)].sort(), [handles[0], handles[2]].sort())
    assert.deepEqual([spares.isEmpty, spares.take(2 * MiB), heldMiB()], [true, 0, 8])
  })

  it('go back to the device if none fits, until enough bytes are free', () => {
    const { spares, heldMiB } = setUp(2, 2, 4, 4)
    assert.deepEqual([spares.take(6 * MiB), heldMiB()], [0, 4])
    assert.deepEqual([spares.take(60 * MiB), heldMiB(), spares.isEmpty], [0, 0, true])
  })

  it('stay after a refusal, until the next call or the close of the device', () => {
    for (const isClose of [false, true]) {
      const { device, spares, heldMiB } = setUp(2, 4)
      device.driver.failCall({ call: 'cuMemRelease', code: 999, onwards: true })
      assert.throws(() => spares.take(8 * MiB), CudaError)
      spares.discard()
      assert.equal(heldMiB(), 6)
      device.driver.clearFaults()
      if (isClose) device.context.destroyRest()
      else spares.release()
      assert.deepEqual([spares.isEmpty, heldMiB()], [true, 0])
    }
  })
})
