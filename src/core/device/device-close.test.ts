// A device closes all that it made, also when the driver refuses or the device is lost.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { GiB, KiB, MiB } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from '../order/clocks.js'
import { fallback } from '../pool/wrappers/fallback.js'
import { PATH, PTX } from './device.fixture.js'
import type { Device } from './device.js'
import { openDevice, openDevices } from './open.js'

describe('closing a device', () => {
  it('close ends pools and streams, gives all memory back, and can be repeated', () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const stream = device.createStream()
    const adopted = device.adoptStream(driver.cuStreamCreate(1))
    const cachingPools = [device.createPool(), device.createPool({ backing: 'segments' })]
    const pools = [...cachingPools, ...fixedPools(device), device.createPlainPool()]
    const buffers = pools.map(pool => pool.allocate(3 * MiB, stream))
    const growable = device.createGrowableBuffer({ bytes: 3 * MiB, stream })
    driver.holdOperation(stream.handle)
    for (const buffer of [...buffers, growable]) buffer.fill(1)
    device.close()
    device.close()
    assert.equal(driver.usedBytes(), 0)
    assert.deepEqual([stream.closed, adopted.closed, device.defaultStream.closed], [true, true, true])
    assert.equal(growable.freed, true)
    for (const [index, buffer] of buffers.entries()) {
      assert.equal(buffer.freed, true)
      buffer[Symbol.dispose]()
      assert.throws(() => pools[index].allocate(1), PoolError)
    }
    assertRefusesAll(device)
    openDevice(driver).close() // the driver can be opened again
  })

  it('closes what an observer makes meanwhile', () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const pool = device.createPool()
    pool.allocate(1 * MiB).free()
    const made: { readonly closed: boolean }[] = []
    const leaving = () => void made.push(device.createPool({ initialBytes: 1 * MiB }))
    pool.observeSegments({ ready() {}, leaving })
    device.close()
    assert.deepEqual([made.length > 0, made.every(({ closed }) => closed), driver.usedBytes()], [true, true, 0])
  })

  it('pending promises of streams and events resolve, since close waits for the work', async () => {
    const { device, event, pending } = openBusy()
    device.close()
    event.close()
    await Promise.all(pending)
    await assert.rejects(event.finished(), { name: 'PoolError', message: /finished: the event is closed/ })
  })

  it('pending promises of streams and events reject if the device is lost before its close', async () => {
    const { driver, device, pending } = openBusy()
    driver.failCall({ call: 'cuStreamQuery', code: 700 })
    assert.throws(() => device.defaultStream.query(), { result: 700 })
    device.close()
    for (const each of pending) await assert.rejects(each)
  })

  it('finished resolves when the work of all streams is complete, and refuses a closed device', async () => {
    const { device, pending, release } = openBusy()
    let done = false
    const finished = device.finished().then(() => {
      done = true
    })
    await setImmediate()
    assert.equal(done, false)
    release()
    await Promise.all([...pending, finished])
    for (const [options, message] of [
      [{ signal: 5 }, /^finished: signal must be/],
      [{ signals: 5 }, /^finished: unknown option/],
    ] as const) {
      await assert.rejects(device.finished(options as never), { name: 'TypeError', message })
    }
    device.close()
    await assert.rejects(device.finished(), { name: 'PoolError', message: /^finished: the device is closed/ })
  })

  it('await using waits for the work without blocking, and closes', async () => {
    const { driver, device, pending, release } = openBusy()
    const pools = [device.createPool(), device.createHostPool()]
    const ends = [...pools, device].map(each => each[Symbol.asyncDispose]())
    await setImmediate()
    assert.deepEqual([pools[0].closed, pools[1].closed, device.context.released], [false, false, false])
    release()
    await Promise.all([...pending, ...ends])
    assert.deepEqual([pools[0].closed, pools[1].closed, device.context.released], [true, true, true])
    assert.equal(driver.usedBytes(), 0)
    await device[Symbol.asyncDispose]()
  })

  it('drain waits for the work without blocking, closes, and gives up by a signal', async () => {
    const { device, pending, release } = openBusy()
    const pools = [device.createPool(), device.createHostPool(), device.createArenaPool({ bytes: 1 * MiB })] as const
    pools[0].allocate(1 * MiB)
    const gone = new AbortController()
    const given = [...pools, device].map(each => assert.rejects(each.drain({ signal: gone.signal }), { name: 'Error' }))
    const drained = pools.map(pool => pool.drain())
    gone.abort(new Error('no longer'))
    await Promise.all(given)
    assert.deepEqual([pools[0].closed, pools[1].closed, device.context.released], [false, false, false])
    release()
    assert.deepEqual((await Promise.all(drained))[0], { heldBuffers: 1, heldBytes: 1 * MiB })
    await Promise.all([device.drain(), ...pending])
    assert.deepEqual([pools[0].closed, pools[1].closed, device.context.released], [true, true, true])
    await assert.rejects(pools[0].drain({ signal: 5 } as object), { name: 'TypeError', message: /^drain: signal/ })
  })

  it('await using closes a lost device without a throw, and the arenas of a queue that drains', async () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const queue = device.createArenaQueue({ bytes: 1 * MiB, count: 1 })
    const { arena } = await queue.take()
    const drained = queue.close()
    driver.failCall({ call: 'cuStreamQuery', code: 700 })
    assert.throws(() => device.defaultStream.query(), { result: 700 })
    await device[Symbol.asyncDispose]()
    assert.deepEqual([device.context.released, arena.closed], [true, true])
    await drained
  })

  it('close destroys the stream of a sleep that the driver refused to destroy', async () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const pool = device.createPool()
    const buffer = pool.allocate(1 * MiB)
    driver.failCall({ call: 'cuStreamDestroy', nth: 1, code: 999 })
    await pool.sleep()
    buffer.free()
    device.close()
    assert.equal(driver.usedBytes(), 0)
  })

  it('a sleep or a wake under way at the close rejects, and leaves no memory pinned', { timeout: 20_000 }, async () => {
    for (const change of ['sleep', 'wake'] as const) {
      for (let turns = 0; turns < 10; turns++) {
        const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
        const device = openDevice(driver)
        const pool = device.createPool()
        const sleepers = [pool, device.createGrowableBuffer({ bytes: 40 * MiB })]
        pool.allocate(40 * MiB).fill(1)
        if (change === 'wake') for (const each of sleepers) await each.sleep()
        device.driver.cuStreamCreate = flags => {
          const stream = SimulatedDriver.prototype.cuStreamCreate.call(driver, flags)
          driver.holdOperation(stream) // copies are pending until the host waits for them
          return stream
        }
        const changes = sleepers.map(each => each[change]())
        for (let turn = 0; turn < turns; turn++) await setImmediate()
        device.close()
        for (const each of changes) await assert.rejects(each, { name: 'PoolError', message: /was closed meanwhile$/ })
        const { calls } = driver
        assert.equal(calls.get('cuMemHostUnregister'), calls.get('cuMemHostRegister'), `${change}, ${turns}`)
      }
    }
  })

  it('a device forgets pools that are closed', () => {
    using device = openDevice('simulated')
    const { pools } = device as unknown as { pools: Set<unknown> }
    for (let round = 0; round < 10; round++) {
      for (const pool of [device.createPool(), device.createPlainPool(), device.defaultDriverPool()]) pool.close()
      const growable = device.createGrowableBuffer({ bytes: 1 })
      growable.free()
      growable.settleSync()
    }
    assert.ok(pools.size <= 4, `${pools.size} of 30`)
  })

  it('events and modules that outlive the device can be closed, and otherwise throw', () => {
    const device = openDevice('simulated')
    const event = device.createEvent()
    event.record(device.defaultStream)
    const module = device.loadModule(PTX)
    device.close()
    const refused = { name: 'PoolError', message: /the device is closed/ }
    assert.throws(() => event.query(), refused)
    assert.throws(() => module.kernel('device_test_increment'), refused)
    event.close()
    module.close()
  })

  it('an event of a closed device is refused, also when the device is open again', async () => {
    const driver = new SimulatedDriver()
    const first = openDevice(driver)
    const [old, timed] = [first.createEvent(), first.createEvent({ timing: true })]
    for (const event of [old, timed]) event.record(first.createStream())
    first.close()
    using second = openDevice(driver)
    const stream = second.createStream()
    // The driver gives handles again: the old one is another event's now.
    const others = Array.from({ length: 8 }, () => second.createEvent({ timing: true }))
    for (const event of others) event.record(stream)
    const expected = { name: 'PoolError', message: /the device is closed, and its events are; open it again/ }
    const uses = [
      () => stream.wait(old),
      () => old.record(stream),
      () => old.query(),
      () => old.synchronize(),
      () => old.transfer(),
      () => timed.elapsedSince(others[0]),
      () => others[0].elapsedSince(timed),
    ]
    for (const use of uses) assert.throws(use, expected)
    await assert.rejects(old.finished(), expected)
    assert.equal(String(old), 'Event { closed }')
    old.close()
    stream.synchronize()
    assert.equal(
      others.every(event => event.query()),
      true,
    )
  })

  it('close gives back a pool whose first memory and whose own close were refused', () => {
    for (const backing of ['virtual', 'segments', 'registrable'] as const) {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB })
      const device = openDevice(driver)
      const create = backing === 'segments' ? 'cuMemAlloc' : 'cuMemCreate'
      driver.failCall({ call: create, nth: backing === 'segments' ? 1 : 2, code: 999, onwards: true })
      driver.failCall({ call: 'cuCtxSynchronize', code: 999, onwards: true })
      const options = { backing, initialBytes: 48 * MiB }
      assert.throws(() => device.createPool(options), { name: 'CudaError', message: new RegExp(create) })
      driver.clearFaults()
      device.close()
      assert.equal(driver.usedBytes(), 0)
    }
  })

  it("a second close, or the device's, destroys an object that the driver refused to destroy", () => {
    const makers = [
      ['cuStreamDestroy', (device: Device) => device.createStream()],
      ['cuEventDestroy', (device: Device) => device.createEvent()],
      ['cuModuleUnload', (device: Device) => device.loadModule(PTX)],
      ['cuGraphExecDestroy', (device: Device) => device.capture(device.createStream(), () => {})],
    ] as const
    for (const [call, make] of makers) {
      for (const again of [true, false]) {
        const driver = new SimulatedDriver()
        const device = openDevice(driver)
        const part = make(device)
        driver.failCall({ call, code: 999 })
        assert.throws(() => part.close(), { name: 'CudaError' })
        const refused = driver.calls.get(call)!
        if (again) part.close()
        else device.close()
        assert.ok(driver.calls.get(call)! > refused, call)
        const destroyed = driver.calls.get(call)!
        part.close()
        assert.equal(driver.calls.get(call), destroyed, call)
        device.close()
      }
    }
  })

  it("the device's close destroys a captured graph that the driver refused to destroy", () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const stream = device.createStream()
    driver.failCall({ call: 'cuGraphDestroy', code: 999 })
    device.capture(stream, () => {}).close()
    assert.equal(driver.calls.get('cuGraphDestroy'), 1)
    device.close()
    assert.equal(driver.calls.get('cuGraphDestroy'), 2)
  })

  it('the next close finishes a close that the driver refused, at whichever call', () => {
    let refused = 0
    for (let done = false; !done; refused++) {
      const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
      const device = openDevice(driver)
      const stream = device.createStream()
      device.adoptStream(driver.cuStreamCreate(1))
      const callingPools = [device.createPlainPool(), device.defaultDriverPool(), device.createDriverPool()]
      for (const pool of [device.createPool(), ...fixedPools(device), ...callingPools]) {
        pool.allocate(3 * MiB, stream).fill(1)
      }
      device.createGrowableBuffer({ bytes: 3 * MiB, stream }).fill(1)
      const before = callsOf(driver)
      driver.failCall({ call: '*', nth: refused + 1, code: 999 })
      try {
        device.close() // some refusals do not throw
        done = callsOf(driver) - before <= refused
      } catch (error) {
        assert.equal((error as Error).name, 'CudaError')
        device.close()
      }
      assert.equal(driver.usedBytes(), 0)
      assertRefusesAll(device)
    }
    assert.ok(refused > 20, `${refused} calls`)
  })

  it('a device closes after its pools were closed, and during reads', { timeout: 5000 }, async () => {
    const device = openDevice('simulated')
    const pool = device.createPool()
    const buffer = pool.allocate(100 * KiB)
    buffer.fill(3)
    const reading = buffer.read()
    pool.close()
    device.close()
    assert.equal((await reading)[99_999], 3)
    const { calls } = device.driver
    assert.equal(calls.get('cuMemHostUnregister'), calls.get('cuMemHostRegister'))
  })

  it('the simulated device shares buffers and pools within a process, and closes opened ones first', async () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const buffer = device.createInterprocessBuffer(3 * MiB)
    buffer.fill(1)
    const [other] = await Promise.all([device.importBuffer(PATH), buffer.exportTo(PATH)])
    assert.equal((await other.read())[3 * MiB - 1], 1)
    const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor', maxPoolBytes: 64 * MiB })
    const [imported] = await Promise.all([device.importPool(PATH), pool.exportTo(PATH)])
    const block = imported.importBuffer(pool.exportPointer(pool.allocate(1 * MiB)))
    block.fill(2)
    assert.throws(() => pool.close(), { name: 'PoolError', message: /1 other process has this pool open/ })
    assert.deepEqual([pool.access(device), imported.access(device)], ['readWrite', 'readWrite'])
    device.close()
    assert.deepEqual([buffer.freed, other.freed, block.freed, driver.usedBytes()], [true, true, true, 0])
    await assert.rejects(device.importBuffer(PATH), { name: 'PoolError', message: /device is closed/ })
    await assert.rejects(device.importPool(PATH), { name: 'PoolError', message: /device is closed/ })
  })

  it('a device that closes during an open has nothing open', async () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    using owner = openDevice(driver)
    for (const what of ['buffer', 'pool'] as const) {
      const device = openDevice(driver)
      const opening = what === 'buffer' ? device.importBuffer(PATH) : device.importPool(PATH)
      const refused = assert.rejects(opening, { name: 'PoolError', message: /closed/ })
      device.close()
      const pool = owner.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      await (what === 'buffer' ? owner.createInterprocessBuffer(1) : pool).exportTo(PATH)
      await refused
      pool.close()
    }
  })

  it('a close beside a capture of another library changes nothing, and can be repeated', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const pool = device.createPool()
    const stream = device.createStream()
    using graph = device.capture(stream, () => pool.allocate(1000, stream).fill(1))
    const foreign = driver.cuStreamCreate(1)
    driver.cuStreamBeginCapture(foreign, 0)
    assert.throws(() => device.close(), {
      name: 'PoolError',
      message: /^close: .* is being captured, .*by another lib/,
    })
    assert.match(String(device), /open/)
    assert.throws(() => driver.cuStreamEndCapture(foreign), { result: 901 }) // the wait has broken it
    graph.launch(stream)
    pool.allocate(1000).fill(1)
    device.createStream()
    device.close()
    assert.equal(driver.usedBytes(), 0)
  })

  it('a close that a capture of a device with access refuses leaves the device open', () => {
    const driver = new SimulatedDriver({ devices: 2 })
    const [device, peer] = openDevices(driver)
    const identity = device.share()
    const pool = device.createPool()
    pool.setAccess(peer, 'readWrite')
    const buffer = pool.allocate(1000)
    const stream = peer.createStream()
    stream.beginCapture()
    assert.throws(() => device.close(), { name: 'PoolError', message: /^close: a stream is being captured/ })
    buffer.fill(1)
    device.createPool().allocate(1000).fill(1)
    const there = new Clocks(device.context, identity.order) // as another thread attaches
    there.close()
    stream.abortCapture()
    device.close()
    assertRefusesAll(device)
    peer.close()
    assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 0])
  })

  it('each call on a lost device throws with the cause, and close does not throw', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const stream = device.createStream()
    const pools = [device.createPool(), ...fixedPools(device), device.createPlainPool()]
    const buffers = pools.map(pool => pool.allocate(4, stream))
    driver.failCall({ call: 'cuMemsetD8Async', code: 700 })
    assert.throws(() => buffers[0].fill(0), { name: 'CudaError', result: 700 })
    assert.throws(() => buffers[0].fill(0), { name: 'DeviceLostError', message: /cuMemsetD8Async failed.*new process/ })
    assert.throws(() => device.synchronize(), { name: 'DeviceLostError' })
    device.close()
    device.close()
    assert.deepEqual([buffers[0].freed, device.context.released], [true, true])
    assert.throws(() => device.createStream(), { name: 'PoolError', message: /device is closed/ })
  })

  it('a fault found by close is thrown there, and the next close does not throw', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const buffer = device.createPool().allocate(4)
    driver.failCall({ call: 'cuCtxSynchronize', code: 700 })
    assert.throws(() => device.close(), { name: 'CudaError', call: 'cuCtxSynchronize' })
    device.close()
    assert.deepEqual([buffer.freed, device.context.released], [true, true])
  })
  it('close also closes the streams of a fallback on another device', () => {
    const driver = new SimulatedDriver({ devices: 2, capacityBytes: 64 * MiB })
    for (const order of [
      [0, 1],
      [1, 0],
    ]) {
      const devices = openDevices(driver)
      const [first, second] = devices
      const pool = fallback(first.createPool({ maxPoolBytes: 4 * MiB }), second.createPool())
      pool.allocate(8 * MiB, first.createStream()).free()
      assert.equal(pool.allocate(8 * MiB).device, 1)
      for (const index of order) devices[index].close()
      assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 0])
      for (const kind of ['Stream', 'Event']) {
        assert.equal(driver.calls.get(`cu${kind}Create`), driver.calls.get(`cu${kind}Destroy`), kind)
      }
    }
  })
})

