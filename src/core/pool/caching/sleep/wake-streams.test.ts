// `wake({ wait: 'streams' })`: no stream of the device reads or gets memory under the copies. The copies to the device
// are held back, as if the copy engine were busy, and each test ends by looking at the bytes.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CU_STREAM_PER_THREAD } from '../../../driver/constants.js'
import { Context } from '../../../driver/context.js'
import { SimulatedDriver } from '../../../driver/simulated/simulated-driver.js'
import { Clocks } from '../../../order/clocks.js'
import { Event } from '../../../order/event.js'
import { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, TestDevice } from '../../pool.fixture.js'

/** Copies to the device wait for `arrive`. */
class LateCopies extends SimulatedDriver {
  private held: (() => void)[] = []

  override cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const ticket = this.holdOperation(stream)
    this.held.push(() => this.releaseThrough(stream, ticket))
    super.cuMemcpyHtoDAsync(target, source, stream)
  }

  arrive(): void {
    for (const release of this.held.splice(0)) release()
  }
}

/** A pool with room for one buffer, which is filled with 7 and then sleeps. */
async function openAsleep() {
  const driver = new LateCopies({ capacityBytes: 64 * MiB, progress: 'eager' })
  const device = new TestDevice(driver)
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 16 * MiB })
  const [own, other] = [device.createStream(), device.createStream()]
  const buffer = pool.allocate(12 * MiB, own)
  buffer.fill(7)
  await pool.sleep()
  const wake = () => pool.wake({ wait: 'streams' })
  /** Asserts that work on `stream` finds the contents. */
  const assertReads = (stream: Stream) => {
    const copy = device.createPool({ backing: 'virtual' }).allocate(12 * MiB, stream)
    copy.copyFrom(buffer)
    driver.arrive()
    assertFilled(copy, 7)
  }
  /** Asserts that no copy changes memory that `stream` gets, at the place of the freed buffer. */
  const assertGets = (stream: Stream) => {
    const { ptr } = buffer
    buffer.free()
    const next = pool.allocate(12 * MiB, stream)
    assert.equal(next.ptr, ptr)
    next.fill(1)
    driver.arrive()
    assertFilled(next, 1)
  }
  return { driver, device, pool, own, other, buffer, wake, assertReads, assertGets }
}

function assertFilled(buffer: DeviceBuffer, value: number): void {
  const bytes = buffer.readSync()
  assert.ok(isFilled(bytes, value), `all bytes are ${value}, not ${bytes[0]}`)
}

/** The clocks of a second thread of the device. */
function secondThread(device: TestDevice): Clocks {
  return new Clocks(Context.open(device.driver, 0), device.clocks.share())
}

type Opened = Awaited<ReturnType<typeof openAsleep>>

/** The streams that take work, by how they came to do so beside the wake. */
const streams: Record<string, (opened: Opened) => Promise<Stream>> = {
  'that was open': async ({ wake, other }) => {
    await wake()
    return other
  },
  'that was captured, until the graph is made': async ({ wake, other }) => {
    other.beginCapture()
    await wake()
    other.endCapture().close()
    return other
  },
  'that was captured, until the capture is dropped': async ({ wake, other }) => {
    other.beginCapture()
    await wake()
    other.abortCapture()
    return other
  },
  'that joined a capture': async ({ device, wake, other }) => {
    const origin = device.createStream()
    const [fork, join] = [new Event(device.context), new Event(device.context)]
    origin.beginCapture()
    fork.record(origin)
    other.wait(fork)
    await wake()
    join.record(other)
    origin.wait(join)
    origin.endCapture().close()
    return other
  },
  'that a capture kept idle': async ({ device, driver, wake }) => {
    device.context.activate()
    const blocking = new Stream(device.clocks, driver.cuStreamCreate(0), false)
    blocking.beginCapture()
    await wake()
    blocking.abortCapture()
    return device.defaultStream
  },
  'that is made while the copies arrive': async ({ device, wake }) => {
    await wake()
    return device.createStream()
  },
  'that is captured while the copies arrive': async ({ device, wake }) => {
    await wake()
    const made = device.createStream()
    made.beginCapture()
    made.endCapture().close()
    return made
  },
  'that another thread makes and lends': async ({ device, wake }) => {
    const there = secondThread(device)
    await wake()
    return Stream.borrow(device.clocks, Stream.create(there).share())!
  },
}

