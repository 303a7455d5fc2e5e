import assert from 'node:assert/strict'
import { test } from 'node:test'
import { probe } from './probe.js'

test('probing finds on GPU 0 what a driver of its version promises, and leaves its memory as it was', () => {
  const first = probe(0, '0')
  assert.equal(first.device.simulated, false)
  const [major, minor] = first.driver.version.split('.').map(Number)
  for (const { name, leastDriver, supported, obstacle } of first.features) {
    const [leastMajor, leastMinor] = leastDriver.split('.').map(Number)
    const promised = major > leastMajor || (major === leastMajor && minor >= leastMinor)
    assert.equal(supported, promised, `${name}: ${obstacle}`)
  }
  assert.equal(probe(0, '0').device.freeBytes, first.device.freeBytes)
})
