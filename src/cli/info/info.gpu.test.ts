import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspectDevice, usableGpu } from './info.js'

test('on GPU 0 the features of its driver version work', () => {
  const { device, devices, driver, features } = inspectDevice(0, '0')
  assert.equal(device.simulated, false)
  const [major, minor] = driver.version.split('.').map(Number)
  for (const { name, leastDriver, supported, obstacle } of features) {
    const [leastMajor, leastMinor] = leastDriver.split('.').map(Number)
    const isYoung = major > leastMajor || (major === leastMajor && minor >= leastMinor)
    const promised = isYoung && (name !== 'peer access' || devices.length > 1)
    assert.equal(supported, promised, `${name}: ${obstacle}`)
  }
})

test('info --check finds GPU 0', () => {
  const { device, driver } = usableGpu('auto')
  assert.deepEqual([device.ordinal, device.freeBytes > 0, driver.version.length > 0], [0, true, true])
})
