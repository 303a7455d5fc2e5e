// The main loop of the thread that serves the shared pools which another thread makes of a device. It has the device
// attached while it serves a pool. It sleeps on one doorbell, which all threads that use one of the pools ring.

import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads'
import { Context } from '../../driver/context.js'
import { connectDriver, type SharedDriver } from '../../driver/shared-driver.js'
import { Clocks } from '../../order/clocks.js'
import type { SharedOrder } from '../../order/shared-order.js'
import { Doorbell } from '../../threads/doorbell.js'
import { ThreadStart } from '../../threads/thread-start.js'
import { PoolServer } from './pool-server.js'
import { PoolServerGroup } from './pool-server-group.js'
import { type SharedPoolState, SharedState } from './shared-state.js'
import { UnlockedDriver } from './unlocked-driver.js'

/** The device, as another thread can attach it. */
export interface ServedDevice {
  readonly driver: SharedDriver
  readonly ordinal: number
  readonly order: SharedOrder
}

/** The state of a shared pool, with its device. */
export type ServedPoolState = SharedPoolState<ServedDevice>

/** A pool to serve from now on. */
export interface ServerData {
  readonly state: ServedPoolState
  /** buffer of a ThreadStart for this pool alone */
  readonly start: SharedArrayBuffer
  /** takes the reserved bytes when they have changed; null if the program did not ask for that */
  readonly changes: MessagePort | null
}

/** The worker data of the thread. */
export interface ServerThreadData {
  readonly first: ServerData
  /** receives further pools, and null at the end; the doorbell rings after each message */
  readonly port: MessagePort
  readonly doorbell: SharedArrayBuffer
}

/** Serves pools in this thread until the thread that makes them sends null. */
export function servePools({ first, port, doorbell: buffer }: ServerThreadData, started: ThreadStart): void {
  const doorbell = new Doorbell(buffer)
  const attached = new Attached(first.state.device)
  const servers = new PoolServerGroup(() => {
    if (servers.count === 0) attached.abandon()
  })
  const add = ({ state: { device: _, ...pool }, changes }: ServerData, start: ThreadStart) => {
    try {
      const clocks = attached.attach()
      const state = new SharedState(pool, clocks)
      const onClose = () => {
        if (servers.count === 1) attached.leave()
      }
      const onChange = changes === null ? null : (reservedBytes: number) => changes.postMessage(reservedBytes)
      servers.add(new PoolServer(state, clocks, pool.config, attached.outside, onClose, onChange))
    } catch (error) {
      if (servers.count === 0) attached.abandon()
      start.fail(error)
      return
    }
    start.succeed()
  }
  add(first, started)
  for (;;) {
    const { rings } = doorbell
    for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
      const data = next.message as ServerData | null
      if (data === null) {
        port.close()
        return
      }
      const start = new ThreadStart(data.start)
      if (start.begin()) add(data, start)
    }
    doorbell.sleep(rings, servers.serve())
  }
}

/** This thread's attachment of the device, from the first pool to the last. */
class Attached {
  readonly outside: UnlockedDriver
  private clocks: Clocks | null = null

  constructor(private readonly device: ServedDevice) {
    this.outside = new UnlockedDriver(connectDriver(device.driver))
  }

  attach(): Clocks {
    if (this.clocks !== null) return this.clocks
    const context = Context.open(this.outside.driver, this.device.ordinal)
    try {
      this.clocks = new Clocks(context, this.device.order)
    } catch (error) {
      context.release()
      throw error
    }
    return this.clocks
  }

  /** Detaches the device. If the driver refuses a call, `leave` can be tried again. */
  leave(): void {
    if (this.clocks === null) return
    const { context } = this.clocks
    context.giveBack(() => {
      this.clocks!.close()
      context.destroyRest()
    })
    this.clocks.slots.leave() // of a lost device
    this.clocks = null
    context.release()
  }

  /** The same after a failure; ignores further errors. */
  abandon(): void {
    const { clocks } = this
    if (clocks === null) return
    this.clocks = null
    const { context } = clocks
    const steps = [
      () => clocks.close(),
      () => clocks.slots.leave(),
      () => context.destroyRest(),
      () => context.release(),
    ]
    for (const step of steps) {
      try {
        step()
      } catch {} // the first failure was reported already
    }
  }
}
