// Every callback of a program may throw, return a promise, and use or close its caller. The table has each place where
// the library calls the program, and a callback does all of that there.

import assert from 'node:assert/strict'
import { channel } from 'node:diagnostics_channel'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { SegmentObserver } from '../src/entries/driver.js'
import { createStreamArenas } from '../src/entries/kernels.js'
import { observe, register } from '../src/entries/live.js'
import { registerSimulatedKernel, SimulatedDriver } from '../src/entries/simulated.js'
import { type ReplayOptions, readRecording, replay, tune } from '../src/entries/trace.js'
import {
  type CachingPool,
  type Device,
  type DeviceBuffer,
  fallback,
  limited,
  MiB,
  OutOfMemoryError,
  openDevice,
  type Pool,
  retrying,
  type Stream,
  spillable,
  statistics,
  tagged,
} from '../src/index.js'
import { assertTyped, OWN_ERROR } from './hostile-values.fixture.js'

/** The objects that the callbacks of one case use, and close. */
class World {
  readonly driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
  readonly device: Device = openDevice(this.driver)
  readonly stream: Stream = this.device.createStream()
  readonly other: Stream = this.device.createStream()
  pool: CachingPool = this.device.createPool({ maxPoolBytes: 8 * MiB })
  readonly held: { free(): void; readonly freed: boolean }[] = []
  /** another object that calls the callback */
  owner: { close(): unknown } = { close: () => {} }
  /** makes the call that leads to the callback once more */
  callAgain: () => unknown = () => {}
  calls = 0
  /** errors that the callback has thrown, or rejected with */
  readonly own: unknown[] = []

  take(pool: Pool = this.pool): void {
    const buffer = pool.tryAllocate(1 * MiB)
    if (buffer !== null) this.held.push(buffer)
  }

  fill(): void {
    for (let taken = this.pool.tryAllocate(4 * MiB); taken !== null; taken = this.pool.tryAllocate(4 * MiB))
      this.held.push(taken)
  }

  /** A callback for a place, which behaves so. */
  callback(behaviour: Behaviour, answer: unknown): (...args: readonly unknown[]) => never {
    return () => {
      this.calls++
      try {
        const returned = behaviour(this)
        return (returned === undefined ? answer : returned) as never
      } catch (error) {
        this.own.push(error)
        throw error
      }
    }
  }

  /** All pools are whole, everything can be given back, and nothing is left. */
  async end(isLost: boolean): Promise<void> {
    if (!this.device.context.released && !isLost) {
      if (!this.pool.closed) this.pool.check()
      for (const each of this.held) if (!each.freed) each.free()
      await this.owner.close()
      if (!this.pool.closed) {
        this.pool.check()
        const { liveBuffers, liveBytes, requestedBytes } = this.pool.stats()
        assert.deepEqual([liveBuffers, liveBytes, requestedBytes], [0, 0, 0])
      }
    }
    this.device.close()
    if (!isLost) assert.deepEqual([this.driver.usedBytes(), this.driver.usedHostBytes()], [0, 0])
  }
}

type Behaviour = (world: World) => unknown

/** A place where the library calls the program. */
interface Place {
  /** gives the library the callback, and makes it call it */
  readonly call: (world: World, callback: (...args: readonly unknown[]) => never) => unknown
  /** where an error of the callback goes: out of the call, to the process, or into the fault that ends the device */
  readonly errors: 'call' | 'process' | 'fault'
  /** a promise that the callback returns is refused, given on, or not looked at */
  readonly promises: 'refused' | 'given' | 'ignored'
  /** the callback's usual result */
  readonly answer?: unknown
}

/** A value that a program may throw, too. */
const NO_ERROR: unknown = Object.create(null)
const THROWN = new Set([NO_ERROR])

function rejected(world: World): Promise<never> {
  world.own.push(OWN_ERROR)
  return Promise.reject(OWN_ERROR)
}

