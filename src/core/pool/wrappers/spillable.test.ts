import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import type { HostPool } from '../host/host-pool.js'
import { isFilled, refuseEach, TestDevice, twoDevices } from '../pool.fixture.js'
import { fallback } from './fallback.js'
import { type SpillableOptions, spillable } from './spillable.js'
import type { SpillableBuffer } from './spillable-buffer.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 400)

function open({ maxPoolBytes = 8 * MiB, hostBytes = 64 * MiB, poolBytes = 32 * MiB } = {}) {
  const device = new TestDevice({ capacityBytes: 64 * MiB, granularityBytes: 256 * KiB })
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: poolBytes })
  const host = device.createHostPool({ maxPoolBytes: hostBytes, segmentBytes: 1 * MiB })
  return { device, pool, host, set: spillable(pool, { host, maxPoolBytes }) }
}

function openOnTwoStreams() {
  const { set, device } = open()
  const [first, second] = [device.createStream(), device.createStream()]
  return { set, driver: device.driver, first, second, buffer: set.allocate(2 * MiB, first) }
}

function fill(buffer: SpillableBuffer, value: number, stream?: Stream): void {
  using here = buffer.use(stream)
  here.fill(value)
}

function assertFilled(buffer: SpillableBuffer, value: number, stream?: Stream): void {
  using here = buffer.use(stream, { writes: false })
  const bytes = here.readSync()
  assert.ok(isFilled(bytes, value), `${bytes[0]} instead of ${value}`)
}