describe('shared pools of a device', () => {
  it('are closed with a device that captures a stream', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const pool = device.createSharedPool()
    pool.allocate(1000)
    device.createStream().beginCapture()
    device.close()
    assert.deepEqual([pool.closed, driver.usedBytes()], [true, 0])
  })

  it('a shared block pool that is refused its first memory leaves no pool server behind', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    driver.failCall({ call: 'cuMemAlloc', code: 999 })
    assert.throws(() => device.createSharedBlockPool({ blockBytes: 64 * KiB, count: 4 }), { name: 'CudaError' })
    device.close() // throws while a pool server has the device attached
    assert.equal(driver.usedBytes(), 0)
  })

  it('host pools are closed with the device, and their arrays stay readable', () => {
    const device = openDevice('simulated')
    const pool = device.createSharedHostPool({ maxPoolBytes: 32 * MiB })
    const held = pool.allocateArray(Float64Array, 1000)
    const { elements } = held
    const target = device.createPool().allocateArray(Float64Array, 1000)
    elements.fill(1.5)
    held.copyTo(target)
    device.close()
    assert.deepEqual([pool.closed, held.freed, elements[999]], [true, true, 1.5])
    assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /pool is closed/ })
    const { calls } = device.driver
    assert.equal(calls.get('cuMemHostUnregister'), calls.get('cuMemHostRegister'))
  })
})

