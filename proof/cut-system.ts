// A pool whose calls are cut short at each point, its programs, and the work that uses their buffers. The simulated
// device, which knows the order of all work, checks what is handed out.

import assert from 'node:assert/strict'
import { MiB } from '../src/core/base/bytes.js'
import { PoolError } from '../src/core/base/errors.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { Stream } from '../src/core/order/stream.js'
import type { ArenaMark } from '../src/core/pool/arena/arena-mark.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { Pool } from '../src/core/pool/pool.js'
import { type CUTS, CutPoints, choosePoints } from './cut-points.js'

export const CAPACITY_BYTES: number = 512 * MiB
/** The most points at which a program is cut short; the seed chooses them. */
export const MOST_POINTS = Number(process.env['CUTS_POINTS'] ?? 1000)

type Work = ReturnType<SimulatedDriver['submitted']>

/** A buffer, and the latest work on it; work of stream `a` or `b` that has not run. */
interface Use {
  readonly buffer: DeviceBuffer
  readonly ptr: number
  readonly stream: Stream
  work: Work
}

export class System<P extends Pool> {
  readonly driver = new SimulatedDriver({ capacityBytes: CAPACITY_BYTES, progress: 'eager' })
  readonly device: Device = openDevice(this.driver)
  readonly streams = [this.device.createStream(), this.device.createStream(), this.device.createStream()] as const
  readonly pool: P
  readonly uses: Use[] = []
  /** buffers that a program has allocated, noted before its next call */
  readonly held: DeviceBuffer[] = []
  readonly marks: ArenaMark[] = []

  constructor(open: (device: Device) => P) {
    this.pool = open(this.device)
  }

  /** Lets work on a stream use a buffer, which is to be allocated there or announced. */
  use(buffer: DeviceBuffer, stream: Stream = buffer.stream): DeviceBuffer {
    this.uses.push({ buffer, ptr: buffer.ptr, stream, work: this.submit(stream) })
    return buffer
  }

  /** Uses all live buffers again. */
  useAgain(): void {
    for (const use of this.uses) if (!use.buffer.freed) use.work = this.submit(use.stream)
  }

  private submit(stream: Stream): Work {
    this.driver.holdOperation(stream.handle)
    return this.driver.submitted(stream.handle)
  }

  /** Asserts that a new buffer is not in use, and that work on its stream comes after all earlier uses. */
  assertSafe({ ptr, byteLength, stream }: DeviceBuffer): void {
    for (const use of this.uses) {
      if (use.ptr < ptr || use.ptr >= ptr + byteLength) continue
      assert.ok(use.buffer.freed, 'live memory is not handed out')
      assert.ok(this.driver.happensBefore(use.work, stream.handle), 'work on new memory comes after all that used it')
    }
  }

  /** Waits for the device, and forgets all uses, buffers and marks. */
  forget(): void {
    this.device.synchronize()
    for (const list of [this.uses, this.held, this.marks]) list.length = 0
  }
}

type Closable = Pool & { close(): unknown }

export interface Subject<P extends Closable> {
  readonly classes: readonly { readonly prototype: object }[]
  readonly open: (device: Device) => P
  /** the state that the programs start from */
  readonly prepare: (system: System<P>) => void
  readonly programs: Readonly<Record<string, (system: System<P>) => void>>
  /** Asserts that the pool is whole, and that it has nothing live afterwards. */
  readonly settle: (system: System<P>) => void
}

/**
 * Cuts each program short at each point, and runs it again. Returns how often the pool said that a call was cut
 * short.
 */
export function cutAtEach<P extends Closable>(
  cut: (typeof CUTS)[number],
  { classes, open, prepare, programs, settle }: Subject<P>,
  seed: number,
): number {
  const points = new CutPoints(classes, cut)
  let said = 0
  try {
    for (const [name, program] of Object.entries(programs)) {
      let system = new System(open)
      const renew = () => {
        close(system)
        system = new System(open)
      }
      prepare(system)
      const count = points.count(() => program(system))
      assert.ok(count > 0)
      settle(system)
      for (const nth of choosePoints(count, MOST_POINTS, seed)) {
        prepare(system)
        points.run(nth, () => program(system))
        try {
          settle(system)
          prepare(system)
          program(system)
          settle(system)
        } catch (error) {
          const isSaid = error instanceof PoolError && error.message.includes('close the pool and create another')
          if (!isSaid) throw new Error(`${name} was cut short where method ${nth} begins`, { cause: error })
          said++
          renew()
        }
        if (nth % 8 === 0) renew() // growth adds up
      }
      close(system)
    }
  } finally {
    points.restore()
  }
  return said
}

export function close({ driver, device, pool }: System<Closable>): void {
  pool.close()
  device.close()
  assert.equal(driver.usedBytes(), 0)
}
