// Worker threads for tests of shared drivers: OwnerThread opens simulated drivers for other threads; `inThread` runs
// one of `tasks` in a new thread with the driver of the caller.

import {
  MessageChannel,
  type MessagePort,
  parentPort,
  receiveMessageOnPort,
  Worker,
  workerData,
} from 'node:worker_threads'
import { KiB } from '../base/bytes.js'
import type { CudaError } from '../base/errors.js'
import { CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD } from './constants.js'
import type { Driver } from './driver.js'
import { connectDriver, type SharedDriver, shareDriver } from './shared-driver.js'
import type { SimulatedOptions } from './simulated/options.js'
import { SimulatedDriver } from './simulated/simulated-driver.js'
import './images.fixture.js'
import './store-kernel.fixture.js'

const URL_HERE = new URL(import.meta.url)

interface Order {
  readonly options: SimulatedOptions
  readonly port: MessagePort
  readonly done: Int32Array
}

/** A thread that opens drivers for other threads from its event loop. */
export class OwnerThread {
  readonly worker = new Worker(URL_HERE, { workerData: { role: 'owner' } })

  constructor() {
    this.worker.unref()
  }

  /** Opens a driver in the thread, and waits for it. */
  open(options: SimulatedOptions = {}): SharedDriver {
    const { port1, port2 } = new MessageChannel()
    const done = new Int32Array(new SharedArrayBuffer(4))
    const order: Order = { options, port: port2, done }
    this.worker.postMessage(order, [port2])
    Atomics.wait(done, 0, 0)
    const shared = receiveMessageOnPort(port1)!.message as SharedDriver
    port1.close()
    return shared
  }
}

/** The tasks of another thread, by name. */
export const tasks = {
  /** The result code of a call without a current context. */
  contextOfItsOwn(driver: Driver): number {
    try {
      driver.cuMemAlloc(512)
      return 0
    } catch (error) {
      return (error as CudaError).result
    }
  },

  /** Releases the context after the owner has released it. */
  releaseContext(driver: Driver): void {
    driver.cuDevicePrimaryCtxRelease(0)
  },

  /** Registers memory, and submits copies from and to it behind a held operation. */
  registerAndRead(driver: Driver, memory: SharedArrayBuffer, source: number, stream: number): void {
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    const host = new Uint8Array(memory, 1024, 1024)
    driver.cuMemHostRegister(host, 0)
    driver.cuMemcpyDtoHAsync(host.subarray(0, 512), source, stream)
    driver.cuMemcpyHtoDAsync(source, host.subarray(512), stream)
  },

  hostAddress(driver: Driver, memory: SharedArrayBuffer): number {
    return driver.hostAddress(new Uint8Array(memory, 16))
  },

  unregister(driver: Driver, memory: SharedArrayBuffer): void {
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    driver.cuMemHostUnregister(new Uint8Array(memory, 1024, 1024))
  },

  /** Fills, copies and reads back `rounds` times; returns the number of wrong bytes. */
  work(driver: Driver, value: number, rounds: number): number {
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    let wrong = 0
    for (let round = 0; round < rounds; round++) {
      const ptr = driver.cuMemAlloc(KiB)
      driver.cuMemsetD8Async(ptr, value, KiB, stream)
      driver.cuStreamSynchronize(stream)
      const back = new Uint8Array(KiB)
      driver.cuMemcpyDtoH(back, ptr)
      wrong += back.filter(byte => byte !== value).length
      driver.cuMemFree(ptr)
    }
    return wrong
  },

  threadStream(driver: Driver): number {
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    return driver.cuStreamGetId(CU_STREAM_PER_THREAD)
  },

  /** Only connects. */
  nothing(): void {},
} as const satisfies Record<string, (driver: Driver, ...args: never[]) => unknown>

type Task = keyof typeof tasks

/** Runs `task` in a new thread with a driver of this thread, and resolves with its result when the thread ends. */
export function inThread(shared: SharedDriver, task: Task, ...args: readonly unknown[]): Promise<unknown> {
  const worker = new Worker(URL_HERE, { workerData: { role: 'caller', shared, task, args } })
  return new Promise((resolve, reject) => {
    let result: unknown
    worker.on('message', message => {
      result = message
    })
    worker.on('error', reject)
    worker.on('exit', () => resolve(result))
  })
}

if (workerData?.role === 'owner') {
  parentPort!.on('message', ({ options, port, done }: Order) => {
    port.postMessage(shareDriver(new SimulatedDriver(options)))
    port.close()
    Atomics.store(done, 0, 1)
    Atomics.notify(done, 0)
  })
} else if (workerData?.role === 'caller') {
  const { shared, task, args } = workerData as { shared: SharedDriver; task: Task; args: never[] }
  const act: (driver: Driver, ...args: never[]) => unknown = tasks[task]
  parentPort!.postMessage(act(connectDriver(shared), ...args))
}