/** A device with pending work, and promises for its end. */
function openBusy() {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  const [stream, event] = [device.createStream(), device.createEvent()]
  const ticket = driver.holdOperation(stream.handle)
  event.record(stream)
  const release = () => driver.releaseThrough(stream.handle, ticket)
  return { driver, device, event, pending: [stream.finished(), event.finished()], release }
}

/** Pools with memory allocated in advance. */
function fixedPools(device: Device) {
  return [
    device.createArenaPool({ bytes: 4 * MiB }),
    device.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 4 * MiB }),
    device.createBlockPool({ blockBytes: 3 * MiB, count: 2, maxCount: 4 }),
  ]
}

function assertRefusesAll(device: Device): void {
  const uses: readonly (() => unknown)[] = [
    () => device.createStream(),
    () => device.adoptStream(0),
    () => device.createEvent(),
    () => device.createPool(),
    () => device.createArenaPool({ bytes: 1 }),
    () => device.createBlockPool({ blockBytes: 1, count: 1 }),
    () => device.createPlainPool(),
    () => device.createHostPool(),
    () => device.poolFor(device.defaultStream),
    () => device.createGrowableBuffer({ bytes: 1 }),
    () => device.loadModule(PTX),
    () => device.synchronize(),
    () => device.memoryInfo(),
  ]
  for (const use of uses) assert.throws(use, { name: 'PoolError', message: /device is closed/ }, `${use}`)
}

function callsOf(driver: SimulatedDriver): number {
  return [...driver.calls.values()].reduce((sum, count) => sum + count, 0)
}

describe('a shelf of a device', () => {
  it('closes with the device, with its models, its host pool and its waiting uses', async () => {
    const device = openDevice(new SimulatedDriver({ capacityBytes: 64 * MiB }))
    const shelf = device.createShelf<number>()
    assert.equal(shelf.budgetBytes, device.memoryLimit)
    shelf.add('one', { bytes: '40MiB', load: () => 1 })
    shelf.add('two', { bytes: '40MiB', load: () => 2 })
    assert.equal(await shelf.use('one', model => model), 1)
    const waiting = shelf.use('two', model => model)
    device.close()
    await assert.rejects(waiting, { code: 'ERR_POOL_CLOSED' })
    await assert.rejects(
      shelf.use('one', () => {}),
      { code: 'ERR_POOL_CLOSED' },
    )
    assert.throws(() => device.createShelf(), { code: 'ERR_DEVICE_CLOSED' })
  })
})