const BEHAVIOURS: Readonly<Record<string, Behaviour>> = {
  throws: () => {
    throw OWN_ERROR
  },
  'throws another value': () => {
    throw NO_ERROR
  },
  'returns a promise that rejects': rejected,
  'returns a promise': () => Promise.resolve(true),
  'allocates and frees': world => {
    world.take()
    world.take()
    world.held.pop()?.free()
  },
  captures: ({ device, other }) => device.capture(other, () => {}).close(),
  'submits and waits': ({ device, other, pool }) => {
    const buffer = pool.tryAllocate(256, other)
    buffer?.fill(1)
    const event = device.createEvent()
    event.record(other)
    device.defaultStream.wait(event)
    other.synchronize()
    event.close()
    buffer?.free()
  },
  'calls again': world => {
    if (world.calls === 1) world.callAgain()
  },
  'makes room, calls again, and wants another attempt': world => {
    if (world.calls > 1) return undefined
    for (const each of world.held.splice(0)) each.free()
    world.callAgain()
    return true
  },
  'makes room, closes its caller, and wants another attempt': world => {
    if (world.calls > 1) return undefined
    for (const each of world.held.splice(0)) each.free()
    void world.owner.close()
    return true
  },
  'closes the pool': ({ pool }) => void pool.close(),
  'closes its caller': ({ owner }) => void owner.close(),
  'closes the stream': ({ stream }) => stream.close(),
  'closes the device': ({ device }) => device.close(),
}

function unlessOutOfMemory(work: () => unknown): void {
  try {
    work()
  } catch (error) {
    if (!(error instanceof OutOfMemoryError)) throw error
  }
}

function attempt(world: World, pool: Pool, call: (pool: Pool) => DeviceBuffer | null): void {
  world.fill()
  world.callAgain = () => call(pool)?.free()
  unlessOutOfMemory(() => call(pool)?.free())
}

const settled = () => new Promise(resolve => setImmediate(resolve))

function subscriber(name: string, work: (world: World) => unknown): [string, Place] {
  const call = async (world: World, callback: () => never) => {
    const at = channel(`cuda-mempool:${name}`)
    world.callAgain = () => work(world)
    at.subscribe(callback)
    try {
      work(world)
    } finally {
      at.unsubscribe(callback)
    }
    await settled()
  }
  return [`a subscriber of cuda-mempool:${name}`, { call, errors: 'process', promises: 'ignored' }]
}

function observer(
  method: keyof SegmentObserver,
  open: (world: World) => { observeSegments(observer: SegmentObserver): () => void },
  work: (world: World) => unknown,
): Place {
  const call = (world: World, callback: () => never) => {
    const stop = open(world).observeSegments({ ready: () => {}, leaving: () => {}, [method]: callback })
    world.callAgain = () => work(world)
    try {
      work(world)
    } finally {
      stop()
    }
  }
  return { call, errors: 'call', promises: 'ignored' }
}

function kernel(world: World, callback: () => never, work: (launch: () => void) => void): void {
  registerSimulatedKernel('callbacks_test', callback)
  const ptx = '.version 6.3\n.target sm_52\n.address_size 64\n.visible .entry callbacks_test() { ret; }\n'
  const made = world.device.loadModule(ptx).kernel('callbacks_test')
  const launch = () => made.launch({ grid: 1, block: 1, stream: world.stream })
  world.callAgain = launch
  work(launch)
  world.device.synchronize()
}

const TRACE = readRecording('traces/oom-retry-2gib.pickle.gz')
const OPTIONS: ReplayOptions = { policies: ['cuda-mempool'] }

