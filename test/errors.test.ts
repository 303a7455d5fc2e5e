// The codes of errors: each thrown by calls of a program, where the simulated device can, and listed in the document.
// Where their stacks begin, and which OutOfMemoryErrors ask for less.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { packageFile } from '../src/core/base/package-files.js'
import { Communicator, uniqueId } from '../src/entries/nccl.js'
import { openNvtx } from '../src/entries/profiling.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { readRecording, SlowReplayError } from '../src/entries/trace.js'
import {
  CompileError,
  type Device,
  type ErrorCode,
  fallback,
  limited,
  MiB,
  OutOfMemoryError,
  openDevice,
  openDevices,
  spillable,
  tagged,
} from '../src/index.js'

const FAULT = 700 // an illegal address
const DOCUMENT = new URL('../../docs/errors.md', import.meta.url)

interface Case {
  readonly name: string
  readonly message: RegExp
  readonly fails: (device: Device, driver: SimulatedDriver) => unknown
}

const CASES: Readonly<Record<ErrorCode, Case>> = {
  ERR_POOL_CLOSED: {
    name: 'PoolError',
    message: /^allocate: the pool is closed/,
    fails: device => {
      const pool = device.createPool()
      pool.close()
      pool.allocate(4)
    },
  },
  ERR_POOL_ASLEEP: {
    name: 'PoolError',
    message: /^allocate: the pool is asleep/,
    fails: async device => {
      const pool = device.createPool()
      await pool.sleep()
      pool.allocate(4)
    },
  },
  ERR_POOL_IN_USE: {
    name: 'PoolError',
    message: /^close: 1 buffers are in use/,
    fails: device => {
      const set = spillable(device.createPool(), { host: device.createHostPool() })
      set.allocate(4).use(device.defaultStream)
      set.close()
    },
  },
  ERR_BUFFER_FREED: {
    name: 'PoolError',
    message: /^fill: the buffer was already freed/,
    fails: device => {
      const buffer = device.createPool().allocate(4)
      buffer.free()
      buffer.fill(0)
    },
  },
  ERR_STREAM_CLOSED: {
    name: 'PoolError',
    message: /^allocate: the stream is closed/,
    fails: device => {
      const stream = device.createStream()
      stream.close()
      device.createPool().allocate(4, stream)
    },
  },
  ERR_STREAM_CAPTURED: {
    name: 'PoolError',
    message: /^synchronize: a stream is being captured/,
    fails: device => {
      device.createStream().beginCapture()
      device.synchronize()
    },
  },
  ERR_STREAM_ORDER: {
    name: 'PoolError',
    message: /^copyFrom: the copy on .* may come before work on/,
    fails: device => {
      const pool = device.createPool()
      const source = pool.allocate(4, device.createStream())
      source.fill(1)
      pool.allocate(4, device.createStream()).copyFrom(source)
    },
  },
  ERR_TOO_MANY_WAIT: {
    name: 'PoolError',
    message: /^whenAvailable: 0 requests wait for memory already, the most by maxWaiting/,
    fails: device => {
      const pool = device.createPool({ maxPoolBytes: '2MiB' })
      pool.allocate('2MiB')
      return pool.whenAvailable('1MiB', { maxWaiting: 0 })
    },
  },
  ERR_OTHER_DEVICE: {
    name: 'PoolError',
    message: /^allocate: the stream belongs to another device/,
    fails: (_, driver) => {
      const [first, second] = openDevices(driver)
      first.createPool().allocate(4, second.defaultStream)
    },
  },
  ERR_DEVICE_CLOSED: {
    name: 'PoolError',
    message: /^createPool: the device is closed/,
    fails: device => {
      device.close()
      device.createPool()
    },
  },
  ERR_NOT_SUPPORTED: {
    name: 'PoolError',
    message: /^createGrowableBuffer needs virtual memory management/,
    fails: () => openDevice(new SimulatedDriver({ virtualMemory: false })).createGrowableBuffer({ bytes: 4 }),
  },
  ERR_POOL: {
    name: 'PoolError',
    message: /^endCapture: the stream is not being captured/,
    fails: device => device.createStream().endCapture(),
  },
  ERR_DEBUG: {
    name: 'DebugError',
    message: /^fill: the buffer was already freed/,
    fails: device => {
      const buffer = device.createPool({ debug: true }).allocate(4)
      buffer.free()
      buffer.fill(0)
    },
  },
  ERR_OUT_OF_MEMORY: {
    name: 'OutOfMemoryError',
    message: /^no room for 8 MiB/,
    fails: device => device.createPool({ maxPoolBytes: '4MiB' }).allocate(8 * MiB),
  },
  ERR_CUDA: {
    name: 'CudaError',
    message: /^cuMemAlloc failed: CUDA_ERROR_UNKNOWN \(999\)/,
    fails: (device, driver) => {
      driver.failCall({ call: 'cuMemAlloc', code: 999 })
      device.createPlainPool().allocate(4)
    },
  },
  ERR_DEVICE_LOST: {
    name: 'DeviceLostError',
    message: /^the device is lost since cuMemsetD8Async failed/,
    fails: (device, driver) => {
      const buffer = device.createPool().allocate(4)
      driver.failCall({ call: 'cuMemsetD8Async', code: FAULT })
      assert.throws(() => buffer.fill(0), { code: 'ERR_CUDA', result: FAULT })
      buffer.fill(0)
    },
  },
  ERR_DESCRIPTOR: {
    name: 'DescriptorError',
    message: /^connect failed: ETIMEDOUT/,
    fails: device => device.importBuffer('/absent/socket', { timeoutMs: 0 }),
  },
  ERR_NO_DEVICE: {
    name: 'NoDeviceError',
    message: /^device 5 does not exist/,
    fails: (_, driver) => openDevice(driver, 5),
  },
  ERR_NO_LIBRARY: { name: 'NoLibraryError', message: /absent\.so/, fails: () => openNvtx('/absent.so') },
  ERR_MISSING_FILE: {
    name: 'MissingFileError',
    message: /^a test needs absent\.js of cuda-mempool/,
    fails: () => packageFile('absent.js', 'a test'),
  },
  ERR_COMPILE: {
    name: 'CompileError',
    message: /^wrong$/,
    fails: () => {
      throw new CompileError('wrong', 'line 1: wrong')
    },
  },
  ERR_FORMAT: { name: 'FormatError', message: /^recording/, fails: () => readRecording(new Uint8Array(9)) },
  ERR_SLOW_REPLAY: {
    name: 'SlowReplayError',
    message: /^slow$/,
    fails: () => {
      throw new SlowReplayError('slow')
    },
  },
  ERR_COMMUNICATOR: {
    name: 'CommunicatorError',
    message: /^Communicator\.join has timed out; the other ranks of 2 have not made this call within 1 ms/,
    fails: device => Communicator.join(device, { id: uniqueId(device), rank: 0, ranks: 2, timeoutMs: 1 }),
  },
  ERR_INVALID_ARG_TYPE: {
    name: 'TypeError',
    message: /^createPool: unknown option 'size'/,
    fails: device => device.createPool({ size: 1 } as object),
  },
  ERR_OUT_OF_RANGE: {
    name: 'RangeError',
    message: /^bytes must be a whole number of bytes from 1/,
    fails: device => device.createPool().allocate(0),
  },
}

