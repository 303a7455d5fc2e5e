// The thread of a pool's keeper: started with the state of a pool that threads share, it keeps that until the pool is closed.

import { workerData } from 'node:worker_threads'
import type { SharedDevice } from './device.js'
import { Context } from './driver/context.js'
import { connectDriver } from './driver/shared-driver.js'
import { Clocks } from './order/clocks.js'
import { Keeper } from './pool/keeper.js'
import { OutsideLock } from './pool/outside-lock.js'
import { seenBy } from './pool/reserve.js'
import { type SharedPoolState, SharedState } from './pool/shared-state.js'

const { device, ...pool } = workerData as SharedPoolState<SharedDevice>
const outside = new OutsideLock(connectDriver(device.driver))
const context = Context.open(outside.driver, device.ordinal)
const clocks = new Clocks(context, device.order)
const state = new SharedState(pool, seenBy(clocks, pool.config))
Keeper.run(state, clocks, pool.config, outside, () => {
  clocks.close()
  context.release()
})
