// The figures of watched pools, in each state that a program can bring a pool into.

import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { Writable } from 'node:stream'
import { test } from 'node:test'
import type { Device } from '../src/device/device.js'
import { openDevice } from '../src/device/open.js'
import { SimulatedDriver } from '../src/driver/simulated/index.js'
import { EventReaders } from '../src/live/event-readers.js'
import { statsOf } from '../src/live/process-stats.js'
import { PoolList } from '../src/live/watched-pools.js'
import type { HostPool } from '../src/pool/host/host-pool.js'
import { Pool } from '../src/pool/pool.js'
import { tagged } from '../src/pool/wrappers/tagged.js'

interface Opened {
  device: Device & { driver: SimulatedDriver }
  pool: { close?(): unknown }
}

const KINDS: readonly ((
  device: Device,
) => (Pool | HostPool) & { allocate(bytes: number): unknown; close?(): unknown })[] = [
  device => device.createPool(),
  device => device.createPool({ backing: 'segments' }),
  device => device.createPool({ debug: true }),
  device => device.createPool({ shared: true }),
  device => device.createArenaPool({ bytes: 4096 }),
  device => device.createArenaPool({ bytes: 4096, shared: true }),
  device => device.createBlockPool({ blockBytes: 4096, count: 4 }),
  device => device.createBlockPool({ blockBytes: 4096, count: 4, shared: true }),
  device => device.createHostPool(),
  device => device.createHostPool({ shared: true }),
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
  'of a closed pool': ({ pool }) => pool.close?.(),
  'of a closed device': ({ device }) => device.close(),
  'of a lost device': ({ device }) => {
    device.driver.failCall({ call: 'cuCtxSynchronize', code: 700 })
    assert.throws(() => device.synchronize(), { code: 700 })
  },
} satisfies Record<string, (opened: Opened) => void>)) {
  test(`figures of each kind of pool are read without an error: ${what}`, () => {
    for (const make of KINDS) {
      const driver = new SimulatedDriver()
      const device = Object.assign(openDevice(driver), { driver })
      const pool = make(device)
      const watched = pool instanceof Pool ? tagged(pool) : pool
      pool.allocate(100)
      const list = new PoolList('serve', watched)
      const readers = new EventReaders(() => JSON.stringify(statsOf(list)))
      readers.add(silent(), 100)
      end({ device, pool })
      readers.send(performance.now() + 1000)
      readers.close()
      device.close()
    }
  })
}