describe('spillable buffers', () => {
  it('a use that a wrong stream was to end goes on, and can end', () => {
    const { set, buffer } = openOnTwoStreams()
    const [stranger] = twoDevices()
    const here = buffer.use()
    assert.throws(() => here.free(5 as never), { name: 'TypeError', message: /^free: stream must be a Stream, not 5$/ })
    assert.throws(() => here.free(stranger.defaultStream), { code: 'ERR_OTHER_DEVICE' })
    assert.throws(() => here.noteUse(undefined as never, 'x'), { name: 'TypeError', message: /^noteUse: stream must/ })
    assert.ok(buffer.inUse)
    here.free()
    set.close()
  })

  it('may be closed by an observer of the host memory that they spill to', () => {
    const { set, host } = open()
    const buffer = set.allocate(2 * MiB)
    host.observeSegments({ ready: () => set.close(), leaving() {} })
    assert.equal(buffer.spill(), false)
    assert.deepEqual([buffer.freed, set.stats().onHostBytes, host.stats().liveBuffers], [true, 0, 0])
  })

  it('spill after all work of a stream that was announced, not only that before its next mark', () => {
    const { set, driver, first, second, buffer } = openOnTwoStreams()
    const here = buffer.use(first)
    here.recordUse(second)
    second.query()
    signal(first, second)
    const ticket = driver.holdOperation(second.handle)
    driver.cuMemsetD8Async(here.ptr, 7, here.byteLength, second.handle)
    here.free()
    assert.equal(buffer.spill(first), true)
    driver.releaseThrough(second.handle, ticket)
    assertFilled(buffer, 7, first)
    set.close()
  })

  it('move to the host when the limit is reached, the oldest first, and come back with their contents', () => {
    const { set, pool } = open()
    const buffers = Array.from({ length: 5 }, () => set.allocate(2 * MiB))
    assert.deepEqual(
      buffers.map(({ onDevice }) => onDevice),
      [false, true, true, true, true],
    )
    for (const [index, buffer] of buffers.entries()) fill(buffer, index + 1)
    for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
    const { onDeviceBytes, onHostBytes } = set.stats()
    assert.deepEqual([onDeviceBytes, onHostBytes], [8 * MiB, 2 * MiB])
    assert.equal(`${set}`, 'SpillableSet { 8 MiB on the device, 2 MiB on the host }')
    assert.deepEqual(
      [0, 1].map(index => `${buffers[index]}`),
      ['SpillableBuffer { 2 MiB on the host }', 'SpillableBuffer { 2 MiB on the device }'],
    )
    assert.equal(pool.stats().liveBytes, 8 * MiB)
    set.close()
    assert.deepEqual(set.stats().onDeviceBytes, 0)
    assert.equal(pool.stats().liveBytes, 0)
    assert.throws(() => set.allocate(1), /^PoolError: allocate: the spillable buffers are closed/)
  })

  it('spill a buffer that was only read without a copy', () => {
    const { set, device } = open()
    const buffer = set.allocate(2 * MiB)
    fill(buffer, 7)
    assert.equal(buffer.spill(), true)
    assert.equal(buffer.spill(), false, 'it is there already')
    assert.equal(set.stats().spilledBytes, 2 * MiB)
    assertFilled(buffer, 7)
    const copies = device.driver.calls.get('cuMemcpyDtoHAsync')
    assert.equal(set.spill(1), 2 * MiB)
    assert.equal(device.driver.calls.get('cuMemcpyDtoHAsync'), copies)
    assertFilled(buffer, 7)
    fill(buffer, 8)
    buffer.spill()
    assertFilled(buffer, 8)
    const { spills, spilledBytes, returns, returnedBytes } = set.stats()
    assert.deepEqual([spills, spilledBytes, returns, returnedBytes], [3, 4 * MiB, 3, 6 * MiB])
    set.close()
  })

  it('take their stream as an option, which is read before anything else', () => {
    const { set, device } = open()
    const stream = device.createStream()
    const buffer = set.allocate('1MiB', { stream })
    assert.equal(buffer.use({ stream, writes: false }).stream, stream)
    assert.throws(() => set.allocate(1, { streams: stream } as object), {
      name: 'TypeError',
      message: /unknown option/,
    })
    assert.throws(() => buffer.use({ stream: 5 } as object), { name: 'TypeError', message: /stream must be a Stream/ })
    const other = set.allocate('1MiB')
    const freeing = {
      get writes() {
        other.free()
        return true
      },
    }
    assert.throws(() => other.use(freeing), { name: 'PoolError', message: /already freed/ })
  })

  it('give up a copy that a write has outdated before one that still holds', () => {
    const { set } = open({ hostBytes: 4 * MiB })
    const [read, written, other] = [5, 6, 7].map(value => {
      const buffer = set.allocate(2 * MiB)
      fill(buffer, value)
      return buffer
    })
    read.spill()
    written.spill()
    assertFilled(read, 5) // the oldest of those on the device
    fill(written, 8)
    other.spill()
    const { spilledBytes } = set.stats()
    read.spill()
    assert.equal(set.stats().spilledBytes, spilledBytes, 'the copy of the read buffer was still there')
    assertFilled(read, 5)
    assertFilled(written, 8)
    assertFilled(other, 7)
    set.close()
  })

  it('make room when the upstream pool has none', () => {
    const { set } = open({ maxPoolBytes: 64 * MiB, poolBytes: 8 * MiB })
    const buffers = Array.from({ length: 6 }, () => set.allocate(2 * MiB))
    for (const [index, buffer] of buffers.entries()) fill(buffer, index + 1)
    for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
    set.close()
  })

  it('never wait on the host', () => {
    const { set, device } = open()
    const stream = device.createStream()
    const buffers = Array.from({ length: 16 }, () => set.allocate(2 * MiB, stream))
    const waits = () =>
      ['cuStreamSynchronize', 'cuEventSynchronize', 'cuCtxSynchronize'].map(call => device.driver.calls.get(call) ?? 0)
    const before = waits()
    for (let round = 0; round < 3; round++) for (const buffer of buffers) fill(buffer, round, stream)
    assert.deepEqual(waits(), before)
    assertFilled(buffers[0], 2)
    set.close()
  })

  it('are spilled after work of all streams that used them', () => {
    const { set, driver, first, second, buffer } = openOnTwoStreams()
    const ticket = driver.holdOperation(second.handle)
    fill(buffer, 5, second)
    buffer.spill(first)
    const next = set.allocate(2 * MiB, first) // has the memory, in the order of the spilling stream
    fill(next, 9, first)
    driver.releaseThrough(second.handle, ticket)
    assertFilled(buffer, 5)
    assertFilled(next, 9)
    set.close()
  })

  it('come back after the copy to the host, on any stream', () => {
    const { set, driver, first, second, buffer } = openOnTwoStreams()
    fill(buffer, 5, first)
    const ticket = driver.holdOperation(second.handle)
    buffer.spill(second)
    using here = buffer.use(first, { writes: false })
    driver.releaseThrough(second.handle, ticket)
    assert.equal(here.readSync(0, 1)[0], 5)
    here.free()
    set.close()
  })

  it('come back before work of any stream that uses them', () => {
    const { set, driver, first, second, buffer } = openOnTwoStreams()
    fill(buffer, 5, first)
    buffer.spill(first)
    const other = set.allocate(2 * MiB, first) // changes the bytes in the memory
    fill(other, 9, first)
    other.free()
    const ticket = driver.holdOperation(first.handle)
    buffer.use(first, { writes: false }).free()
    const copy = set.allocate(2 * MiB, second)
    {
      using source = buffer.use(second, { writes: false })
      using target = copy.use(second)
      target.copyFrom(source)
    }
    driver.releaseThrough(first.handle, ticket)
    second.synchronize()
    assertFilled(copy, 5, second)
    set.close()
  })

  it('keep their host memory from other spills until the copy of a return has read it', () => {
    const { set, device } = open({ hostBytes: 2 * MiB })
    const [first, second] = [device.createStream(), device.createStream()]
    const [buffer, other] = [set.allocate(2 * MiB, first), set.allocate(2 * MiB, first)]
    fill(buffer, 5, second)
    fill(other, 9, second)
    buffer.spill(second)
    second.synchronize()
    const release = device.hold(first)
    const use = buffer.use(first)
    use.free() // the copy on the host is given up for the next spill
    assert.equal(other.spill(second), true)
    release()
    assertFilled(buffer, 5)
    assertFilled(other, 9, second)
  })

  it('are not spilled while in use, and say so', () => {
    const { set } = open({ maxPoolBytes: 4 * MiB })
    const [one, two] = [set.allocate(2 * MiB), set.allocate(2 * MiB)]
    const uses = [one.use(), two.use()]
    assert.throws(() => one.spill(), /^PoolError: spill: the buffer is in use; dispose what use\(\) returned first/)
    assert.throws(() => one.free(), /^PoolError: free: the buffer is in use/)
    assert.throws(() => set.close(), /^PoolError: close: 2 buffers are in use/)
    assert.equal(set.spill(4 * MiB), 0)
    assert.throws(
      () => set.allocate(1 * MiB),
      (error: unknown) =>
        error instanceof OutOfMemoryError &&
        /no room for 1 MiB within maxPoolBytes, 4 MiB: .* 4 MiB of them in use.*; end a use/.test(error.message),
    )
    for (const use of uses) use.free()
    assert.throws(() => uses[0].fill(1), /^PoolError: fill: the use of the buffer has ended; call use\(stream\) again/)
    set.allocate(1 * MiB)
    set.close()
    assert.throws(() => one.use(), /already freed/)
  })

  it('stay on the device if the host has no room, and the next oldest is tried', () => {
    const { set } = open({ maxPoolBytes: 4 * MiB, hostBytes: 1 * MiB })
    const [large, small] = [set.allocate(3 * MiB), set.allocate(1 * MiB)]
    fill(large, 1)
    fill(small, 2)
    fill(large, 3)
    const next = set.allocate(1 * MiB)
    assert.deepEqual([large.onDevice, small.onDevice], [true, false])
    assert.throws(() => set.allocate(4 * MiB), OutOfMemoryError)
    assertFilled(large, 3)
    next.free()
    assertFilled(small, 2)
    set.close()
  })

  it('have one error for each wrong argument', () => {
    const { set, pool, host, device } = open()
    const other = new TestDevice()
    const bad: [() => unknown, RegExp][] = [
      [() => spillable({} as never, { host }), /spillable: pool must be a pool/],
      [() => spillable(host as never, { host }), /pool of device memory, not a host pool, which is the option host/],
      [() => spillable(pool, { host: pool } as unknown as SpillableOptions), /spillable: host must be a host pool/],
      [
        () => spillable(pool, { host, limit: 1 } as SpillableOptions),
        /unknown option 'limit'.*did you mean maxPoolBytes/,
      ],
      [() => spillable(pool, { host, maxPoolBytes: 0 }), /maxPoolBytes/],
      [() => spillable(pool, { host: other.createHostPool() }), /belongs to another device/],
      [() => set.allocate(0), /allocate: bytes/],
      [() => set.allocate(1, other.createStream()), /allocate: the stream belongs to another device/],
      [() => set.spill(1, other.createStream()), /spill: the stream belongs to another device/],
      [() => set.spill(-1), /spill: bytes/],
      [() => set.allocate(1).use(undefined, { writes: 1 } as never), /use: writes must be true or false/],
      [() => set.allocate(1).use(other.createStream()), /use: the stream belongs to another device/],
    ]
    for (const [call, message] of bad) assert.throws(call, message)
    const stream = device.createStream()
    const buffer = set.allocate(100, stream)
    stream.beginCapture()
    assert.throws(() => buffer.use(stream), /PoolError: use: /)
    assert.throws(() => set.allocate(8 * MiB, stream), /PoolError: allocate: the stream is being captured/)
    assert.ok(buffer.onDevice, 'the copy would have been captured')
    stream.abortCapture()
    const closed = device.createStream()
    closed.close()
    assert.throws(() => set.allocate(1, closed), /PoolError: allocate: the stream is closed/)
    buffer.spill()
    host.close()
    assert.throws(() => buffer.use(stream), /the host pool that has the contents was closed; close it last/)
  })

  it('are freed, with their copies on the host, after their pool was closed', () => {
    const { set, pool, host } = open({ maxPoolBytes: 2 * MiB })
    const buffers = [1, 2, 3].map(() => set.allocate(1 * MiB))
    for (const buffer of buffers) fill(buffer, 1) // two of them come back, and have copies
    pool.close()
    assert.throws(() => buffers[2].use(), { name: 'PoolError', message: /^use: .* closed/ })
    buffers[2].free()
    buffers[1][Symbol.dispose]()
    set.close()
    const { onDeviceBytes, onHostBytes } = set.stats()
    assert.deepEqual([onDeviceBytes, onHostBytes, host.stats().liveBuffers], [0, 0, 0])
  })

  it('stay on the device for a request that nothing makes room for', () => {
    const { set, pool } = open()
    const [idle, used] = [set.allocate(3 * MiB), set.allocate(3 * MiB)]
    using _use = used.use()
    for (const bytes of [6 * MiB, 9 * MiB]) {
      assert.throws(() => set.allocate(bytes), { name: 'OutOfMemoryError', message: /within maxPoolBytes, 8 MiB/ })
    }
    const { set: unlimited } = open({ maxPoolBytes: 64 * MiB })
    const buffer = unlimited.allocate(1 * MiB)
    assert.throws(() => unlimited.allocate(33 * MiB), { name: 'OutOfMemoryError', message: /are on the device/ })
    assert.deepEqual([idle.onDevice, buffer.onDevice, pool.stats().liveBytes], [true, true, 6 * MiB])
  })

  it('stay where they are while the pool sleeps', async () => {
    const { set, pool } = open()
    const away = set.allocate(8 * MiB)
    fill(away, 1)
    const buffer = set.allocate(8 * MiB)
    fill(buffer, 2)
    await pool.sleep()
    for (const call of [() => buffer.spill(), () => set.spill(1), () => away.use(), () => set.allocate(1)]) {
      assert.throws(call, /PoolError: .*the pool is asleep; await its wake\(\)/)
    }
    assert.deepEqual([buffer.onDevice, away.onDevice], [true, false])
    await pool.wake()
    pool.defaultStream.synchronize()
    assertFilled(buffer, 2)
    assertFilled(away, 1)
  })

  it('may lie on another device that lends memory', () => {
    const [device, peer] = twoDevices()
    const pool = fallback(device.createPool({ maxPoolBytes: 4 * MiB }), peer.createPool())
    const set = spillable(pool, { host: device.createHostPool() })
    const buffers = [set.allocate(4 * MiB), set.allocate(4 * MiB)]
    for (const [index, buffer] of buffers.entries()) fill(buffer, index + 1)
    for (const buffer of buffers) assert.equal(buffer.spill(), true)
    for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
    set.close()
  })

  it('keep their contents if any driver call fails', async () => {
    await refuseEach(
      () => {
        const opened = open({ maxPoolBytes: 2 * MiB })
        const buffers = Array.from({ length: 4 }, () => opened.set.allocate(1 * MiB))
        for (const [index, buffer] of buffers.entries()) fill(buffer, index + 1)
        return { ...opened, buffers }
      },
      ({ buffers }) => {
        for (const [index, buffer] of buffers.entries()) {
          try {
            assertFilled(buffer, index + 1)
          } catch (error) {
            if (!(error instanceof CudaError || error instanceof OutOfMemoryError)) throw error
          }
        }
      },
      ({ set, pool, buffers }) => {
        for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
        set.close()
        pool.check()
        assert.equal(pool.stats().liveBytes, 0)
      },
      { codes: [2, 999], onwards: [false] },
    )
  })

  for (let seed = SEED; seed < SEED + 6; seed++) {
    it(`random programs keep every byte, seed ${seed} (POOL_FUZZ_SEED=${seed})`, async () => {
      await new Program(new Random(seed)).run()
    })
  }
})

