// V8 inlines the cached path as `docs/internals/v8.md` says. The tests read the optimizing compiler's own trace of a
// child process, so they need neither a GPU nor a clock.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'

const BUILDS = { 'the compiler’s output': '../../index.js', 'the bundles': '../../../lib/index.js' }

/** V8 inlines 920 bytes of bytecode into a function. The rest is for changes of the cached path. */
const BUDGET = 820

/** Names of the functions that V8 inlined into `loop` of a program with this build when it compiled it last. */
function inlinedInto(program: string, build = BUILDS['the compiler’s output']): string[] {
  const index = JSON.stringify(new URL(build, import.meta.url).href)
  const source = `
    const { openDevice } = await import(${index})
    const device = openDevice('simulated')
    const stream = device.createStream()
    ${program}
  `
  // V8 compiles on the main thread only, so that the trace is whole when the process ends.
  const budget = `--max-inlined-bytecode-size-cumulative=${BUDGET}`
  const flags = ['--trace-turbo-inlining', '--no-concurrent-recompilation', budget, '--input-type=module']
  const { stdout, stderr, status } = spawnSync(process.execPath, [...flags, '-e', source], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  const inlined = [
    ...stdout.matchAll(
      /^Inlining \S+ \{\S+ <SharedFunctionInfo (\S+)>\} into (\S+) \{\S+ <SharedFunctionInfo loop>\}/gm,
    ),
  ]
  const latest = inlined.at(-1)?.[2]
  const names = inlined.filter(([, , compiled]) => compiled === latest).map(([, name]) => name)
  return [...new Set(names)].sort()
}

const pairs = (pool: string, rounds: number) => `
  const pool = ${pool}
  function loop(count) {
    for (let step = 0; step < count; step++) pool.allocate(4096, stream).free()
  }
  for (let round = 0; round < 40; round++) loop(${rounds})
`
/** Pools that free through `freeSlowly`, used before the loop that matters. */
const OTHERS = `
  for (const slow of [device.createPlainPool(), device.createDriverPool()]) {
    for (let step = 0; step < 3000; step++) slow.allocate(4096, stream).free()
  }
`

/** Sizes in random order: the caches often lack a block. Used before the loop that matters. */
const MIXED = `
  const mixed = device.createPool()
  const held = new Array(200).fill(null)
  for (let step = 0; step < 40_000; step++) {
    const index = (step * 7919) % held.length
    held[index]?.free()
    held[index] = mixed.allocate(256 << (step * 31) % 17, stream)
  }
`

describe('V8 inlines', () => {
  const cached = ['DeviceBuffer', 'allocate', 'free', 'handOut', 'put', 'releaseBlock', 'stackFor', 'take']
  for (const [name, build] of Object.entries(BUILDS)) {
    it(`every function of a cached allocation and free into their loop, in ${name}`, () => {
      assert.deepEqual(inlinedInto(pairs('device.createPool()', 10_000), build), cached)
    })
  }

  it('the same where slow pools were used before', () => {
    const inlined = inlinedInto(OTHERS + pairs('device.createPool()', 10_000))
    assert.deepEqual(
      inlined.filter(name => name !== 'freeSlowly'),
      cached,
    )
  })

  it('the same where the caches often lacked a block before', () => {
    const inlined = inlinedInto(MIXED + pairs('device.createPool()', 10_000))
    assert.deepEqual(
      cached.filter(name => !inlined.includes(name)),
      [],
      `of ${inlined}`,
    )
  })

  it('every function of a block pool’s allocation and free into their loop', () => {
    const blocks = inlinedInto(pairs('device.createBlockPool({ blockBytes: 4096, count: 100 })', 10_000))
    for (const name of ['DeviceBuffer', 'allocate', 'free', 'releaseBlock'])
      assert.ok(blocks.includes(name), `${name} of ${blocks}`)
  })

  it('no release of a slow pool into a loop that frees', () => {
    for (const pool of ['device.createPlainPool()', 'device.createDriverPool()']) {
      const inlined = inlinedInto(pairs(pool, 1000))
      assert.ok(inlined.includes('free'), `the loop was compiled: ${inlined}`)
      assert.ok(!inlined.some(name => name.startsWith('release')), `${pool}: ${inlined}`)
    }
  })
})