describe('a wake that streams wait for', () => {
  for (const [which, come] of Object.entries(streams)) {
    it(`shows the contents to a stream ${which}`, async () => {
      const opened = await openAsleep()
      opened.assertReads(await come(opened))
    })

    it(`gives no memory under a copy to a stream ${which}`, async () => {
      const opened = await openAsleep()
      opened.own.close() // its last mark is complete, so that the buffer depends on no work once it is freed
      opened.assertGets(await come(opened))
    })
  }

  it('frees by address, and on a stream that was announced, wait as well', async () => {
    for (const isAnnounced of [false, true]) {
      const { device, driver, pool, own, buffer, wake } = await openAsleep()
      own.close()
      await wake()
      const made = device.createStream()
      if (isAnnounced) buffer.recordUse(made)
      pool.deallocate(buffer.ptr)
      const next = pool.allocate(12 * MiB, isAnnounced ? device.createStream() : made)
      next.fill(1)
      driver.arrive()
      assertFilled(next, 1)
    }
  })

  it('unmaps no view under a copy to make room for another', async () => {
    const driver = new LateCopies({ capacityBytes: 64 * MiB, progress: 'eager' })
    const device = new TestDevice(driver)
    const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 32 * MiB })
    const own = device.createStream()
    const pieces = Array.from({ length: 8 }, () => pool.allocate(4 * MiB, own))
    for (const index of [1, 3, 5]) pieces[index].free()
    const joined = pool.allocate(11 * MiB, own)
    await pool.sleep()
    own.close()
    await pool.wake({ wait: 'streams' })
    joined.free()
    pieces[7].free()
    const { views } = pool.central.backing as unknown as { views: { hasRoom(): boolean } }
    views.hasRoom = () => false
    const unmaps = device.calls('cuMemUnmap')
    assert.equal(pool.tryAllocate(15 * MiB), null)
    assert.equal(device.calls('cuMemUnmap'), unmaps)
    driver.arrive()
    while (pool.stats().hostCopyBytes > 0) await new Promise(setImmediate)
    assert.equal(pool.tryAllocate(15 * MiB), null)
    assert.ok(device.calls('cuMemUnmap') > unmaps, 'the view could go')
  })

  it('waits on the host while another thread captures a stream', async () => {
    const { device, driver, buffer, wake } = await openAsleep()
    const theirs = Stream.create(secondThread(device))
    theirs.beginCapture()
    await assertHostWaits(wake, driver)
    theirs.abortCapture()
    assertFilled(buffer, 7)
  })

  it('waits on the host while another thread has a default stream of its own', async () => {
    const { device, driver, buffer, wake } = await openAsleep()
    new Stream(secondThread(device), CU_STREAM_PER_THREAD, false)
    await assertHostWaits(wake, driver)
    assertFilled(buffer, 7)
  })

  it('waits on the host if the driver refuses a wait of a stream, of any', async () => {
    for (const nth of [1, 2, 3]) {
      const { driver, buffer, wake } = await openAsleep()
      driver.failCall({ call: 'cuStreamWaitEvent', nth, code: 999 })
      await assertHostWaits(wake, driver)
      assertFilled(buffer, 7)
    }
  })

  it('makes the host wait for a stream that the driver refuses to hold later', async () => {
    const comeLater = ['that was captured, until the graph is made', 'that is made while the copies arrive']
    for (const which of comeLater) {
      const opened = await openAsleep()
      const { driver, wake } = opened
      const failing = async () => {
        await wake()
        driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
      }
      opened.assertReads(await streams[which]({ ...opened, wake: failing }))
    }
  })

  it('leaves no slot taken if a new stream cannot be ordered at all', async () => {
    const { device, driver, wake, assertGets } = await openAsleep()
    await wake()
    driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    driver.failCall({ call: 'cuEventSynchronize', code: 999 })
    const limit = device.clocks.slotLimit
    assert.throws(() => device.createStream(), { name: 'CudaError' })
    driver.clearFaults()
    assertGets(device.createStream())
    assert.equal(device.clocks.slotLimit, limit + 1, 'the slot serves the next stream')
  })

  it('leaves streams alone once the copies have arrived', async () => {
    const { device, driver, pool, wake } = await openAsleep()
    await wake()
    driver.arrive()
    while (pool.stats().hostCopyBytes > 0) await new Promise(setImmediate)
    const waits = device.calls('cuStreamWaitEvent')
    device.createStream()
    assert.equal(device.calls('cuStreamWaitEvent'), waits)
  })
})

/** Asserts that a wake resolves only when the copies have arrived. */
async function assertHostWaits(wake: () => Promise<void>, driver: LateCopies): Promise<void> {
  let isAwake = false
  const waking = wake().then(() => {
    isAwake = true
  })
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
  assert.equal(isAwake, false)
  driver.arrive()
  await waking
}
