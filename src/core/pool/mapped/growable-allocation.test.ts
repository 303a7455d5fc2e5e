// When memory of a growable buffer is given back: after a shrink or a free, with work pending on one stream or
// several.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import { callsDuring, GRANULE, setUp } from '../growable.fixture.js'
import type { TestDevice } from '../pool.fixture.js'
import type { GrowableBuffer } from './growable-buffer.js'

/** The last byte of each MiB. */
function samplesOf(buffer: GrowableBuffer): number[] {
  return Array.from({ length: buffer.byteLength / MiB }, (_, index) => buffer.readSync((index + 1) * MiB - 1, 1)[0])
}

/** Lets Node's event loop run until `isTrue`, or until the test times out. */
async function turnUntil(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise(resolve => setTimeout(resolve, 1))
}

describe('shrinking', () => {
  it('pending work keeps its memory, which is given back once the work has completed', async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const release = device.hold(stream)
    buffer.fill(3)
    buffer.shrink(10 * MiB)
    assert.equal(buffer.byteLength, 10 * MiB)
    for (let turn = 0; turn < 5; turn++) assert.equal(buffer.allocation.settle(), false)
    assert.deepEqual([buffer.mappedBytes, device.freeBytes()], [40 * MiB, 24 * MiB])
    release()
    await buffer.settled()
    assert.deepEqual([buffer.mappedBytes, device.freeBytes()], [10 * MiB, 54 * MiB])
    assert.deepEqual(samplesOf(buffer), Array(10).fill(3))
    buffer.check()
  })

  it('whole granules are given back, one by one', () => {
    const { buffer } = setUp({}, { bytes: 6 * MiB })
    for (const [bytes, mapped] of [
      [6 * MiB - 1, 6 * MiB],
      [4 * MiB + 1, 6 * MiB],
      [4 * MiB, 4 * MiB],
      [2 * MiB, 2 * MiB],
      [1, 2 * MiB],
      [0, 0],
    ]) {
      buffer.shrink(bytes)
      buffer.settleSync()
      assert.equal(buffer.mappedBytes, mapped)
    }
  })

  it('settleSync waits for the pending work', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const { device, stream, buffer } = setUp({ progress: 'seeded', seed }, { bytes: 40 * MiB })
      const other = device.createStream()
      for (const each of [stream, other]) device.hold(each)
      buffer.fill(3)
      device.context.activate().cuMemsetD8Async(buffer.ptr + 30 * MiB, 1, 10 * MiB, other.handle)
      buffer.recordUse(other)
      buffer.shrink(4 * MiB)
      assert.equal(buffer.mappedBytes, 40 * MiB)
      buffer.settleSync()
      assert.equal(buffer.mappedBytes, 4 * MiB)
      assert.equal(buffer.readSync(4 * MiB - 1)[0], 3)
    }
  })

  it('it waits for its own stream and those announced, also after they close, and for no other', async () => {
    const users: [string, (device: TestDevice, buffer: GrowableBuffer) => Stream, boolean][] = [
      ['its own', (_, buffer) => buffer.stream, true],
      ['announced', device => device.createStream(), true],
      ['closed since', device => device.createStream(), true],
      ['unrelated', device => device.createStream(), false],
    ]
    for (const [what, streamOf, waits] of users) {
      const { device, buffer } = setUp({}, { bytes: 20 * MiB })
      const stream = streamOf(device, buffer)
      const release = device.hold(stream)
      if (waits) device.context.activate().cuMemsetD8Async(buffer.ptr, 1, 20 * MiB, stream.handle)
      if (what !== 'unrelated') buffer.recordUse(stream)
      if (what === 'closed since') stream.close()
      buffer.shrink(2 * MiB)
      assert.equal(buffer.mappedBytes, waits ? 20 * MiB : 2 * MiB, what)
      if (what === 'closed since') buffer.settleSync()
      else release()
      await buffer.settled()
      assert.equal(buffer.mappedBytes, 2 * MiB, what)
      device.context.activate().cuCtxSynchronize()
    }
  })

  it('it forgets streams that were closed and are done', () => {
    const { device, buffer } = setUp({}, { bytes: 20 * MiB })
    for (let round = 0; round < 200; round++) {
      const stream = device.createStream()
      buffer.recordUse(stream)
      stream.close()
      device.defaultStream.synchronize()
    }
    const { users } = buffer.allocation as unknown as { users: Set<Stream> }
    assert.ok(users.size < 70, `${users.size} streams`)
  })

  it('work submitted later does not delay it', async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const first = device.hold(stream)
    buffer.fill(1)
    buffer.shrink(10 * MiB)
    const second = device.hold(stream)
    buffer.fill(2)
    first()
    await buffer.settled()
    assert.equal(buffer.mappedBytes, 10 * MiB)
    second()
    assert.equal(buffer.readSync(10 * MiB - 1)[0], 2)
  })

  it('a second shrink during the first one waits for its own work', async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const first = device.hold(stream)
    buffer.fill(1)
    buffer.shrink(20 * MiB)
    const second = device.hold(stream)
    buffer.fill(2)
    buffer.shrink(6 * MiB)
    first()
    buffer.allocation.settle()
    assert.ok(buffer.mappedBytes >= 20 * MiB && buffer.mappedBytes < 40 * MiB, `${buffer.mappedBytes}`)
    second()
    await buffer.settled()
    assert.equal(buffer.mappedBytes, 6 * MiB)
  })

  it('shrinks and growths under steady work give the memory of an early peak back', () => {
    const { device, stream, buffer } = setUp({}, { bytes: 60 * MiB })
    const releases = [device.hold(stream)]
    buffer.fill(0)
    for (let round = 0; round < 10; round++) {
      buffer.shrink(4 * MiB)
      releases.push(device.hold(stream))
      buffer.grow(8 * MiB)
      buffer.fill(round)
      releases.shift()!()
    }
    assert.ok(buffer.mappedBytes <= 10 * MiB, `${buffer.mappedBytes}`)
    releases[0]()
    assert.equal(buffer.readSync(8 * MiB - 1)[0], 9)
  })

  it('a growth takes back memory that is still mapped, and keeps it', async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const release = device.hold(stream)
    buffer.fill(4)
    buffer.shrink(4 * MiB)
    assert.deepEqual(
      callsDuring(device, () => buffer.grow(36 * MiB)),
      {},
    )
    const grown = callsDuring(device, () => buffer.grow(50 * MiB))
    assert.equal(grown['cuMemSetAccess'], 1)
    buffer.fill(5, 0, 50 * MiB)
    release()
    await buffer.settled()
    assert.equal(buffer.mappedBytes, 50 * MiB)
    assert.deepEqual(samplesOf(buffer), Array(50).fill(5))
    buffer.shrink(40 * MiB)
    device.hold(stream)
    buffer.grow(41 * MiB)
    buffer.fill(6)
    buffer.shrink(2 * MiB)
    buffer.settleSync()
    assert.equal(buffer.mappedBytes, 2 * MiB)
    assert.equal(buffer.readSync()[0], 6)
  })

  it('less than a quarter, 64 MiB at most, stays mapped beyond the length, or less than a granule', () => {
    const { buffer } = setUp({ capacityBytes: 2048 * MiB }, { bytes: 2048 * MiB })
    let kept = 0
    for (let bytes = 2047 * MiB; bytes > 0; bytes -= 7 * MiB) {
      buffer.shrink(bytes)
      buffer.settleSync()
      const needed = Math.ceil(bytes / GRANULE) * GRANULE
      const beyond = buffer.mappedBytes - needed
      assert.ok(beyond >= 0 && beyond <= Math.min(64 * MiB, bytes / 4), `${beyond} beyond ${bytes}`)
      if (beyond > 0) kept++
    }
    assert.ok(kept > 0)
  })

  it('it goes on in the background without a wait', { timeout: 5000 }, async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const release = device.hold(stream)
    buffer.fill(1)
    buffer.shrink(10 * MiB)
    buffer.shrink(2 * MiB)
    release()
    await turnUntil(() => buffer.mappedBytes === 2 * MiB)
    const held = device.hold(stream)
    buffer.fill(1)
    buffer.free()
    held()
    await turnUntil(() => device.freeBytes() === 64 * MiB)
  })

  it('it does not keep Node alive', () => {
    const index = new URL('../../../index.js', import.meta.url)
    const program = `
      import { openDevice, MiB } from '${index}'
      const device = openDevice('simulated')
      const stream = device.createStream()
      const buffer = device.createGrowableBuffer({ bytes: 40 * MiB, stream })
      device.driver.holdOperation(stream.handle)
      buffer.fill(1)
      buffer.shrink(2 * MiB)
      console.log(buffer.mappedBytes / MiB)`
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
      timeout: 20_000,
    })
    assert.deepEqual([status, stdout, stderr], [0, '40\n', ''])
  })
})

