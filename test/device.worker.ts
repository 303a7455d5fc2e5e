// A thread that attaches the main thread's device and does one task there, for device-threads.fixture.ts.

import { parentPort, workerData } from 'node:worker_threads'
import { Random } from '../src/core/base/random.js'
import { attachDevice } from '../src/core/device/attach.js'
import type { Device } from '../src/core/device/device.js'
import type { SharedDevice } from '../src/core/device/shared-pools.js'
import type { SharedEvent } from '../src/core/order/event.js'
import type { SharedStream } from '../src/core/order/stream.js'
import { launcher, type SharedLaunches } from './terminated-launches.fixture.js'

export const tasks = {
  /** Ticks the clock of a slot `times` times. */
  tick({ clocks }: Device, slot: number, times: number): void {
    for (let count = 0; count < times; count++) clocks.tick(slot)
  },

  /** Opens `count` streams, and for ever replaces them, and marks and awaits other threads' streams. */
  churn(device: Device, count: number, seed: number): void {
    const random = new Random(seed)
    const { clocks } = device
    const streams = Array.from({ length: count }, () => device.createStream())
    parentPort!.postMessage(null)
    for (;;) {
      const index = random.below(count)
      const other = random.below(clocks.slotLimit)
      const dice = random.below(8)
      if (dice < 2) {
        streams[index].close()
        streams[index] = device.createStream()
      } else if (dice < 4) clocks.watcher.mark(other)
      else if (dice < 6) clocks.order(streams[index].slot, other, clocks.marked[other], dice === 4)
      else if (dice < 7) clocks.watcher.waitFor(other, clocks.marked[other])
      else clocks.watcher.poll(other)
    }
  },

  /** Uses a stream and an event of the main thread; returns its own stream, which waits for both. */
  use(device: Device, shared: SharedStream, event: SharedEvent): { waiting: SharedStream; isSame: boolean } {
    const stream = device.adoptStream(shared)
    const own = device.createStream()
    device.adoptEvent(event).delay(own)
    device.clocks.order(own.slot, stream.slot, device.clocks.marked[stream.slot] + 1, false)
    return { waiting: own.share(), isSame: device.adoptStream(shared) === stream }
  },

  /** Launches a graph of a group for ever. */
  launchForEver(device: Device, shared: SharedLaunches, value: number): void {
    const { launch } = launcher(device, shared, value)
    for (let time = 0; ; time++) launch(time)
  },

  close(device: Device): void {
    device.close()
  },
}

if (workerData?.attaches) {
  const {
    device: shared,
    task,
    args,
  } = workerData as { device: SharedDevice; task: keyof typeof tasks; args: unknown[] }
  const device = attachDevice(shared)
  const run = tasks[task] as (device: Device, ...args: unknown[]) => unknown
  parentPort!.postMessage(run(device, ...args))
  parentPort!.on('message', next =>
    parentPort!.postMessage((tasks[next as 'close'] as (device: Device) => void)(device)),
  )
}
