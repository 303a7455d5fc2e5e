// A program that uses the driver of another thread, and shares its own, and then has nothing left to do; run by
// shared-driver.test.ts.

import { inThread, OwnerThread } from './driver-threads.worker.js'
import { connectDriver, shareDriver } from './shared-driver.js'
import { openSimulated } from './simulated/opened.fixture.js'

connectDriver(new OwnerThread().open()).cuInit()
await inThread(shareDriver(openSimulated()), 'threadStream')
console.log('done')
