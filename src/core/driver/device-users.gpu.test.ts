import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openNvmlLibrary } from '../libraries/nvml-library.js'
import { usersOf } from './device-users.js'
import { openFirst } from './native/gpu.fixture.js'

test('NVML lists the processes on GPU 0, and tells its persistence mode', t => {
  try {
    openNvmlLibrary()
  } catch (error) {
    t.skip((error as Error).message) // a container may have libcuda without NVML
    return
  }
  const driver = openFirst()
  const device = driver.cuDeviceGet(0)
  const answer = driver.usersOf(device)
  assert.ok(answer !== null)
  for (const { pid, bytes } of answer.processes) {
    assert.ok(Number.isInteger(pid) && (bytes === null || bytes >= 0), `${pid} ${bytes}`) // none in some containers
  }
  assert.ok([true, false, null].includes(answer.persistenceMode))
  assert.ok(!usersOf({ driver, device })!.processes.some(({ pid }) => pid === process.pid))
})
