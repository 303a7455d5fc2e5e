import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import { type PoolOptions, parsePoolOptions, parseSharedPoolOptions } from './options.js'

const DEVICE_BYTES = 80 * GiB

test('the defaults', () => {
  assert.deepEqual(parsePoolOptions({}, DEVICE_BYTES), {
    maxPoolBytes: 4 * GiB,
    leaveFreeBytes: 0,
    minBlockBytes: 256,
    powerOfTwo: false,
    streamOrdered: true,
    crossStreamReuse: 'wait-before-oom',
    deterministic: false,
    releaseThresholdBytes: Infinity,
    readyBytes: 0,
    backing: 'auto',
    debug: null,
  })
})

test('a limit in bytes, without end, or as a share of the device', () => {
  const limits: readonly [NonNullable<PoolOptions['maxPoolBytes']>, number][] = [
    [8 * GiB, 8 * GiB],
    [200 * GiB, 200 * GiB],
    [256, 256],
    [Infinity, Infinity],
    ['80%', 64 * GiB],
    ['100%', 80 * GiB],
    ['12.5%', 10 * GiB],
    [' 50 %' as '50%', 40 * GiB],
  ]
  for (const [maxPoolBytes, bytes] of limits) {
    assert.equal(parsePoolOptions({ maxPoolBytes }, DEVICE_BYTES).maxPoolBytes, bytes)
  }
  assert.equal(parsePoolOptions({ maxPoolBytes: '33%' }, 1000).maxPoolBytes, 330)
})

test('sizes may be text with a unit', () => {
  const config = parsePoolOptions(
    {
      maxPoolBytes: '4GiB',
      leaveFreeBytes: '1 GiB',
      minBlockBytes: '1KiB',
      releaseThresholdBytes: '80MB',
      debug: { redzoneBytes: '512B', quarantineBytes: '0.5MiB' },
    },
    DEVICE_BYTES,
  )
  const { maxPoolBytes, leaveFreeBytes, minBlockBytes, releaseThresholdBytes, debug } = config
  assert.deepEqual([maxPoolBytes, leaveFreeBytes, minBlockBytes, releaseThresholdBytes], [4 * GiB, GiB, 1024, 80e6])
  assert.deepEqual([debug?.redzoneBytes, debug?.quarantineBytes], [512, MiB / 2])
  assert.equal(parseSharedPoolOptions({ readyBytes: '2MiB' }, DEVICE_BYTES).readyBytes, 2 * MiB)
  for (const name of ['maxPoolBytes', 'leaveFreeBytes', 'minBlockBytes', 'releaseThresholdBytes', 'readyBytes']) {
    const message = new RegExp(`^${name} must be .*size.*, not 'much'`)
    assert.throws(() => parseSharedPoolOptions({ [name]: 'much' }, DEVICE_BYTES), {
      name: 'RangeError',
      message,
    })
  }
})

test('memory can be kept ready in a shared pool', () => {
  assert.equal(parseSharedPoolOptions({ readyBytes: MiB }, DEVICE_BYTES).readyBytes, MiB)
  assert.equal(parseSharedPoolOptions({ readyBytes: 0 }, DEVICE_BYTES).readyBytes, 0)
  assert.equal(parseSharedPoolOptions({ readyBytes: '25%' }, 4 * GiB).readyBytes, GiB)
})

test('every bad option of a shared pool is refused by its name', () => {
  const bad: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
    [{ readyBytes: -1 }, 'RangeError', /readyBytes/],
    [{ readyBytes: Infinity }, 'RangeError', /readyBytes/],
    [{ readyBytes: '1' }, 'TypeError', /readyBytes/],
    [{ readyBytes: 5 * GiB }, 'RangeError', /readyBytes \(5 GiB\) exceeds maxPoolBytes \(4 GiB\)/],
    [{ readyBytes: MiB, deterministic: true }, 'TypeError', /readyBytes and deterministic exclude/],
    [{ debug: true }, 'TypeError', /debug needs a pool of one thread: .*createPool\(\{ debug: true \}\)/],
    [{ maxPoolByte: 1 }, 'TypeError', /createSharedPool: unknown option 'maxPoolByte'.*did you mean maxPoolBytes/],
  ]
  for (const [options, name, message] of bad) {
    assert.throws(() => parseSharedPoolOptions(options as PoolOptions, DEVICE_BYTES), { name, message }, `${message}`)
  }
})

test('undefined is the same as left out', () => {
  const left = { maxPoolBytes: undefined, backing: undefined, streamOrdered: undefined } as unknown as PoolOptions
  assert.deepEqual(parsePoolOptions(left, DEVICE_BYTES), parsePoolOptions({}, DEVICE_BYTES))
})

