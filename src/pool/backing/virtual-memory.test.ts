import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { TestDevice } from '../pool.fixture.js'
import { virtualMemoryObstacle } from './virtual-memory.js'

const CALLS = [
  'cuDeviceGetAttribute',
  'cuMemGetAllocationGranularity',
  'cuMemAddressReserve',
  'cuMemCreate',
  'cuMemMap',
  'cuMemSetAccess',
  'cuMemUnmap',
  'cuMemRelease',
  'cuMemAddressFree',
] as const

/** `reservations` that the driver granted are the most. */
function assertAllBack(device: TestDevice, call: string, reservations = 1): void {
  assert.equal(device.freeBytes(), device.totalBytes, call)
  const refused = call === 'cuMemAddressReserve' ? 2 : 0
  assert.ok(device.calls('cuMemAddressReserve') <= refused + reservations, `${call}: addresses are reserved again`)
}

describe('whether virtual memory can be used', () => {
  for (const code of [2, 999]) {
    it(`is found out though a call is refused once with ${code}, and nothing is lost`, () => {
      for (const call of CALLS) {
        const device = new TestDevice()
        device.driver.failCall({ call, code })
        assert.equal(virtualMemoryObstacle(device.context), null, call)
        assert.equal(device.freeBytes(), device.totalBytes, call)
      }
    })
  }

  it('is asked again after refusals that say nothing of the next time, and what was left is given back then', () => {
    for (const call of CALLS) {
      const device = new TestDevice()
      device.driver.failCall({ call, code: 999, onwards: true })
      const first = virtualMemoryObstacle(device.context)
      const isUsable = ['cuMemUnmap', 'cuMemRelease', 'cuMemAddressFree'].includes(call)
      assert.match(first ?? 'null', isUsable ? /null/ : new RegExp(`${call} failed.*999`))
      device.driver.clearFaults()
      assert.equal(virtualMemoryObstacle(device.context), null, call)
      assertAllBack(device, call, 2)
      const asked = device.calls('cuDeviceGetAttribute')
      assert.equal(virtualMemoryObstacle(device.context), null)
      assert.equal(device.calls('cuDeviceGetAttribute'), asked, 'the answer is remembered')
    }
  })

  it('that the driver says it never is, is remembered', () => {
    for (const code of [800, 801]) {
      const device = new TestDevice()
      device.driver.failCall({ call: 'cuMemCreate', code })
      for (let count = 0; count < 2; count++) {
        assert.match(virtualMemoryObstacle(device.context) ?? '', /cuMemCreate failed/)
        assertAllBack(device, 'cuMemCreate')
      }
    }
  })

  it('a full device leaves open, since the pool will say so when it is asked for memory', () => {
    const device = new TestDevice()
    device.driver.failCall({ call: 'cuMemCreate', code: 2, onwards: true })
    assert.equal(virtualMemoryObstacle(device.context), null)
    device.driver.clearFaults()
    assertAllBack(device, 'cuMemCreate')
  })
})
