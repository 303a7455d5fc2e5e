// The figures of watched pools, in each state that a program can bring a pool into.

import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { Writable } from 'node:stream'
import { test } from 'node:test'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import type { HostPool } from '../src/core/pool/host/host-pool.js'
import { Pool } from '../src/core/pool/pool.js'
import { tagged } from '../src/core/pool/wrappers/tagged.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { EventReaders } from '../src/live/event-readers.js'
import { statsOf } from '../src/live/process-stats.js'
import { PoolList } from '../src/live/watched-pools.js'

interface Opened {
  driver: SimulatedDriver
  device: Device
  pools: readonly { close?(): unknown }[]
}

const KINDS: readonly ((
  device: Device,
) => (Pool | HostPool) & { allocate(bytes: number): unknown; close?(): unknown })[] = [
  device => device.createPool(),
  device => device.createPool({ backing: 'segments' }),
  device => device.createPool({ debug: true }),
  device => device.createSharedPool(),
  device => device.createArenaPool({ bytes: 4096 }),
  device => device.createSharedArenaPool({ bytes: 4096 }),
  device => device.createBlockPool({ blockBytes: 4096, count: 4 }),
  device => device.createSharedBlockPool({ blockBytes: 4096, count: 4 }),
  device => device.createHostPool(),
  device => device.createSharedHostPool(),
  device => device.createDriverPool(),
  device => device.defaultDriverPool(),
  device => device.createPlainPool(),
]

/** A reader of events that takes everything. */
function silent(): ServerResponse {
  return Object.assign(new Writable({ write: (_chunk, _encoding, done) => done() }), {
    writeHead: () => {},
  }) as unknown as ServerResponse
}

// A timer reads them: an error there would end the process.
for (const [what, end] of Object.entries({
  'of a closed pool': ({ pools }) => {
    for (const pool of pools) pool.close?.()
  },
  'of a closed device': ({ device }) => device.close(),
  'of a lost device': ({ driver, device }) => {
    driver.failCall({ call: 'cuCtxSynchronize', code: 700 })
    assert.throws(() => device.synchronize(), { result: 700 })
  },
} satisfies Record<string, (opened: Opened) => void>)) {
  test(`figures of each kind of pool are read without an error: ${what}`, () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const pools = KINDS.map(make => make(device))
    for (const pool of pools) pool.allocate(100)
    const readers = pools.map(pool => {
      const list = new PoolList('serve', pool instanceof Pool ? tagged(pool) : pool)
      const ofPool = new EventReaders(() => JSON.stringify(statsOf(list)))
      ofPool.add(silent(), 100)
      return ofPool
    })
    end({ driver, device, pools })
    for (const each of readers) {
      each.send(performance.now() + 1000)
      each.close()
    }
    device.close()
  })
}
