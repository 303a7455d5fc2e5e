import { MiB } from '../base/bytes.js'
import type { ArenaOptions } from './arena/arena-options.js'
import type { PoolOptions } from './caching/options.js'
import { assertConsistent, TestDevice } from './pool.fixture.js'
import type { Pool } from './pool.js'
import { type PoolUnderTest, poolSuite } from './pool.suite.js'
import { fallback } from './wrappers/fallback.js'
import { limited } from './wrappers/limited.js'

function caching(options: PoolOptions): PoolUnderTest {
  const device = new TestDevice()
  const pool = device.createPool(options)
  return { device, pool, check: () => assertConsistent(pool), close: () => pool.close() }
}

function arena(options: ArenaOptions, wrap: (pool: Pool) => Pool = pool => pool): PoolUnderTest {
  const device = new TestDevice()
  const pool = device.createArenaPool(options)
  return { device, pool: wrap(pool), check: () => pool.check(), close: () => pool.close() }
}

function blocks(count: number, maxCount: number, wrap: (pool: Pool) => Pool = pool => pool): PoolUnderTest {
  const device = new TestDevice({ capacityBytes: 256 * MiB })
  const pool = device.createBlockPool({ blockBytes: 3 * MiB, count, maxCount })
  return { device, pool: wrap(pool), check: () => pool.check(), close: () => pool.close() }
}

poolSuite('caching pool, virtual memory', () => caching({ backing: 'virtual' }))
poolSuite('caching pool, segments', () => caching({ backing: 'segments' }))
poolSuite('caching pool, managed memory', () => caching({ backing: 'managed', maxPoolBytes: 64 * MiB }))
poolSuite('caching pool, registrable memory', () => caching({ backing: 'registrable' }))
poolSuite('caching pool, not stream-ordered', () => caching({ streamOrdered: false }))
poolSuite('caching pool, powers of two', () => caching({ sizeClasses: 'powerOfTwo' }))
poolSuite('caching pool, blocks of 4 KiB', () => caching({ minBlockBytes: 4096 }))
poolSuite('caching pool, giving back at once', () => caching({ releaseThresholdBytes: 0 }))

poolSuite('caching pool in debug mode', () => caching({ debug: true }))
poolSuite('caching pool in debug mode, segments', () => caching({ debug: true, backing: 'segments' }))
poolSuite('caching pool in debug mode, registrable', () => caching({ debug: true, backing: 'registrable' }))
poolSuite('caching pool in debug mode, not stream-ordered', () => caching({ debug: true, streamOrdered: false }))
poolSuite('caching pool in debug mode, no more than it must', () =>
  caching({ debug: { sites: 0, redzoneBytes: 0, quarantineBytes: 0 }, crossStreamReuse: 'wait-before-grow' }),
)
poolSuite('limited caching pool in debug mode', () => {
  const { device, pool, check, close } = caching({ debug: { quarantineBytes: Infinity }, maxPoolBytes: 48 * MiB })
  return { device, pool: limited(pool, 32 * MiB), check, close }
})

poolSuite('arena', () => arena({ bytes: 32 * MiB }))
poolSuite('arena of registrable memory', () => arena({ bytes: 32 * MiB, backing: 'registrable' }))
poolSuite('arena that grows', () => arena({ bytes: 300_000, maxPoolBytes: 48 * MiB }))
poolSuite('limited arena', () => arena({ bytes: 32 * MiB }, pool => limited(pool, 32 * MiB)))

poolSuite('arena on a buffer', () => {
  const device = new TestDevice()
  const below = device.createPool()
  const pool = device.createArenaPool({ region: below.allocate(32 * MiB) })
  const close = () => {
    pool.close()
    below.close()
  }
  return { device, pool, check: () => pool.check(), close }
})

poolSuite('block pool', () => blocks(48, 48))
poolSuite('block pool that grows', () => blocks(5, 48))
poolSuite('limited block pool', () => blocks(40, 48, pool => limited(pool, 48 * MiB)))

poolSuite('plain pool', () => {
  const device = new TestDevice()
  const pool = device.createPlainPool()
  return { device, pool, check: () => {}, close: () => pool.close() }
})

poolSuite('driver pool, the default one', () => {
  const device = new TestDevice()
  const pool = device.defaultDriverPool()
  return { device, pool, check: () => {}, close: () => pool.close() }
})

for (const options of [
  {},
  { maxPoolBytes: 48 * MiB, handleTypes: 'posixFileDescriptor' },
  { maxPoolBytes: 48 * MiB, location: 'host' },
  { maxPoolBytes: 48 * MiB, location: { numaNode: 0 } },
  { maxPoolBytes: 48 * MiB, allocationType: 'managed' },
] as const) {
  poolSuite(`driver pool ${JSON.stringify(options)}`, () => {
    const device = new TestDevice()
    const pool = device.createDriverPool(options)
    return { device, pool, check: () => {}, close: () => pool.close() }
  })
}

poolSuite('with fallback', () => {
  const device = new TestDevice()
  const small = device.createPool({ maxPoolBytes: 4 * MiB })
  const plain = device.createPlainPool()
  const close = () => {
    small.close()
    plain.close()
  }
  return { device, pool: fallback(small, plain), check: () => assertConsistent(small), close }
})
