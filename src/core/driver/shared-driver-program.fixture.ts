// A program that uses the driver of another thread, shares a driver of its own, and then must exit.
// shared-driver.test.ts runs it.

import { inThread, OwnerThread } from './driver-threads.worker.js'
import { connectDriver, shareDriver } from './shared-driver.js'
import { openSimulated } from './simulated/opened.fixture.js'

connectDriver(new OwnerThread().open()).cuInit()
await inThread(shareDriver(openSimulated()), 'threadStream')
console.log('done')