const PLACES: Readonly<Record<string, Place>> = {
  'the work of a capture': {
    call: ({ device, stream }, callback) => device.capture(stream, callback).close(),
    errors: 'call',
    promises: 'refused',
  },
  'the work of queue.use, before another request': {
    call: async (world, callback) => {
      const queue = world.device.createArenaQueue({ bytes: 1 * MiB, count: 1 })
      world.owner = queue
      world.callAgain = () => void queue.use(() => {})
      const [first, second] = await Promise.allSettled([queue.use(callback), queue.use(() => 'served')])
      if (!queue.closed) assert.deepEqual(second, { status: 'fulfilled', value: 'served' })
      if (first.status === 'rejected') throw first.reason
    },
    errors: 'call',
    promises: 'given',
  },
  'the work of shelf.use': {
    call: async (world, callback) => {
      const shelf = world.device.createShelf()
      world.owner = { close: () => shelf[Symbol.dispose]() }
      shelf.add('one', { bytes: 4 * MiB, load: () => 1 })
      world.callAgain = () => void shelf.use('one', () => {})
      const [first, second] = await Promise.allSettled([shelf.use('one', callback), shelf.use('one', () => 'served')])
      if (!shelf.closed) assert.deepEqual(second, { status: 'fulfilled', value: 'served' })
      if (first.status === 'rejected') throw first.reason
    },
    errors: 'call',
    promises: 'given',
  },
  'the load of a model': {
    call: async (world, callback) => {
      const shelf = world.device.createShelf()
      world.owner = { close: () => shelf[Symbol.dispose]() }
      shelf.add('one', { bytes: 4 * MiB, load: callback })
      world.callAgain = () => void shelf.use('one', () => {}).catch(() => {})
      await shelf.use('one', () => {})
    },
    errors: 'call',
    promises: 'given',
  },
  'the work of tagged.inScope': {
    call: (world, callback) => {
      const pool = tagged(world.pool)
      world.callAgain = () => pool.inScope('two', () => world.take(pool))
      return pool.inScope('one', callback)
    },
    errors: 'call',
    promises: 'given',
  },
  'onFailure, by allocate': {
    call: (world, callback) => attempt(world, retrying(world.pool, callback), pool => pool.allocate(4 * MiB)),
    errors: 'call',
    promises: 'refused',
    answer: false,
  },
  'onFailure, by tryAllocate': {
    call: (world, callback) => attempt(world, retrying(world.pool, callback), pool => pool.tryAllocate(4 * MiB)),
    errors: 'call',
    promises: 'refused',
    answer: false,
  },
  'onFailure below other wrappers': {
    call: (world, callback) => {
      const inner = tagged(statistics(limited(retrying(world.pool, callback), 64 * MiB)))
      attempt(world, fallback(inner, world.device.createPlainPool()), pool => pool.allocate(4 * MiB))
      assert.equal(inner.statsByTag()['untagged'].requestedBytes, 0)
    },
    errors: 'call',
    promises: 'refused',
    answer: false,
  },
  'onFailure below allocate of spillable buffers': {
    call: (world, callback) => {
      const host = world.device.createHostPool({ maxPoolBytes: 4 * MiB })
      const set = spillable(retrying(world.pool, callback), { host })
      world.owner = set
      world.fill()
      world.callAgain = () => world.held.push(set.allocate(4 * MiB))
      unlessOutOfMemory(world.callAgain)
      if (set.closed) assert.equal(set.stats().onDeviceBytes, 0)
    },
    errors: 'call',
    promises: 'refused',
    answer: false,
  },
  'onFailure below use of a spillable buffer': {
    call: (world, callback) => {
      const host = world.device.createHostPool({ maxPoolBytes: 4 * MiB })
      const set = spillable(retrying(world.pool, callback), { host })
      const buffer = set.allocate(4 * MiB)
      buffer.spill()
      world.fill()
      world.owner = { close: () => buffer.freed || buffer.free() }
      world.callAgain = () => buffer.use(world.stream).free()
      unlessOutOfMemory(world.callAgain)
      assert.equal(set.stats().onDeviceBytes, buffer.onDevice ? 4 * MiB : 0)
    },
    errors: 'call',
    promises: 'refused',
    answer: false,
  },
  onGrow: {
    call: async (world, callback) => {
      world.pool = world.device.createPool({ maxPoolBytes: 8 * MiB, onGrow: callback })
      world.callAgain = () => world.pool.reserve(4 * MiB)
      world.take()
      await settled()
    },
    errors: 'process',
    promises: 'ignored',
  },
  onTrim: {
    call: async (world, callback) => {
      world.pool = world.device.createPool({ maxPoolBytes: 8 * MiB, onTrim: callback })
      world.callAgain = () => world.pool.trimTo(0)
      world.pool.allocate(4 * MiB).free()
      world.pool.trimTo(0)
      await settled()
    },
    errors: 'process',
    promises: 'ignored',
  },
  ...Object.fromEntries([
    subscriber('grow', world => world.take()),
    subscriber('release', ({ pool }) => {
      pool.allocate(4 * MiB).free()
      pool.trimTo(0)
    }),
    subscriber('wait', ({ driver, pool, other, stream }) => {
      const buffer = pool.tryAllocate(8 * MiB, other)
      if (buffer === null) return
      driver.holdOperation(other.handle)
      buffer.free()
      pool.tryAllocate(8 * MiB, stream)?.free()
    }),
    subscriber('out-of-memory', ({ pool }) => pool.tryAllocate(16 * MiB)),
  ]),
  'ready of an observer': observer(
    'ready',
    world => world.pool,
    world => world.take(),
  ),
  'ready of an observer that starts': {
    call: (world, callback) => {
      world.take()
      world.pool.observeSegments({ ready: callback, leaving: () => {} })()
    },
    errors: 'call',
    promises: 'ignored',
  },
  'leaving of an observer': observer(
    'leaving',
    world => world.pool,
    ({ pool }) => {
      pool.allocate(4 * MiB).free()
      pool.trimTo(0)
    },
  ),
  'ready of an observer of a growable buffer': {
    call: (world, callback) => {
      const buffer = world.device.createGrowableBuffer({ capacityBytes: 8 * MiB, bytes: 2 * MiB })
      world.owner = { close: () => buffer.freed || buffer.free() }
      buffer.observeSegments({ ready: ({ ptr }) => ptr > buffer.ptr && callback(), leaving: () => {} })
      world.callAgain = () => buffer.grow(4 * MiB)
      buffer.grow(6 * MiB)
    },
    errors: 'call',
    promises: 'ignored',
  },
  'ready of an observer of a host pool': {
    call: (world, callback) => {
      const host = world.device.createHostPool({ maxPoolBytes: 8 * MiB })
      world.owner = host
      host.observeSegments({ ready: callback, leaving: () => {} })
      world.callAgain = () => world.held.push(host.allocate(1 * MiB))
      world.callAgain()
    },
    errors: 'call',
    promises: 'ignored',
  },
  'onProgress of sleep': {
    call: async (world, callback) => {
      world.take()
      world.callAgain = () => world.take()
      await world.pool.sleep({ onProgress: callback })
    },
    errors: 'call',
    promises: 'ignored',
  },
  'onProgress of wake': {
    call: async (world, callback) => {
      world.take()
      await world.pool.sleep()
      world.callAgain = () => world.take()
      await world.pool.wake({ onProgress: callback })
    },
    errors: 'call',
    promises: 'ignored',
  },
  'a listener of an AbortSignal': {
    call: async (world, callback) => {
      const { pool, device } = world
      const queue = device.createArenaQueue({ bytes: 1 * MiB, count: 1 })
      world.owner = queue
      const lease = await queue.take()
      world.fill()
      const controller = new AbortController()
      const { signal } = controller
      signal.addEventListener('abort', callback)
      const waits = [pool.whenAvailable(4 * MiB, { signal }), queue.take({ signal }), device.finished({ signal })]
      world.callAgain = () => controller.abort()
      controller.abort()
      for (const each of await Promise.allSettled(waits))
        if (each.status === 'rejected') assertTyped(each.reason, THROWN)
      lease.close()
      await settled()
    },
    errors: 'process',
    promises: 'ignored',
  },
  'a simulated kernel': {
    call: (world, callback) => kernel(world, callback, launch => launch()),
    errors: 'fault',
    promises: 'refused',
  },
  'a simulated kernel of a graph': {
    call: (world, callback) =>
      kernel(world, callback, launch => {
        const graph = world.device.capture(world.stream, launch)
        graph.launch(world.stream)
      }),
    errors: 'fault',
    promises: 'refused',
  },
  'allocate of the pool of stream arenas': {
    call: (world, callback) => {
      const { device, stream, pool } = world
      const allocate = (bytes: number, of: Stream) => {
        callback()
        return pool.allocate(bytes, of)
      }
      const arenas = createStreamArenas(device, { pool: { allocate }, bytes: 64 * 1024 })
      world.owner = arenas
      world.callAgain = () => arenas.of(stream)
      arenas.of(stream)
    },
    errors: 'call',
    promises: 'ignored',
  },
  'open of replay': {
    call: (world, callback) => {
      world.callAgain = () => void replay(TRACE, () => openDevice('simulated'), OPTIONS)
      return replay(TRACE, callback, OPTIONS)
    },
    errors: 'call',
    promises: 'refused',
    answer: null,
  },
  'onProgress of replay': {
    call: (world, callback) => {
      const open = (capacityBytes: number = 4 * 1024 * MiB) => openDevice(new SimulatedDriver({ capacityBytes }))
      world.callAgain = () => void replay(TRACE, open, OPTIONS)
      return replay(TRACE, open, { ...OPTIONS, onProgress: callback })
    },
    errors: 'call',
    promises: 'ignored',
  },
  'onProgress of tune': {
    call: (_, callback) => tune([TRACE], { seconds: 1e-9, onProgress: callback }),
    errors: 'call',
    promises: 'ignored',
  },
  'onProgress of readRecording': {
    call: (_, callback) => readRecording('traces/oom-retry-2gib.pickle.gz', { onProgress: callback }),
    errors: 'call',
    promises: 'ignored',
  },
  'a registry of prom-client': {
    call: ({ pool }, callback) => register({ registerMetric: callback }, pool),
    errors: 'call',
    promises: 'ignored',
  },
  'a batch of a meter of OpenTelemetry': {
    call: ({ pool }, callback) => {
      let collect: (batch: { observe: unknown }) => void = () => {}
      const instrument = () => ({})
      const meter = {
        createObservableUpDownCounter: instrument,
        createObservableCounter: instrument,
        createObservableGauge: instrument,
        addBatchObservableCallback: (given: typeof collect) => {
          collect = given
        },
        removeBatchObservableCallback: () => {},
      }
      const stop = observe(meter as never, pool, { device: true })
      try {
        collect({ observe: callback })
      } finally {
        stop()
      }
    },
    errors: 'call',
    promises: 'ignored',
  },
  'a getter of an option': {
    call: ({ device, pool }, callback) => {
      const options = Object.defineProperty({}, 'maxPoolBytes', { get: callback, enumerable: true })
      device.createPool(options).close()
      pool.check()
    },
    errors: 'call',
    promises: 'ignored',
    answer: 8 * MiB,
  },
}

