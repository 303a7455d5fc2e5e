import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { TestDevice } from './pool-fixture.suite.js'

test('the cached path asks the driver for nothing', () => {
  const device = new TestDevice()
  const pool = device.createPool()
  const [a, b] = [device.createStream(), device.createStream()]
  for (const stream of [a, b]) pool.allocate(1000, stream).free()
  const before = JSON.stringify([...device.driver.calls])
  for (let round = 0; round < 1000; round++) for (const stream of [a, b]) pool.allocate(1000, stream).free()
  assert.equal(JSON.stringify([...device.driver.calls]), before)
  assert.equal(pool.stats().cacheMisses, 2)
})

/** Bytes of JavaScript heap that one pair of the cached path takes, measured in a process that does not collect meanwhile. */
const PROGRAM = `
  const { TestDevice } = await import(${JSON.stringify(fileURLToPath(new URL('./pool-fixture.suite.js', import.meta.url)))})
  const device = new TestDevice()
  const pool = device.createPool()
  const stream = device.createStream()
  const kept = new Array(1024)
  function pairs(count) {
    for (let pair = 0; pair < count; pair++) {
      const buffer = pool.allocate(4096, stream)
      kept[pair & 1023] = buffer
      buffer.free()
    }
  }
  for (let warm = 0; warm < 30; warm++) pairs(10_000)
  gc()
  const before = process.memoryUsage().heapUsed
  pairs(200_000)
  console.log((process.memoryUsage().heapUsed - before) / 200_000)
`

test('the cached path allocates the buffer object and nothing else', () => {
  const flags = ['--expose-gc', '--max-semi-space-size=256', '--min-semi-space-size=256', '--input-type=module']
  const { stdout, stderr } = spawnSync(process.execPath, [...flags, '-e', PROGRAM], { encoding: 'utf8' })
  const bytes = Number(stdout)
  // Three words of header and five fields; a second object, or a boxed number, would take 16 bytes more at least.
  assert.ok(bytes >= 60 && bytes < 72, `${bytes} bytes for each pair ${stderr}`)
})
