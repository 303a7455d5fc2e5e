import { Context } from '../driver/context.js'
import { connectDriver, type SharedDriver } from '../driver/shared-driver.js'
import { Clocks } from '../order/clocks.js'
import type { SharedOrder } from '../order/shared-order.js'
import { Keeper } from './keeper.js'
import { OutsideLock } from './outside-lock.js'
import { seenBy } from './reserve.js'
import { type SharedPoolState, SharedState } from './shared-state.js'

/** The state of a shared pool with all that its keeper needs of the device. */
export type KeptPoolState = SharedPoolState<{
  readonly driver: SharedDriver
  readonly ordinal: number
  readonly order: SharedOrder
}>

/** What the thread of a keeper is started with. */
export interface KeeperData {
  readonly state: KeptPoolState
  /** of a ThreadStart */
  readonly start: SharedArrayBuffer
}

/** Keeps a pool in this thread until it is closed; `onBegun` is called when it is made. Throws, and leaves nothing, where it cannot be made. */
export function keepPool({ device, ...pool }: KeptPoolState, onBegun: () => void): void {
  const outside = new OutsideLock(connectDriver(device.driver))
  const context = Context.open(outside.driver, device.ordinal)
  let clocks: Clocks | null = null
  let keeper: Keeper
  const leave = () => {
    clocks?.close()
    context.destroyRest()
    context.release()
  }
  try {
    clocks = new Clocks(context, device.order)
    const state = new SharedState(pool, seenBy(clocks, pool.config))
    keeper = new Keeper(state, clocks, pool.config, outside, leave)
  } catch (error) {
    context.discard(() => {
      clocks?.close()
      context.destroyRest()
    })
    context.release()
    throw error
  }
  onBegun()
  keeper.run()
}