/** The errors that end a process while `work` runs; the listeners of the test runner are away meanwhile. */
async function uncaughtDuring(work: () => Promise<void>): Promise<unknown[]> {
  const errors: unknown[] = []
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection')
  process.setUncaughtExceptionCaptureCallback(error => errors.push(error))
  const note = (error: unknown) => errors.push(error)
  process.on('unhandledRejection', note)
  try {
    await work()
    await settled()
    await settled()
  } finally {
    process.setUncaughtExceptionCaptureCallback(null)
    process.off('unhandledRejection', note)
    for (const listener of listeners) process.on('unhandledRejection', listener)
  }
  return errors
}

/** The cause of the fault that a lost device had. */
function causeOf(error: unknown): unknown {
  const { first = error } = error as { first?: unknown }
  return (first as Error).cause
}

async function run(place: Place, behaviour: Behaviour): Promise<World> {
  const world = new World()
  let thrown: unknown = NO_ERROR
  let failed = false
  const uncaught = await uncaughtDuring(async () => {
    try {
      await place.call(world, world.callback(behaviour, place.answer))
    } catch (error) {
      failed = true
      thrown = error
    }
  })
  const isLost = place.errors === 'fault' && failed
  const isPromise = behaviour === rejected
  const where = isPromise && place.promises !== 'given' ? place.promises : place.errors
  const own = world.own.filter(error => !(error instanceof OutOfMemoryError))
  for (const error of [...(failed ? [thrown] : []), ...uncaught]) assertTyped(error, THROWN)
  if (own.length > 0) {
    if (where === 'call') assert.equal(thrown, own[0])
    if (where === 'fault') assert.equal(causeOf(thrown), own[0])
    if (where === 'refused') assert.ok(thrown instanceof TypeError || causeOf(thrown) instanceof TypeError)
  }
  const expected = where === 'process' || where === 'ignored' ? own : []
  assert.deepEqual(new Set(uncaught), new Set(expected))
  await world.end(isLost)
  return world
}