test('every bad option is refused by its name', () => {
  const bad: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
    [null, 'TypeError', /createPool: options must be an object/],
    ['80%', 'TypeError', /createPool: options must be an object/],
    [[], 'TypeError', /createPool: options must be an object such as { maxPoolBytes }, not an Array/],
    [{ crossStreamReuse: 'always' }, 'TypeError', /crossStreamReuse must be 'ordered' or 'wait-before-grow' or 'wait-/],
    [{ crossStreamReuse: true }, 'TypeError', /crossStreamReuse must be/],
    [{ deterministic: 1 }, 'TypeError', /deterministic must be true or false, not 1/],
    [{ deterministic: 'yes' }, 'TypeError', /deterministic must be true or false/],
    [{ maxPoolByte: 1 }, 'TypeError', /createPool: unknown option 'maxPoolByte'.*maxPoolBytes/],
    [{ maxPoolBytes: 0 }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: -1 }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: 1.5 }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: Number.NaN }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: 2 ** 60 }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: true }, 'TypeError', /maxPoolBytes/],
    [{ maxPoolBytes: '0%' }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: '110%' }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: '-1%' }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: '4 apples' }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: '4096' }, 'TypeError', /maxPoolBytes/],
    [{ maxPoolBytes: '%' }, 'RangeError', /maxPoolBytes/],
    [{ maxPoolBytes: 255 }, 'RangeError', /maxPoolBytes.*minBlockBytes/],
    [{ maxPoolBytes: 4096, minBlockBytes: 8192 }, 'RangeError', /maxPoolBytes.*minBlockBytes/],
    [{ minBlockBytes: 0 }, 'RangeError', /minBlockBytes/],
    [{ minBlockBytes: 128 }, 'RangeError', /minBlockBytes/],
    [{ minBlockBytes: 768 }, 'RangeError', /minBlockBytes.*power of two/],
    [{ minBlockBytes: 4 * MiB }, 'RangeError', /minBlockBytes/],
    [{ minBlockBytes: '256' }, 'TypeError', /minBlockBytes/],
    [{ leaveFreeBytes: -1 }, 'RangeError', /leaveFreeBytes/],
    [{ leaveFreeBytes: 0.5 }, 'RangeError', /leaveFreeBytes/],
    [{ leaveFreeBytes: '1' }, 'TypeError', /leaveFreeBytes/],
    [{ releaseThresholdBytes: -1 }, 'RangeError', /releaseThresholdBytes/],
    [{ releaseThresholdBytes: Number.NaN }, 'RangeError', /releaseThresholdBytes/],
    [{ sizeClasses: 'powersOfTwo' }, 'TypeError', /sizeClasses.*'sixteenPerOctave' or 'powerOfTwo'/],
    [{ streamOrdered: 1 }, 'TypeError', /streamOrdered/],
    [{ streamOrdered: 'false' }, 'TypeError', /streamOrdered/],
    [{ backing: 'segment' }, 'TypeError', /backing.*'auto' or 'virtual' or 'segments' or 'managed' or 'registrable'/],
  ]
  for (const [options, name, message] of bad) {
    assert.throws(() => parsePoolOptions(options as PoolOptions, DEVICE_BYTES), { name, message }, `${message}`)
  }
})

test('the device’s features decide the backing', () => {
  assert.equal(new TestDevice().createPool().central.backing.kind, 'virtual')
  assert.equal(new TestDevice().createPool({ backing: 'segments' }).central.backing.kind, 'segments')
  const without = new TestDevice({ virtualMemory: false })
  assert.equal(without.createPool().central.backing.kind, 'segments')
  assert.throws(() => without.createPool({ backing: 'virtual' }), {
    name: 'PoolError',
    message: /'virtual' is not possible here.*use 'segments' or 'auto'/,
  })
})

test('a trial reveals virtual memory that a device claims but lacks', () => {
  for (const call of ['cuMemAddressReserve', 'cuMemCreate', 'cuMemMap', 'cuMemSetAccess'] as const) {
    const device = new TestDevice({ faults: [{ call, code: 801, onwards: true }] })
    assert.equal(device.createPool().central.backing.kind, 'segments', call)
    assert.equal(device.freeBytes(), device.totalBytes, `${call}: nothing of the attempt is left`)
  }
})

test('a full device says nothing about virtual memory', () => {
  const device = new TestDevice()
  const taken = device.context.activate().cuMemAlloc(device.totalBytes)
  const pool = device.createPool()
  assert.equal(pool.central.backing.kind, 'virtual')
  assert.equal(pool.tryAllocate(1), null)
  device.driver.cuMemFree(taken)
  pool.allocate(1)
})

test('a limit below what the backing takes from the device at a time is refused when the pool is made', () => {
  for (const backing of ['virtual', 'segments'] as const) {
    const options = { backing, maxPoolBytes: 1 * MiB }
    assert.throws(() => new TestDevice().createPool(options), { name: 'RangeError', message: /maxPoolBytes.*2 MiB/ })
  }
})