/** Allocates, uses on several streams, spills, frees, and lets the upstream pool sleep, wake and trim. */
class Program {
  private readonly opened = open({ maxPoolBytes: 6 * MiB, poolBytes: 7 * MiB, hostBytes: 12 * MiB })
  private readonly held: { readonly buffer: SpillableBuffer; value: number }[] = []
  private readonly streams: Stream[]
  private readonly sleepers: HostPool

  constructor(private readonly random: Random) {
    const { device } = this.opened
    this.streams = [device.defaultStream, device.createStream(), device.createStream()]
    this.sleepers = device.createHostPool({ segmentBytes: 1 * MiB })
  }

  async run(): Promise<void> {
    const { set, pool, host } = this.opened
    for (let step = 0; step < STEPS; step++) {
      await this.step()
      pool.check()
      const { onDeviceBytes, onHostBytes } = set.stats()
      const bytes = this.held.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)
      assert.equal(onDeviceBytes + onHostBytes, bytes)
      assert.ok(onDeviceBytes <= 6 * MiB)
    }
    if (pool.asleep) await pool.wake()
    // Both sides may be full: each buffer that is freed makes room for the next.
    for (const { buffer, value } of this.held.sort((a, b) => Number(b.buffer.onDevice) - Number(a.buffer.onDevice))) {
      this.verify(buffer, value)
      buffer.free()
    }
    set.close()
    host.processDeferred()
    assert.deepEqual([pool.stats().liveBytes, host.stats().liveBytes], [0, 0])
  }

  private async step(): Promise<void> {
    const { set, pool } = this.opened
    const kind = this.random.below(100)
    const one = this.held[this.random.below(Math.max(1, this.held.length))]
    const stream = this.streams[this.random.below(3)]
    if (pool.asleep) {
      if (kind < 50) await pool.wake({ keepCopy: false })
      else if (one?.buffer.onDevice) assert.throws(() => fill(one.buffer, 1, stream), /asleep/)
      return
    }
    if (kind < 25) {
      try {
        const buffer = set.allocate(1 + this.random.below(2 * MiB), stream)
        this.held.push({ buffer, value: -1 })
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error
      }
    } else if (kind < 30) await pool.sleep({ into: this.sleepers })
    else if (kind < 35) pool.trimTo(this.random.below(7 * MiB))
    else if (kind < 45) set.spill(this.random.below(4 * MiB), stream)
    else if (one === undefined) return
    else if (kind < 55) {
      one.buffer.free()
      this.held.splice(this.held.indexOf(one), 1)
    } else this.use(one, stream, kind)
  }

  private use(one: { readonly buffer: SpillableBuffer; value: number }, stream: Stream, kind: number): void {
    try {
      if (kind < 80) {
        const value = this.random.below(256)
        // The program orders its own writes on several streams.
        for (const earlier of this.streams) signal(earlier, stream)
        fill(one.buffer, value, stream)
        one.value = value
      } else this.verify(one.buffer, one.value)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
    }
  }

  private verify(buffer: SpillableBuffer, value: number): void {
    for (const earlier of this.streams) signal(earlier, this.streams[0])
    if (value !== -1) assertFilled(buffer, value)
  }
}