/** The options that are callbacks, by file: one that is new needs a place in the table. */
const CALLBACK_OPTIONS = {
  'core/pool/caching/options.ts': ['onGrow', 'onTrim'],
  'core/pool/sleep/sleep-options.ts': ['onProgress', 'onProgress'],
  'recordings/report/page/reported-trace.ts': ['onProgress'], // given on to replay and tune
  'recordings/trace/formats/read-recording.ts': ['onProgress'],
  'recordings/trace/pytorch/model/policy-memory.ts': ['onSynchronize'], // internal, as the next two
  'recordings/trace/pytorch/pickle.ts': ['onProgress'],
  'recordings/trace/pytorch/pytorch-replay.ts': ['onGiveBack'],
  'recordings/trace/replay-options.ts': ['onProgress'],
  'recordings/trace/tune/tune.ts': ['onProgress'],
}

it('the table knows each option that is a callback', () => {
  const found: Record<string, string[]> = {}
  for (const path of readdirSync('src', { recursive: true, encoding: 'utf8' }).sort()) {
    if (!path.endsWith('.ts') || path.endsWith('.test.ts')) continue
    const text = readFileSync(join('src', path), 'utf8')
    const names = [...text.matchAll(/^ {2}readonly (on[A-Z]\w*)\?: \(/gm)].map(([, name]) => name)
    if (names.length > 0) found[path] = names
  }
  assert.deepEqual(found, CALLBACK_OPTIONS)
})

for (const [name, place] of Object.entries(PLACES)) {
  describe(name, () => {
    for (const [title, behaviour] of Object.entries(BEHAVIOURS)) {
      it(title, async () => {
        const world = await run(place, behaviour)
        assert.ok(world.calls > 0, 'the callback was called')
      })
    }
  })
}
