// A thread that captures and launches graphs of a shared group at random, for graph-threads.fixture.ts. Each graph
// writes a value of its own to scratch, and copies it to an output from there: launches side by side would mix values.
// The thread posts counts of its steps, and ends as the test says.

import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import { KiB } from '../src/core/base/bytes.js'
import { PoolError } from '../src/core/base/errors.js'
import { Random } from '../src/core/base/random.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import type { Graph } from '../src/core/order/graph.js'
import type { Stream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { GraphGroup } from '../src/core/pool/caching/captures/graph-group.js'
import type { SharedGraphGroup } from '../src/core/pool/caching/captures/group-captures.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'

/** How the thread ends: it closes the pool, or just stops; in the middle of a capture, or with a launch under way. */
export const ENDINGS = ['close', 'leave', 'exit', 'exitInCapture', 'exitAfterLaunch'] as const
/** It goes on until it is terminated. */
type Ending = (typeof ENDINGS)[number] | 'terminated'

export interface GraphThreadData {
  readonly pool: SharedPoolDescriptor
  readonly group: SharedGraphGroup
  readonly seed: number
  readonly steps: number
  /** buffers are so many times larger than on a simulated device */
  readonly scale: number
  readonly ending: Ending
  /** counts the steps of the thread, from 1 once the pool is attached */
  readonly progress: Int32Array
}

interface Subject {
  readonly graph: Graph<DeviceBuffer>
  readonly value: number
  /** whether a launch has written the output */
  isWritten: boolean
}

export class GraphProgram {
  readonly taken = { capture: 0, launch: 0, check: 0, close: 0, refused: 0 }
  private readonly random: Random
  private readonly subjects: Subject[] = []
  private values = 0

  constructor(
    private readonly pool: SharedPool,
    private readonly group: GraphGroup,
    private readonly streams: readonly Stream[],
    seed: number,
    private readonly scale: number,
  ) {
    this.random = new Random(seed)
    this.values = this.random.below(200)
  }

  run(steps: number, progress: Int32Array): void {
    for (let step = 0; step < steps; step++) {
      Atomics.add(progress, 0, 1)
      this.step()
    }
  }

  step(): void {
    const choice = this.random.below(12)
    if (choice < 3) this.capture()
    else if (choice < 8) this.launch()
    else if (choice < 11) this.check()
    else this.close()
  }

  /** Ends what the thread has begun. */
  finish(): void {
    while (this.subjects.length > 0) this.close()
  }

  beginCapture(): void {
    const [stream] = this.streams
    this.unlessRefused(() => {
      this.group.beginCapture(stream, 'threadLocal')
      this.pool.allocate(100 * KiB, stream)
      this.group.allocateOutput(100 * KiB, stream, 'own')
    })
  }

  private capture(): void {
    const stream = this.any(this.streams)
    const value = 1 + (this.values++ % 200)
    const bytes = this.scale * (4 * KiB + this.random.below(100 * KiB))
    const isHeld = this.random.below(4) === 0
    const made: DeviceBuffer[] = []
    const isMade = this.unlessRefused(() => {
      const graph = this.group.capture(
        stream,
        () => {
          const result = isHeld ? this.pool.allocate(bytes, stream) : this.group.allocateOutput(bytes, stream, 'own')
          made.push(result)
          const scratch = this.pool.allocate(bytes + this.scale * this.random.below(400 * KiB), stream)
          made.push(scratch)
          scratch.fill(value)
          result.copyFrom(scratch, 0, 0, bytes)
          scratch.free()
          return result
        },
        'threadLocal',
      ) // readSync of another thread would break a 'global' one
      this.subjects.push({ graph, value, isWritten: false })
    })
    if (isMade) this.taken.capture++
    else for (const buffer of made) if (!buffer.freed) buffer.free()
    if (this.subjects.length > 6) this.close()
  }

  launch(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined) return
    subject.graph.launch() // on the stream of the result, so that uses come after it
    subject.isWritten = true
    this.taken.launch++
  }

  private check(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || !subject.isWritten) return
    const { result } = subject.graph
    const copy = this.pool.allocate(result.byteLength, result.stream)
    copy.copyFrom(result)
    for (const bytes of [result.readSync(), copy.readSync()]) {
      const wrong = bytes.findIndex(byte => byte !== subject.value)
      if (wrong !== -1) throw new Error(`byte ${wrong} of a result of ${subject.value} is ${bytes[wrong]}`)
    }
    copy.free()
    this.taken.check++
  }

  private close(): void {
    const [subject] = this.subjects.splice(this.random.below(this.subjects.length), 1)
    if (subject === undefined) return
    const { graph } = subject
    if (this.random.below(2) === 0) graph.result.free()
    graph.close()
    if (!graph.result.freed) graph.result.free()
    this.taken.close++
  }

  /** Another thread may be in a capture, and a held buffer may lie where other graphs write. */
  private unlessRefused(work: () => void): boolean {
    try {
      work()
      return true
    } catch (error) {
      if (!(error instanceof PoolError)) throw error
      this.taken.refused++
      return false
    }
  }

  private any<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]
  }
}

function runThread({ pool: shared, group, seed, steps, scale, ending, progress }: GraphThreadData): void {
  const device = attachDevice(shared.device)
  const pool = attachPool(shared) as SharedPool
  const streams = [device.createStream(), device.createStream()]
  const program = new GraphProgram(pool, pool.attachGraphGroup(group), streams, seed, scale)
  program.run(ending === 'terminated' ? Infinity : steps, progress)
  if (ending === 'close') {
    program.finish()
    pool.close()
    device.close()
  } else if (ending === 'leave') pool.close()
  else if (ending === 'exitInCapture') program.beginCapture()
  else if (ending === 'exitAfterLaunch') program.launch()
  parentPort!.postMessage(program.taken)
}

if (!isMainThread && workerData?.does === 'graphs') runThread(workerData as GraphThreadData)
