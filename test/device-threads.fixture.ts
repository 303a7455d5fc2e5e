// A device, and threads that attach it, for the tests of devices in several threads.

import { once } from 'node:events'
import { after } from 'node:test'
import { Worker } from 'node:worker_threads'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { tasks } from './device.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const PROGRAM = threadProgram(new URL('./device.worker.js', import.meta.url))

const threads: Worker[] = []
after(() => Promise.all(threads.map(thread => thread.terminate())))

export const open = () => openDevice(new SimulatedDriver({ progress: 'eager', devices: 2 }))

/** A thread that has the device attached and does a task; then it waits, and terminates when told. */
export function start<T extends keyof typeof tasks>(device: Device, task: T, ...args: unknown[]) {
  const thread = new Worker(PROGRAM, { workerData: { attaches: true, device: device.share(), task, args } })
  threads.push(thread)
  const done = once(thread, 'message').then(([result]) => result as ReturnType<(typeof tasks)[T]>)
  done.catch(() => {})
  return { thread, done }
}
