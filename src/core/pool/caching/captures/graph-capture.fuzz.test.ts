// Random captures: memory is given again only along captured edges. SEED replays one.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent } from '../../pool.fixture.js'
import { capture, idleBytes, LIMIT, setUp, signal } from './graph-capture.fixture.js'

/** Captures random work on three streams; checks each grant against the order of the captured nodes. */
function randomCapture(seed: number): number {
  const random = new Random(seed)
  const { device, pool, a, b, c } = setUp()
  const { driver } = device
  const held: { buffer: DeviceBuffer; stream: Stream }[] = []
  const freed: { from: number; to: number; point: ReturnType<typeof driver.submitted> }[] = []
  let reused = 0
  const streams = [a, b, c]
  const graph = capture(a, () => {
    for (const other of [b, c]) signal(a, other)
    for (let step = 0; step < 60; step++) {
      const stream = streams[random.below(3)]
      const choice = random.below(5)
      if (choice === 0) signal(stream, streams[random.below(3)])
      else if (choice < 3 || held.length === 0) {
        const alignment = random.below(6) === 0 ? 4096 : undefined
        const buffer = pool.allocate(1 + random.below(2) * random.below(300 * KiB), stream, alignment)
        const [from, to] = [buffer.ptr, buffer.ptr + buffer.byteLength]
        for (const other of held) {
          assert.ok(
            to <= other.buffer.ptr || from >= other.buffer.ptr + other.buffer.byteLength,
            'live buffers overlap',
          )
        }
        for (const earlier of freed) {
          if (to <= earlier.from || from >= earlier.to) continue
          reused++
          assert.ok(driver.happensBefore(earlier.point, stream.handle), `wrong-order reuse at step ${step}`)
        }
        buffer.fill(step)
        held.push({ buffer, stream })
      } else {
        const [{ buffer, stream: own }] = held.splice(random.below(held.length), 1)
        const on = random.below(3) === 0 ? stream : own
        if (on !== own) signal(own, on)
        freed.push({ from: buffer.ptr, to: buffer.ptr + buffer.byteLength, point: driver.submitted(on.handle) })
        buffer.free(on)
      }
    }
    for (const other of [b, c]) signal(other, a)
  })
  graph.launch(b)
  graph.launch(c)
  assertConsistent(pool)
  for (const { buffer } of held) buffer.free()
  graph.close()
  assert.equal(idleBytes(device, pool), LIMIT)
  return reused
}

describe('random captures', () => {
  it('give memory again only along captured edges', () => {
    const first = Number(process.env['SEED'] ?? 1)
    const count = process.env['SEED'] === undefined ? 150 : 1
    let reused = 0
    for (let seed = first; seed < first + count; seed++) {
      try {
        reused += randomCapture(seed)
      } catch (error) {
        const command = `SEED=${seed} node --test dist/src/core/pool/caching/captures/graph-capture.fuzz.test.js`
        throw new Error(`replay: ${command}`, { cause: error })
      }
    }
    assert.ok(process.env['SEED'] !== undefined || reused > 1000, `only ${reused} reuses`)
  })
})
