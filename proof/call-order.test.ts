// The order of work from the calls, compared with the order of the simulated device, which carries the work out.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError } from '../src/core/base/errors.js'
import { Random } from '../src/core/base/random.js'
import { CU_STREAM_PER_THREAD } from '../src/core/driver/constants.js'
import type { WorkPoint } from '../src/core/driver/simulated/streams/stream-queue.js'
import type { Point } from './call-order.js'
import { ObservedDriver } from './observed-driver.js'

const STEPS = 2000
const BYTES = 4096
const POINTS = 12

/** Random calls of the driver, on few streams, so that most of them meet. */
class Calls {
  ordered = 0
  private readonly driver: ObservedDriver
  private readonly points: { mine: Point; device: WorkPoint }[] = []
  private readonly memory: number
  private readonly streams: number[] = [0, CU_STREAM_PER_THREAD]
  private readonly events: number[]
  private readonly open: number[] = []
  private readonly executables: number[] = []

  constructor(
    private readonly random: Random,
    seed: number,
    progress: 'eager' | 'seeded',
  ) {
    const driver = new ObservedDriver({ seed, progress })
    this.driver = driver
    driver.cuInit()
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    this.memory = driver.cuMemAlloc(BYTES)
    this.events = Array.from({ length: 4 }, () => driver.cuEventCreate(0))
    for (let count = 0; count < 4; count++) this.streams.push(driver.cuStreamCreate(1))
  }

  step(): void {
    const { driver, random, streams, events, open } = this
    const [stream, event] = [this.one(streams), this.one(events)]
    const dice = random.below(100)
    if (dice < 25) this.work(stream)
    else if (dice < 45) driver.cuEventRecord(event, stream)
    else if (dice < 65) driver.cuStreamWaitEvent(stream, event)
    else if (dice < 70) driver.cuEventQuery(event)
    else if (dice < 72) driver.cuEventSynchronize(event)
    else if (dice < 76) driver.cuStreamQuery(stream)
    else if (dice < 77) driver.cuStreamSynchronize(stream)
    else if (dice < 78) driver.cuCtxSynchronize()
    else if (dice < 82) this.hold(stream)
    else if (dice < 85) this.replace(stream)
    else if (dice < 89 && !open.includes(stream)) {
      driver.cuStreamBeginCapture(stream, 2)
      open.push(stream)
    } else if (dice < 94 && open.length > 0) {
      const graph = driver.cuStreamEndCapture(open.splice(random.below(open.length), 1)[0])
      this.executables.push(driver.cuGraphInstantiate(graph))
    } else if (this.executables.length > 0) driver.cuGraphLaunch(this.one(this.executables), stream)
  }

  compare(): void {
    const { driver, points } = this
    for (const later of this.streams) {
      for (const { mine, device } of points) {
        const isOrdered = driver.order.comesBefore(mine, driver.queueOf(later))
        assert.equal(isOrdered, mine.capture?.isGone === true || driver.happensBefore(device, later))
        if (isOrdered) this.ordered++
      }
    }
  }

  /** Remembers some work, to compare it after each step. */
  private work(stream: number): void {
    const { driver, points, random } = this
    driver.cuMemsetD8Async(this.memory, 0, BYTES, stream)
    points[points.length < POINTS ? points.length : random.below(POINTS)] = {
      mine: driver.pointOf(stream),
      device: driver.submitted(stream),
    }
  }

  private hold(stream: number): void {
    if (this.driver.queueOf(stream).capture === null) this.driver.holdOperation(stream)
  }

  private replace(stream: number): void {
    if (stream === 0 || stream === CU_STREAM_PER_THREAD) return
    this.driver.cuStreamDestroy(stream)
    this.streams.splice(this.streams.indexOf(stream), 1, this.driver.cuStreamCreate(1))
  }

  private one(list: readonly number[]): number {
    return list[this.random.below(list.length)]
  }
}

describe('the order of work by the calls', () => {
  for (const progress of ['eager', 'seeded'] as const) {
    it(`is that of the simulated device, with ${progress} work`, () => {
      for (let seed = 1; seed <= 5; seed++) {
        const calls = new Calls(new Random(seed), seed, progress)
        for (let step = 0; step < STEPS; step++) {
          try {
            calls.step()
          } catch (error) {
            if (!(error instanceof CudaError)) throw error // CUDA forbids the call, usually because of a capture
          }
          calls.compare()
        }
        assert.ok(calls.ordered > 10 * STEPS, `${calls.ordered} of them ordered`)
      }
    })
  }
})