describe('freeing a growable buffer', () => {
  it('memory and addresses go back when pending work on all its streams has completed', async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    const other = device.createStream()
    const releases = [device.hold(stream), device.hold(other)]
    buffer.fill(1)
    device.context.activate().cuMemsetD8Async(buffer.ptr, 2, 40 * MiB, other.handle)
    buffer.free(other)
    assert.equal(buffer.freed, true)
    releases[0]()
    assert.equal(buffer.allocation.settle(), false)
    assert.equal(device.freeBytes(), 24 * MiB)
    releases[1]()
    await buffer.settled()
    assert.equal(device.freeBytes(), 64 * MiB)
    assert.equal(device.driver.calls.get('cuMemAddressFree'), device.driver.calls.get('cuMemAddressReserve'))
    await buffer.settled()
    buffer.settleSync()
  })

  it('a free after a pending shrink waits for both', () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    device.hold(stream)
    buffer.fill(1)
    buffer.shrink(20 * MiB)
    const other = device.createStream()
    const release = device.hold(other)
    buffer.recordUse(other)
    device.context.activate().cuMemsetD8Async(buffer.ptr, 2, 20 * MiB, other.handle)
    buffer.free()
    stream.synchronize()
    assert.equal(buffer.allocation.settle(), false)
    assert.equal(device.freeBytes(), 24 * MiB)
    release()
    buffer.settleSync()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('a freed buffer is stale, and a second free throws', async () => {
    const { buffer } = setUp()
    {
      using again = buffer
      again.free()
    }
    for (const use of [
      () => buffer.free(),
      () => buffer.ptr,
      () => buffer.byteLength,
      () => buffer.grow(4 * MiB),
      () => buffer.shrink(0),
      () => buffer.array(Uint8Array, 1),
      () => buffer.fill(0),
      () => buffer.recordUse(buffer.stream),
    ]) {
      assert.throws(use, { name: 'PoolError', message: /the buffer was already freed/ })
    }
    await assert.rejects(buffer.read(), PoolError)
    assert.equal(buffer.mappedBytes, 0)
  })

  it("a free works on the default stream, and after the buffer's stream closed", () => {
    const { device, stream, buffer } = setUp()
    const plain = device.createGrowableBuffer({ bytes: 5 * MiB })
    assert.equal(plain.stream, device.defaultStream)
    device.hold(stream)
    buffer.fill(1)
    stream.close()
    assert.throws(() => buffer.fill(1), { name: 'PoolError', message: /stream is closed/ })
    buffer.grow(20 * MiB)
    for (const each of [buffer, plain]) {
      each.free()
      each.settleSync()
    }
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('closing the device waits for pending work', () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    device.hold(stream)
    buffer.fill(1)
    buffer.shrink(30 * MiB)
    buffer.allocation.close()
    device.context.activate().cuCtxSynchronize()
    assert.deepEqual([buffer.freed, device.freeBytes()], [true, 64 * MiB])
    buffer[Symbol.dispose]()
    buffer.allocation.close()
  })

  it('a lost device ends the wait without an error', { timeout: 5000 }, async () => {
    const { device, stream, buffer } = setUp({}, { bytes: 40 * MiB })
    device.hold(stream)
    device.context.activate().cuMemsetD8Async(buffer.ptr, 1, 1, stream.handle)
    device.driver.failCall({ call: 'cuEventQuery', code: 700 })
    buffer.free()
    assert.throws(() => buffer.settleSync(), { name: 'DeviceLostError' })
    await assert.rejects(buffer.settled(), { name: 'DeviceLostError' })
    buffer.allocation.close()
    await buffer.settled()
  })
})
