import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { TestDevice } from '../pool.fixture.js'

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

/** Bytes of JavaScript heap that one allocation takes, measured in a process without garbage collection. */
const program = (pool: string, step: string) => `
  const { TestDevice } = await import(${JSON.stringify(fileURLToPath(new URL('../pool.fixture.js', import.meta.url)))})
  const device = new TestDevice()
  const pool = ${pool}
  const stream = device.createStream()
  const kept = new Array(1024)
  function run(count) {
    for (let step = 0; step < count; step++) {
      ${step}
    }
  }
  for (let warm = 0; warm < 30; warm++) run(10_000)
  gc()
  const before = process.memoryUsage().heapUsed
  run(200_000)
  console.log((process.memoryUsage().heapUsed - before) / 200_000)
`
const PAIR = 'const buffer = pool.allocate(4096, stream); kept[step & 1023] = buffer; buffer.free()'
const APPEND = 'if ((step & 1023) === 0) pool.reset(stream); kept[step & 1023] = pool.allocate(4096, stream)'

for (const [path, pool, step] of [
  ['the cached path', 'device.createPool()', PAIR],
  ['an arena', 'device.createArenaPool({ bytes: 2 ** 23 })', APPEND],
  ['a block pool', 'device.createBlockPool({ blockBytes: 4096, count: 100 })', PAIR],
  ['a block pool with larger blocks', 'device.createBlockPool({ blockBytes: 5000, count: 100 })', PAIR],
] as const) {
  test(`${path} allocates the buffer object and nothing else`, () => {
    const flags = ['--expose-gc', '--max-semi-space-size=256', '--min-semi-space-size=256', '--input-type=module']
    const { stdout, stderr } = spawnSync(process.execPath, [...flags, '-e', program(pool, step)], { encoding: 'utf8' })
    const bytes = Number(stdout)
    // Three words of header and two fields; a second object, or a boxed number, would take 16 bytes more at least.
    assert.ok(bytes >= 36 && bytes < 48, `${bytes} bytes for each allocation ${stderr}`)
  })
}
