// Every driver call of two captures, their launches and their end fails in turn, once or from then on. Whatever was
// under way, nothing may be lost: streams can be used again, the pool stays consistent, and all memory goes back in
// the end.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../../base/errors.js'
import { Event } from '../../../order/event.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { TestDevice } from '../../pool.fixture.js'

const CAPACITY = 64 * MiB

class Workload {
  refusals = 0
  readonly graphs: Graph[] = []
  private readonly held: DeviceBuffer[] = []
  private readonly streams: [Stream, Stream]

  constructor(
    device: TestDevice,
    private readonly pool = device.createPool({ maxPoolBytes: CAPACITY }),
  ) {
    this.streams = [device.createStream(), device.createStream()]
  }

  run(): void {
    const [a, b] = this.streams
    this.attempt(() => this.hold(10 * MiB, b).fill(1))
    this.attempt(() => this.hold(2 * MiB, a).fill(1))
    for (const [stream, other] of [
      [a, b],
      [b, a],
    ]) {
      const ordinary = this.held.find(buffer => !buffer.freed)
      this.attempt(() => stream.beginCapture())
      this.attempt(() => this.hold(6 * MiB, stream).fill(2))
      this.attempt(() => this.signal(stream, other))
      this.attempt(() => this.hold(3 * MiB, other).fill(3))
      this.attempt(() => this.held.at(-1)?.free())
      this.attempt(() => ordinary?.free(stream))
      this.attempt(() => this.signal(other, stream))
      this.attempt(() => this.graphs.push(stream.endCapture()))
      this.attempt(() => this.graphs.at(-1)?.launch(a))
    }
    this.attempt(() => this.graphs[0]?.launch(b))
    this.attempt(() => this.held.find(buffer => !buffer.freed)?.free())
    this.attempt(() => this.hold(20 * MiB, a).fill(4))
    this.attempt(() => this.graphs[0]?.close())
    this.attempt(() => this.pool.processDeferred())
  }

  /** Ends all of it, which nothing refuses. */
  finish(): void {
    for (const stream of this.streams) if (stream.capture !== null) stream.capture.abort()
    this.pool.check()
    for (const graph of this.graphs) graph.close()
    for (const buffer of this.held) if (!buffer.freed) buffer.free()
    for (const stream of this.streams) stream.synchronize()
    this.pool.check()
    this.pool.trimTo(0)
    for (const stream of this.streams) this.pool.allocate(CAPACITY - 8 * MiB, stream).free()
    this.pool.close()
  }

  private hold(bytes: number, stream: Stream): DeviceBuffer {
    const buffer = this.pool.allocate(bytes, stream)
    this.held.push(buffer)
    return buffer
  }

  private signal(earlier: Stream, later: Stream): void {
    const event = new Event(earlier.context)
    event.record(earlier)
    later.wait(event)
    event.close()
  }

  /** After a call that failed others are refused for it: the stream is not captured, or still is. */
  private attempt(step: () => void): void {
    try {
      step()
    } catch (error) {
      const known = error instanceof CudaError || error instanceof OutOfMemoryError || error instanceof PoolError
      if (!known || (this.refusals === 0 && error instanceof PoolError)) throw error
      this.refusals++
    }
  }
}

describe('driver failures: graphs', () => {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  const workload = new Workload(device)
  const opening = device.callCount
  workload.run()
  const calls = device.callCount - opening

  it('the whole workload is served as long as no call fails', () => {
    assert.equal(workload.refusals, 0)
    assert.equal(workload.graphs.length, 2)
    workload.finish()
    assert.equal(device.freeBytes(), CAPACITY)
  })

  for (const code of [2, 999]) {
    for (const onwards of [false, true]) {
      it(`code ${code}, ${onwards ? 'from the n-th call on' : 'at the n-th call'}, for each of ${calls} calls`, () => {
        for (let nth = 1; nth <= calls; nth++) {
          const failing = new TestDevice({ capacityBytes: CAPACITY })
          const attempt = new Workload(failing)
          failing.driver.failCall({ call: '*', nth, code, onwards })
          attempt.run()
          failing.driver.clearFaults()
          try {
            attempt.finish()
            assert.equal(failing.freeBytes(), CAPACITY)
          } catch (error) {
            throw new Error(`after call ${nth} of ${calls} failed`, { cause: error })
          }
        }
      })
    }
  }
})
