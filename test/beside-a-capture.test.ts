// No call of the library breaks a capture: each call is made beside a capture, and either succeeds, or is refused and
// changes nothing. The table covers kinds of pools, histories of a buffer, and captures: by the library on two kinds
// of stream, and by foreign code that the library does not see, in this thread and in a second one.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { PoolError } from '../src/core/base/errors.js'
import type { Device } from '../src/core/device/device.js'
import { openDevices } from '../src/core/device/open.js'
import { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING } from '../src/core/driver/constants.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { ThreadState } from '../src/core/driver/simulated/thread-state.js'
import type { Event } from '../src/core/order/event.js'
import type { Stream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import { fallback } from '../src/core/pool/wrappers/fallback.js'
import { createDeviceHeap } from '../src/kernel-memory/device-heap.js'

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry some_kernel(.param .u64 ptr) { ret; }`

/** A device with a stream to capture, and more streams: two of its own, a closed one, one of a second device. */
interface World {
  readonly device: Device
  readonly captured: Stream
  readonly other: Stream
  readonly closed: Stream
  readonly peer: Stream
  readonly event: Event
  /** begins a capture, and ends it; the end throws if a call has broken the capture */
  readonly capture: { begin(): void; end(): void }
}

interface SomePool {
  allocate(bytes: number, stream?: Stream): DeviceBuffer
  free?(buffer: DeviceBuffer): void
  check?(): void
  stats(): { liveBuffers: number }
  trimTo?(bytes: number): number
  processDeferred?(): number
  setAccess?(device: Device, access: 'readWrite' | 'none'): void
  close?(): unknown
}

const KINDS: Record<string, (world: World) => SomePool> = {
  'caching pool': ({ device }) => device.createPool({ backing: 'virtual' }),
  'caching pool of segments': ({ device }) => device.createPool({ backing: 'segments' }),
  'caching pool that is not stream-ordered': ({ device }) => device.createPool({ streamOrdered: false }),
  'debug pool': ({ device }) => device.createPool({ debug: true, maxPoolBytes: 32 * MiB }),
  'debug pool with small quarantine': ({ device }) =>
    device.createPool({ debug: { quarantineBytes: 0 }, maxPoolBytes: 32 * MiB }),
  'block pool': ({ device }) => device.createBlockPool({ blockBytes: 64 * KiB, count: 4, maxCount: 1000 }),
  'arena pool': ({ device }) => device.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 32 * MiB }),
  'plain pool': ({ device }) => device.createPlainPool(),
  'driver pool': ({ device }) => device.createDriverPool(),
  'pool with a fallback': ({ device }) => fallback(device.createPool({ maxPoolBytes: 2 * MiB }), device.createPool()),
}

/** Histories of a buffer before the capture; each stream in them comes after the allocation. */
const HISTORIES: Record<string, (pool: SomePool, world: World) => DeviceBuffer> = {
  'of the default stream': pool => pool.allocate(1000),
  'of another stream': (pool, { other }) => pool.allocate(1000, other),
  'of the stream that is captured': (pool, { captured }) => pool.allocate(1000, captured),
  'of a stream that is closed': (pool, { closed }) => pool.allocate(1000, closed),
  'of the default stream, announced to the captured one': (pool, { captured }) =>
    announced(pool.allocate(1000), captured),
  'of another stream, announced to the captured one': (pool, { other, captured }) =>
    announced(pool.allocate(1000, other), captured),
  'of another stream, announced to the default one': (pool, { device, other }) =>
    announced(pool.allocate(1000, other), device.defaultStream),
  'of another stream, announced to a closed one': (pool, { other, closed }) =>
    announced(pool.allocate(1000, other), closed),
  'of the captured stream, announced to another': (pool, { other, captured }) =>
    announced(pool.allocate(1000, captured), other),
  'of the default stream, announced to another device': (pool, { peer }) => announced(pool.allocate(1000), peer),
  'of another stream, announced to another device': (pool, { other, peer }) =>
    announced(pool.allocate(1000, other), peer),
}

/** Calls beside the capture, with a second buffer for copies; a promise is awaited after the end of the capture. */
const CALLS: Record<string, (pool: SomePool, buffer: DeviceBuffer, world: World, target: DeviceBuffer) => unknown> = {
  free: (_, buffer) => buffer.free(),
  'free on another stream': (_, buffer, { other }) => buffer.free(other),
  'free on the default stream': (_, buffer, { device }) => buffer.free(device.defaultStream),
  'free on the captured stream': (_, buffer, { captured }) => buffer.free(captured),
  'free on a closed stream': (_, buffer, { closed }) => buffer.free(closed),
  'free on a stream of another device': (_, buffer, { peer }) => buffer.free(peer),
  recordUse: (_, buffer, { other }) => buffer.recordUse(other),
  'recordUse of the captured stream': (_, buffer, { captured }) => buffer.recordUse(captured),
  'a small allocation': pool => pool.allocate(1000),
  'a large allocation on another stream': (pool, _, { other }) => pool.allocate(64 * KiB, other),
  'an allocation on the captured stream': (pool, _, { captured }) => pool.allocate(1000, captured),
  'an allocation that finds no room': (pool, _, { other }) => pool.allocate(2 ** 40, other),
  'free and trimTo': (pool, buffer) => {
    buffer.free()
    pool.trimTo?.(0)
  },
  'processDeferred, stats and check': pool => {
    pool.processDeferred?.()
    pool.stats()
    pool.check?.()
  },
  setAccess: (pool, _, { peer }) => pool.setAccess?.(peer as unknown as Device, 'readWrite'),
  close: pool => pool.close?.(),
  read: (_, buffer) => buffer.read(),
  readSync: (_, buffer) => buffer.readSync(),
  write: (_, buffer) => buffer.write(new Uint8Array(10)),
  writeSync: (_, buffer) => buffer.writeSync(new Uint8Array(10)),
  fill: (_, buffer) => buffer.fill(1),
  copyFrom: (_, buffer, _world, target) => target.copyFrom(buffer),
  copyFromSync: (_, buffer, _world, target) => target.copyFromSync(buffer),
}

/** Calls that need no pool. */
const ALONE: Record<string, (world: World) => unknown> = {
  'a pool is made and used': ({ device, other }) =>
    device
      .createPool()
      .allocate(5 * MiB, other)
      .free(),
  'a driver pool is made, used and trimmed': ({ device, other }) => {
    const pool = device.createDriverPool()
    pool.allocate(1000, other).free()
    pool.trimTo(0)
  },
  'a driver pool is closed': ({ device }) => device.createDriverPool().close(),
  'a block pool is made': ({ device }) => device.createBlockPool({ blockBytes: 64 * KiB, count: 4 }),
  'an arena is made': ({ device }) => device.createArenaPool({ bytes: 1 * MiB }),
  'an array of a plain pool': ({ device }) => device.createPlainPool().allocate(1000).free(),
  'host memory on no stream': ({ device }) => usedAndFreed(device.createHostPool().allocate(1000)),
  'host memory on another stream': ({ device, other }) =>
    usedAndFreed(device.createHostPool().allocate(1000, other), other),
  'host memory trimmed': ({ device }) => {
    const pool = device.createHostPool()
    pool.allocate(1 * MiB).free()
    pool.trimTo(0)
    pool.check()
  },
  'a device heap, its counters and reset': ({ device, other }) => {
    const heap = createDeviceHeap(device, device.createPool().allocate(1 * MiB, other), { stream: other })
    heap.statsSync()
    heap.reset()
    heap.close()
  },
  'a growable buffer': ({ device, other }) => {
    const buffer = device.createGrowableBuffer({ bytes: 1000, stream: other })
    buffer.grow(8 * MiB)
    buffer.shrink(10)
    buffer.free()
  },
  'stream.query': ({ other }) => other.query(),
  'stream.synchronize': ({ other }) => other.synchronize(),
  'stream.finished': ({ other }) => other.finished(),
  'stream.close': ({ other }) => other.close(),
  'query of the default stream': ({ device }) => device.defaultStream.query(),
  'synchronize of the default stream': ({ device }) => device.defaultStream.synchronize(),
  'query of the captured stream': ({ captured }) => captured.query(),
  'synchronize of the captured stream': ({ captured }) => captured.synchronize(),
  'close of the captured stream': ({ captured }) => captured.close(),
  'a wait of the captured stream for an event of before': ({ captured, event }) => captured.wait(event),
  'event.query': ({ event }) => event.query(),
  'event.synchronize': ({ event }) => event.synchronize(),
  'event.record on another stream': ({ event, other }) => event.record(other),
  'event.record on the default stream': ({ event, device }) => event.record(device.defaultStream),
  'event.close': ({ event }) => event.close(),
  'a wait of the default stream': ({ device, event }) => device.defaultStream.wait(event),
  'streams made and closed': ({ device }) => device.createStream().close(),
  'a module is loaded and unloaded': ({ device }) => device.loadModule(PTX).close(),
  'device.memoryInfo': ({ device }) => device.memoryInfo(),
  'device.synchronize': ({ device }) => device.synchronize(),
}

type Capturable = Pick<World, 'captured' | 'capture'>

/** The kinds of captures, each with the captured stream if the library knows of it. */
const CAPTURES: Record<string, (device: Device, driver: SimulatedDriver) => Capturable> = {
  'a stream of the library': device => announcedCapture(device.createStream()),
  'a stream that is ordered with the default stream': (device, driver) => {
    device.memoryInfo() // makes its context current
    return announcedCapture(device.adoptStream(driver.cuStreamCreate(0)))
  },
}

/** Captures in global mode that the library does not know of. */
const UNANNOUNCED: typeof CAPTURES = {
  'another library in this thread': (device, driver) => foreignCapture(device, driver, call => call()),
  'another thread': (device, driver) => {
    const thread = new ThreadState()
    device.memoryInfo()
    const context = driver.cuStreamGetCtx(device.createStream().handle)
    driver.actAs(thread, () => driver.cuCtxSetCurrent(context))
    return foreignCapture(device, driver, call => driver.actAs(thread, call))
  },
}

/**
 * Calls that wait for all work of the device, or work on the default stream; they are allowed only without a capture.
 */
const WAITING_FOR_ALL = new Set([
  'close',
  'readSync',
  'writeSync',
  'copyFromSync',
  'device.synchronize',
  'a driver pool is closed',
])

function announcedCapture(captured: Stream): Capturable {
  return { captured, capture: { begin: () => captured.beginCapture(), end: () => captured.endCapture().close() } }
}

function foreignCapture(device: Device, driver: SimulatedDriver, act: <R>(call: () => R) => R): Capturable {
  device.memoryInfo() // makes its context current
  const handle = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const inContext = <R>(call: () => R) => {
    device.memoryInfo()
    return act(call)
  }
  return {
    captured: device.createStream(),
    capture: {
      begin: () => inContext(() => driver.cuStreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL)),
      end: () => driver.cuGraphDestroy(inContext(() => driver.cuStreamEndCapture(handle))),
    },
  }
}

function announced(buffer: DeviceBuffer, stream: Stream): DeviceBuffer {
  buffer.recordUse(stream)
  return buffer
}

function usedAndFreed(buffer: HostBuffer, stream?: Stream): void {
  buffer.bytes[0] = 1
  buffer.free(stream)
}

/** Makes all streams wait for each other, so that each comes after all allocations so far. */
function makeWorld(capturable: (device: Device, driver: SimulatedDriver) => Capturable): World {
  const driver = new SimulatedDriver({ devices: 2, progress: 'eager', capacityBytes: 128 * MiB })
  const [device, second] = openDevices(driver)
  const { captured, capture } = capturable(device, driver)
  const [other, closed] = [device.createStream(), device.createStream()]
  const event = device.createEvent()
  event.record(other)
  return { device, captured, other, closed, peer: second.createStream(), event, capture }
}

function orderAll(world: World): void {
  const { device, captured, other, closed } = world
  const streams = [device.defaultStream, captured, other, closed]
  for (const stream of streams) {
    using event = device.createEvent()
    event.record(stream)
    for (const later of streams) if (later !== stream) later.wait(event)
  }
}

/** Runs `call` beside the capture, and asserts that the capture ends well. */
async function beside(world: World, call: (world: World) => unknown): Promise<Error | null> {
  world.capture.begin()
  let refusal: Error | null = null
  let pending: Promise<unknown> = Promise.resolve()
  try {
    pending = Promise.resolve(call(world))
    pending.catch(() => {}) // a refusal is examined below
  } catch (error) {
    assert.ok(error instanceof Error)
    refusal = error
  }
  world.capture.end()
  await pending.catch(error => {
    refusal = error
  })
  return refusal
}

for (const [capture, capturable] of [
  ...Object.entries(CAPTURES).map(([what, begin]) => [`of ${what}`, begin] as const),
  ...Object.entries(UNANNOUNCED).map(([what, begin]) => [`by ${what}`, begin] as const),
]) {
  const isForeign = capture.startsWith('by')
  // Of a capture that the library does not know of, its stream `captured` is a stream like `other`.
  const isOff = (name: string) => isForeign && (WAITING_FOR_ALL.has(name) || name.includes('captured'))
  describe(`calls beside a capture ${capture} leave it whole`, () => {
    for (const [kind, makePool] of Object.entries(KINDS)) {
      it(`${kind}: each call on a buffer of each history does its work or changes nothing`, async () => {
        for (const [history, makeBuffer] of Object.entries(HISTORIES)) {
          if (isOff(history)) continue
          for (const [name, call] of Object.entries(CALLS)) {
            if (isOff(name)) continue
            const world = makeWorld(capturable)
            const pool = makePool(world)
            const buffer = historyOf(pool, world, makeBuffer)
            if (buffer === null) continue
            const target = pool.allocate(1000, world.other)
            orderAll(world)
            world.closed.close()
            const live = pool.stats().liveBuffers
            try {
              const refusal = await beside(world, () => call(pool, buffer, world, target))
              if (refusal === null) continue
              assert.ok(!/CudaError|TypeError|Assertion/.test(refusal.name), `${refusal}`)
              assert.equal(pool.stats().liveBuffers, live, 'a refused call changes nothing')
              pool.check?.()
              buffer.free()
            } catch (error) {
              throw new Error(`${name}, of a buffer ${history}`, { cause: error })
            }
          }
        }
      })
    }

    for (const [name, call] of Object.entries(ALONE)) {
      if (isOff(name)) continue
      it(name, async () => {
        const error = await beside(makeWorld(capturable), call)
        assert.ok(error === null || error instanceof PoolError, `${error}`)
      })
    }
  })
}

/** The buffer of a history; null if the pool does not lend its memory to a second device. */
function historyOf(
  pool: SomePool,
  world: World,
  makeBuffer: (pool: SomePool, world: World) => DeviceBuffer,
): DeviceBuffer | null {
  try {
    return makeBuffer(pool, world)
  } catch (error) {
    if (!(error instanceof PoolError) || !/another device/.test(error.message)) throw error
    return null
  }
}