/** Refusals of the driver or the system: their stacks keep the frames of this package. */
const REFUSALS = ['CudaError', 'DeviceLostError', 'DescriptorError']

/** The first frame of an error's stack. */
function firstFrame(error: unknown): string {
  return (error as Error).stack!.split('\n').find(line => line.startsWith('    at '))!
}

describe('the code', () => {
  for (const [code, { name, message, fails }] of Object.entries(CASES)) {
    it(`${code} is that of a ${name}`, async () => {
      const driver = new SimulatedDriver({ devices: 2, peerAccess: false })
      const device = openDevice(driver)
      await assert.rejects(async () => fails(device, driver), { code, name, message })
    })

    it(`${code} has a stack that begins ${REFUSALS.includes(name) ? 'in this package' : 'with the program'}`, async () => {
      const driver = new SimulatedDriver({ devices: 2, peerAccess: false })
      const error = (await Promise.resolve(openDevice(driver))
        .then(device => fails(device, driver))
        .catch((error: unknown) => error)) as Error
      assert.match(firstFrame(error), REFUSALS.includes(name) ? /\/src\/core\// : /\/errors\.test\.js:/)
      assert.ok(error.stack!.startsWith(`${name}: ${error.message}\n`))
    })
  }

  it('and the class are in the document', () => {
    const rows = readFileSync(DOCUMENT, 'utf8').matchAll(/^\| `(ERR_\w+)` \| `(\w+)` \|/gm)
    const cases = Object.entries(CASES).map(([code, { name }]) => [code, name])
    assert.deepEqual(
      Array.from(rows, ([, code, name]) => [code, name]),
      cases,
    )
  })
})

type Allocator = (device: Device) => (bytes: number) => unknown

const of =
  (make: (device: Device) => { allocate(bytes: number): unknown }): Allocator =>
  device => {
    const pool = make(device)
    return bytes => pool.allocate(bytes)
  }

/** Ways to allocate where 32 MiB fit at a time. */
const LIMITED: Readonly<Record<string, Allocator>> = {
  'a caching pool': of(device => device.createPool({ maxPoolBytes: '32MiB' })),
  'a shared pool': of(device => device.createSharedPool({ maxPoolBytes: '32MiB' })),
  'a driver pool': of(device => device.createDriverPool({ maxPoolBytes: '32MiB' })),
  'a block pool': of(device => device.createBlockPool({ blockBytes: '32MiB', count: 1 })),
  'a shared block pool': of(device => device.createSharedBlockPool({ blockBytes: '32MiB', count: 1 })),
  'an arena': of(device => device.createArenaPool({ bytes: '32MiB' })),
  'a shared arena': of(device => device.createSharedArenaPool({ bytes: '32MiB' })),
  'an arena on a buffer': of(device => device.createArenaPool({ region: device.createPool().allocate(32 * MiB) })),
  'a host pool': of(device => device.createHostPool({ maxPoolBytes: '32MiB' })),
  'a shared host pool': of(device => device.createSharedHostPool({ maxPoolBytes: '32MiB' })),
  'a limited pool': of(device => limited(device.createPool(), '32MiB')),
  'a tagged pool': of(device => tagged(device.createPool(), { limits: { untagged: '32MiB' } })),
  'a pool with a smaller fallback': of(device =>
    fallback(device.createPool({ maxPoolBytes: '32MiB' }), limited(device.createPlainPool(), 1)),
  ),
  'spillable buffers': device => {
    const set = spillable(device.createPool(), { host: device.createHostPool(), maxPoolBytes: '32MiB' })
    return bytes => set.allocate(bytes).use(device.defaultStream)
  },
}
/** Ways to allocate all memory of a device. */
const UNLIMITED: Readonly<Record<string, Allocator>> = {
  'a caching pool': of(device => device.createPool()),
  'a shared pool': of(device => device.createSharedPool()),
  'a pool in debug mode': of(device => device.createPool({ debug: true })),
  'a plain pool': of(device => device.createPlainPool()),
  'a driver pool': of(device => device.createDriverPool()),
  'growable buffers': device => bytes => device.createGrowableBuffer({ bytes, capacityBytes: '1GiB' }),
  'interprocess buffers': device => bytes => device.createInterprocessBuffer(bytes),
}

describe('a request that can never fit asks for less, and one that fits later does not', () => {
  for (const [where, allocators, fits, tooLarge] of [
    ['beyond a limit', LIMITED, 20 * MiB, 40 * MiB],
    ['beyond the device', UNLIMITED, 60 * MiB, 65 * MiB],
  ] as const) {
    for (const [name, allocator] of Object.entries(allocators)) {
      it(`${where}: ${name}`, () => {
        using device = openDevice(new SimulatedDriver({ capacityBytes: '64MiB' }))
        const allocate = allocator(device)
        const remedyOf = (bytes: number) => {
          try {
            allocate(bytes)
            return 'none needed'
          } catch (error) {
            assert.ok(error instanceof OutOfMemoryError, `${error}`)
            assert.match(firstFrame(error), /\/errors\.test\.js:/)
            return error.remedy
          }
        }
        assert.equal(remedyOf(tooLarge), 'askForLess')
        assert.equal(remedyOf(fits), 'none needed')
        assert.ok(!['askForLess', 'none needed'].includes(`${remedyOf(fits)}`), `${remedyOf(fits)}`)
        assert.equal(remedyOf(tooLarge), 'askForLess')
      })
    }
  }
})
