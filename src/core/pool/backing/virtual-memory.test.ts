import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MAPPING_CALLS } from '../../driver/driver.js'
import { TestDevice } from '../pool.fixture.js'
import { virtualMemoryObstacle } from './virtual-memory.js'

const CALLS = ['cuDeviceGetAttribute', 'cuMemGetAllocationGranularity', ...MAPPING_CALLS] as const

/** At most `reservations` address reservations were granted. */
function assertAllBack(device: TestDevice, call: string, reservations = 1): void {
  assert.equal(device.freeBytes(), device.totalBytes, call)
  const refused = call === 'cuMemAddressReserve' ? 2 : 0
  assert.ok(device.calls('cuMemAddressReserve') <= refused + reservations, `${call}: addresses are reserved again`)
}

describe('the obstacle to virtual memory', () => {
  for (const code of [2, 999]) {
    it(`the answer is right although one call is refused with ${code}, and no memory is lost`, () => {
      for (const call of CALLS) {
        const device = new TestDevice()
        device.driver.failCall({ call, code })
        assert.equal(virtualMemoryObstacle(device.context), null, call)
        assert.equal(device.freeBytes(), device.totalBytes, call)
      }
    })
  }

  it('temporary refusals are not remembered, and the next probe gives back what is left', () => {
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

  it('a permanent refusal is remembered', () => {
    for (const code of [800, 801]) {
      const device = new TestDevice()
      device.driver.failCall({ call: 'cuMemCreate', code })
      for (let count = 0; count < 2; count++) {
        assert.match(virtualMemoryObstacle(device.context) ?? '', /cuMemCreate failed/)
        assertAllBack(device, 'cuMemCreate')
      }
    }
  })

  it('a full device is no obstacle, since a pool reports the full device itself', () => {
    const device = new TestDevice()
    device.driver.failCall({ call: 'cuMemCreate', code: 2, onwards: true })
    assert.equal(virtualMemoryObstacle(device.context), null)
    device.driver.clearFaults()
    assertAllBack(device, 'cuMemCreate')
  })
})
