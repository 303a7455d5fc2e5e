// A program that runs the warm-up and then recordings, and prints a line for each part of the pool's code that the
// recordings run and the warm-up does not. V8 counts the runs of each part. It begins before the code is loaded.
// Run: node dist/test/warm-up-coverage.fixture.js RECORDING...

import { readFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import { fileURLToPath } from 'node:url'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'

/** Parts that ran less often are not worth compiling. */
const LEAST_RUNS = 5
const CODE = /\/src\/(pool|heap)\//

interface Coverage {
  readonly result: readonly {
    readonly url: string
    readonly functions: readonly {
      readonly ranges: readonly { readonly startOffset: number; readonly endOffset: number; readonly count: number }[]
    }[]
  }[]
}

const session = new Session()
session.connect()
session.post('Profiler.enable')
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
const { openDevice } = await import('../src/core/device/open.js')
const { WarmUp } = await import('../src/core/device/warm-up.js')
const { Action, readRecording } = await import('../src/entries/trace.js')

new WarmUp().runWhile(() => true)
const warm = runs()
process.argv.slice(2).forEach(replay)
for (const [url, counts] of runs()) {
  const before = warm.get(url)
  const text = readFileSync(fileURLToPath(url), 'utf8')
  for (let from = 0; from < counts.length; from++) {
    let to = from
    while (to < counts.length && counts[to] >= LEAST_RUNS && !before?.[to]) to++
    const code = text.slice(from, to).trim()
    if (code !== '') console.log(`${url.replace(/.*\/src\//, '')}: ${counts[from]} times: ${code.slice(0, 100)}`)
    from = Math.max(from, to)
  }
}

/** For each module how often each character of it ran since the last call. */
function runs(): Map<string, Int32Array> {
  let coverage: Coverage = { result: [] }
  session.post('Profiler.takePreciseCoverage', (_error, taken) => {
    coverage = taken
  })
  const modules = new Map<string, Int32Array>()
  for (const { url, functions } of coverage.result) {
    if (!CODE.test(url)) continue
    const counts = new Int32Array(readFileSync(fileURLToPath(url), 'utf8').length)
    for (const { ranges } of functions)
      for (const { startOffset, endOffset, count } of ranges) counts.fill(count, startOffset, endOffset)
    modules.set(url, counts)
  }
  return modules
}

/** The allocations and frees of a recording, in a pool on a simulated device. */
function replay(file: string): void {
  using device = openDevice('simulated')
  const pool = device.createPool({ maxPoolBytes: '90%' })
  const { events, action, block, blocks, streams } = readRecording(file)
  const ours = streams.map(() => device.createStream())
  const buffers = new Array<DeviceBuffer | null>(blocks.count).fill(null)
  for (let event = 0; event < events; event++) {
    const index = block[event]
    if (action[event] === Action.alloc) buffers[index] = pool.allocate(blocks.bytes[index], ours[blocks.stream[index]])
    else if (action[event] === Action.freeRequested) {
      buffers[index]?.free()
      buffers[index] = null
    }
  }
  for (const buffer of buffers) buffer?.free()
}
