// A thread that attaches a device of another one, for device-threads.test.ts, and does there what it is told.

import { parentPort, workerData } from 'node:worker_threads'
import { attachDevice, type Device, type SharedDevice } from './device.js'
import type { SharedEvent } from './order/event.js'
import type { SharedStream } from './order/stream.js'

export const tasks = {
  /** Ticks the clock of a slot `times` times. */
  tick({ clocks }: Device, slot: number, times: number): void {
    for (let count = 0; count < times; count++) clocks.tick(slot)
  },

  /** Opens streams, leaves work on each, and never closes them. */
  openStreams(device: Device, count: number): void {
    for (let opened = 0; opened < count; opened++) device.clocks.mark(device.createStream().slot)
  },

  /** Uses a stream and an event of another thread; returns a stream of its own that waits for both. */
  use(device: Device, shared: SharedStream, event: SharedEvent): { waiting: SharedStream; isSame: boolean } {
    const stream = device.adoptStream(shared)
    const own = device.createStream()
    device.adoptEvent(event).delay(own)
    device.clocks.order(own.slot, stream.slot, device.clocks.marked[stream.slot] + 1, false)
    return { waiting: own.share(), isSame: device.adoptStream(shared) === stream }
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
