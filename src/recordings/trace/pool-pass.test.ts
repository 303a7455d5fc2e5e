// Replays of traces made by hand: the calls of a pass to its pool, and the uses that it models.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../core/base/bytes.js'
import { POOL_ATTRIBUTE } from '../../core/driver/constants.js'
import { Context } from '../../core/driver/context.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { Module } from '../../core/kernel/module.js'
import { Clocks } from '../../core/order/clocks.js'
import { Stream } from '../../core/order/stream.js'
import { CachingPool } from '../../core/pool/caching/caching-pool.js'
import { parsePoolOptions } from '../../core/pool/caching/options.js'
import { DriverPool } from '../../core/pool/driver-owned/driver-pool.js'
import { PlainPool } from '../../core/pool/driver-owned/plain-pool.js'
import { Footprint } from './footprint.js'
import { PoolPass } from './pool-pass.js'
import { replay } from './replay.js'
import type { ReplayDevice } from './replay-device.js'
import { Action, type Trace } from './trace.js'
import { TraceBuilder } from './trace-builder.js'

function newDriver(capacityBytes = 1024 * MiB): SimulatedDriver {
  return new SimulatedDriver({ progress: 'eager', capacityBytes })
}

function openDevice(driver = newDriver()): ReplayDevice {
  driver.cuInit()
  const capacityBytes = driver.cuDeviceTotalMem(0)
  const context = Context.open(driver, 0)
  const clocks = new Clocks(context)
  const stream = new Stream(clocks, 0, false)
  return {
    driver,
    name: 'test',
    simulated: true,
    createStream: () => new Stream(clocks, driver.cuStreamCreate(1), true),
    createPool: options => new CachingPool(clocks, stream, parsePoolOptions(options, capacityBytes)),
    createPlainPool: () => new PlainPool(clocks, stream),
    defaultDriverPool: () => new DriverPool(clocks, stream),
    loadModule: ptx => new Module(context, stream, ptx),
    synchronize: () => driver.cuCtxSynchronize(),
    close: () => context.release(),
  }
}

type Line = readonly [action: number, block: number, bytes: number, stream?: number]

/** Events one microsecond apart; blocks by number, far apart. */
function traceOf(lines: readonly Line[]): Trace {
  const builder = new TraceBuilder()
  lines.forEach(([action, block, bytes, stream = 0], timeUs) => {
    builder.add(action, (block + 1) * 2 ** 32, bytes, stream, timeUs)
  })
  return builder.build({ file: 'by hand' })
}

const range = (count: number) => Array.from({ length: count }, (_, index) => index)
const { alloc, freeRequested, freeCompleted, outOfMemory, segmentAlloc } = Action

/** Pending bytes of a caching pool after each event. */
function pendingOf(trace: Trace): number[] {
  const device = openDevice()
  const pool = device.createPool({})
  const pending: number[] = []
  const event = () => {
    pool.processDeferred()
    pending.push(pool.stats().pendingBytes / MiB)
  }
  new PoolPass(trace, device, pool, 0).run({ observer: { event } })
  return pending
}

describe('the progress of a replay', () => {
  it('rises to 1 on a GPU too, where driver calls are counted in a pass of their own', async () => {
    const trace = traceOf([[alloc, 0, 512]])
    for (const simulated of [true, false]) {
      const shares: number[] = []
      const onProgress = (share: number) => shares.push(share)
      const options = { policies: ['cuda-mempool'], latency: true, verify: true, onProgress } as const
      await replay(trace, () => ({ ...openDevice(), simulated }), options)
      assert.deepEqual(
        shares,
        shares.toSorted((a, b) => a - b),
      )
      assert.deepEqual([shares[0], shares.at(-1)], [0, 1])
    }
  })
})

describe('a pass', () => {
  it('a block is in use on another stream until its free completes', () => {
    const trace = traceOf([
      [alloc, 0, 256 * MiB],
      [alloc, 1, 256 * MiB],
      [freeRequested, 0, 256 * MiB],
      [freeRequested, 1, 256 * MiB],
      [freeCompleted, 1, 256 * MiB],
      [freeCompleted, 0, 256 * MiB],
    ])
    assert.deepEqual(pendingOf(trace), [0, 0, 256, 256, 256, 0])
  })

  it('a recording without completed frees models no use on other streams', () => {
    const lines: Line[] = range(3).flatMap(() => [
      [alloc, 0, 256 * MiB],
      [alloc, 1, 256 * MiB],
      [freeRequested, 0, 256 * MiB],
      [freeRequested, 1, 256 * MiB],
    ])
    assert.deepEqual(new Set(pendingOf(traceOf(lines))), new Set([0]))
  })

  it('more blocks can be in use on other streams than a device has streams, some of them for longer', () => {
    const blocks = range(200)
    const trace = traceOf([
      ...blocks.map((block): Line => [alloc, block, 1 * MiB]),
      ...blocks.map((block): Line => [freeRequested, block, 1 * MiB]),
      ...blocks.map((block): Line => [freeCompleted, block, 1 * MiB]),
    ])
    const pending = pendingOf(trace)
    assert.equal(pending[399], 200)
    assert.ok(pending[500] <= 200 - 101 + 4 && pending[500] >= 200 - 101, `${pending[500]} after half`)
    assert.equal(pending[599], 0)
  })

  it('the pool describes a refused request, with its recorded size and stream', () => {
    const device = openDevice(newDriver(64 * MiB))
    const pool = device.createPool({})
    const trace = traceOf([
      [alloc, 0, 100 * MiB, 7],
      [alloc, 1, 64 * MiB, 8],
      [alloc, 2, 0, 7],
    ])
    const { failures, firstFailure } = new PoolPass(trace, device, pool, 8).run()
    assert.equal(failures, 2)
    assert.deepEqual([firstFailure?.event, firstFailure?.bytes, firstFailure?.stream], [0, 100 * MiB, 7])
    assert.match(firstFailure!.message, /no room for 100 MiB/)
    assert.equal(pool.stats().liveBuffers, 0)
  })
})

describe('a footprint', () => {
  it('counts no cached blocks after events', () => {
    const lines: Line[] = range(50).flatMap(() => [
      [alloc, 0, 4096],
      [freeRequested, 0, 4096],
      [freeCompleted, 0, 4096],
    ])
    const trace = traceOf(lines)
    const device = openDevice()
    const pool = device.createPool({})
    const { cached } = pool.caches
    let counts = 0
    pool.caches.cached = () => {
      counts++
      return cached.call(pool.caches)
    }
    const footprint = new Footprint(trace, pool)
    new PoolPass(trace, device, pool, 8).run({ repeat: 2, observer: footprint })
    assert.equal(counts, 2, 'once for each round')
    assert.ok(footprint.peakReservedBytes >= 2 * MiB && footprint.peakGrantedBytes === 4096)
    assert.deepEqual(footprint.peaksOfRounds, [footprint.peakReservedBytes, footprint.peakReservedBytes])
  })
})

describe('a replay', () => {
  it('a recording with more streams than a device has is refused', async () => {
    const trace = traceOf(range(2047).map((stream): Line => [alloc, stream, 1, stream]))
    await assert.rejects(
      replay(trace, () => openDevice(), { policies: ['cuda-mempool'] }),
      {
        name: 'RangeError',
        message: /by hand has 2047 streams; a replay can have 2046/,
      },
    )
    const fewer = traceOf(range(2046).map((stream): Line => [alloc, stream, 1, stream]))
    const { runs } = await replay(fewer, () => openDevice(), { policies: ['cuda-mempool'], latency: false })
    assert.equal(runs[0].failures, 0)
  })
  it('a clock that goes back makes the mean fragmentation no negative number', async () => {
    const builder = new TraceBuilder()
    for (const timeUs of [10, 20, 5]) builder.add(alloc, builder.events * 2 ** 32, MiB, 0, timeUs)
    const trace = builder.build({ file: 'backwards' })
    const pool = { maxPoolBytes: 4 * MiB } // it grows by granules of 2 MiB
    const { runs } = await replay(trace, () => openDevice(), { policies: ['cuda-mempool'], pool })
    assert.equal(runs[0].fragmentationMean, 0.5)
  })
  it('each round has its peak and its driver calls, which add up to those of the run', async () => {
    const trace = traceOf([
      [alloc, 0, 64 * MiB],
      [freeRequested, 0, 64 * MiB],
      [freeCompleted, 0, 64 * MiB],
      [alloc, 1, 96 * MiB],
    ])
    const policies = ['pytorch', 'pytorch-expandable', 'cuda-mempool', 'driver-malloc'] as const
    const { runs, repeat } = await replay(trace, () => openDevice(), { policies, repeat: 3, latency: true })
    assert.equal(repeat, 3)
    for (const { policy, rounds, peakReservedBytes, deviceCalls, modelledDeviceSeconds, allocateNs } of runs) {
      assert.ok(rounds !== null && deviceCalls !== null && rounds.length === 3, policy)
      assert.equal(Math.max(...rounds.map(round => round.peakReservedBytes)), peakReservedBytes, policy)
      for (const [name, count] of Object.entries(deviceCalls)) {
        assert.equal(
          rounds.reduce((sum, round) => sum + (round.deviceCalls[name] ?? 0), 0),
          count,
          `${policy} ${name}`,
        )
      }
      const seconds = rounds.reduce((sum, round) => sum + round.modelledDeviceSeconds!, 0)
      assert.ok(Math.abs(seconds - modelledDeviceSeconds!) < 1e-9, policy)
      assert.ok(allocateNs!.totalNs > 0 && allocateNs!.totalNs >= allocateNs!.p50, policy)
    }
    const [plain, , ours, malloc] = runs
    const creates = (run: (typeof runs)[number], name: string) => run.rounds!.map(round => round.deviceCalls[name] ?? 0)
    assert.deepEqual(creates(plain, 'cuMemAlloc'), [2, 0, 0])
    assert.deepEqual(creates(malloc, 'cuMemAlloc'), [2, 2, 2])
    assert.deepEqual(
      malloc.rounds!.map(round => round.peakReservedBytes / MiB),
      [96, 96, 96],
    )
    assert.ok(creates(ours, 'cuMemCreate')[0] > 0 && creates(ours, 'cuMemCreate')[2] === 0)
  })

  it("the driver's default pool stays as it was, also when the driver fails", async () => {
    const driver = newDriver()
    const replayed = (bytes: number) => {
      const trace = traceOf([
        [alloc, 0, bytes],
        [freeRequested, 0, bytes],
        [freeCompleted, 0, bytes],
        [alloc, 1, 1 * MiB],
      ])
      return replay(trace, () => openDevice(driver), { policies: ['driver-pool'], latency: false })
    }
    const threshold = POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    driver.cuInit()
    const pool = driver.cuDeviceGetDefaultMemPool(0)
    driver.cuMemPoolSetAttribute(pool, threshold, 512 * MiB)
    for (const mebibytes of [128, 32]) {
      const { runs } = await replayed(mebibytes * MiB)
      assert.equal(runs[0].peakReservedBytes, mebibytes * MiB, 'each pass begins with nothing')
      assert.equal(driver.cuMemPoolGetAttribute(pool, threshold), 512 * MiB)
    }
    driver.failCall({ call: 'cuMemAllocFromPoolAsync', nth: 2, code: 999 })
    await assert.rejects(replayed(1), { name: 'CudaError' })
    assert.equal(driver.cuMemPoolGetAttribute(pool, threshold), 512 * MiB)
  })
})

describe('a request that failed in the recording', () => {
  const policies = ['pytorch', 'pytorch-expandable', 'cuda-mempool', 'driver-malloc', 'driver-pool'] as const
  const open = (capacityBytes?: number) => openDevice(newDriver(capacityBytes))
  /** 100 MiB in use; 400 MiB fail; then 40 MiB more are in use, and 60 MiB fail where the device had 10 MiB left. */
  const trace = traceOf([
    [segmentAlloc, 0, 100 * MiB],
    [alloc, 0, 100 * MiB],
    [outOfMemory, (70 * MiB) / 2 ** 32 - 1, 400 * MiB],
    [segmentAlloc, 1, 60 * MiB],
    [alloc, 1, 40 * MiB],
    [outOfMemory, (10 * MiB) / 2 ** 32 - 1, 60 * MiB],
  ])

  it('is made by every policy, and freed at once', async () => {
    const { runs, trace: of } = await replay(trace, open, { policies })
    assert.deepEqual([of.peakRequestedBytes, of.peakWithFailedBytes], [140 * MiB, 500 * MiB])
    for (const { policy, failures, peakReservedBytes, peakRequestedBytes } of runs) {
      assert.deepEqual([failures, peakRequestedBytes], [0, 500 * MiB], policy)
      assert.ok(peakReservedBytes! >= 500 * MiB && peakReservedBytes! < 600 * MiB, `${policy} ${peakReservedBytes}`)
    }
  })

  it('counts as a failure of a policy that cannot serve it', async () => {
    const capacityBytes = 300 * MiB
    const { runs } = await replay(trace, () => open(capacityBytes), { policies, capacityBytes })
    for (const { policy, failures, firstFailure } of runs) {
      assert.deepEqual([failures, firstFailure?.event, firstFailure?.bytes], [1, 2, 400 * MiB], policy)
    }
  })

  it('has a part in the least capacity; whether the last one would be served, does not depend on earlier ones', async () => {
    const { runs, trace: of } = await replay(trace, open, { policies, leastCapacity: true })
    assert.equal(of.outOfMemories.at(-1)?.capacityBytes, 170 * MiB)
    assert.equal(of.outOfMemories.at(-1)?.verdict, 'tooLittle')
    for (const { policy, leastCapacityBytes, servesAtFailure } of runs) {
      assert.ok(leastCapacityBytes! >= 500 * MiB && leastCapacityBytes! <= 560 * MiB, `${policy} ${leastCapacityBytes}`)
      assert.equal(servesAtFailure, false, policy)
    }
    const roomier = { ...trace, address: trace.address.with(5, 50 * MiB) }
    const answers = await replay(roomier, open, { policies, leastCapacity: true })
    assert.equal(answers.trace.outOfMemories.at(-1)?.verdict, 'fragmentation')
    const served = answers.runs.map(run => run.servesAtFailure)
    assert.deepEqual(served, [true, true, true, true, false], "the driver's pool takes larger steps")
  })

  it('is not searched for a policy of the driver on a device of another size', async () => {
    const { runs } = await replay(trace, () => open(), { policies, leastCapacity: true })
    const found = runs.map(run => [run.policy, run.leastCapacityBytes !== null])
    assert.deepEqual(
      found,
      policies.map(policy => [policy, !policy.startsWith('driver-')]),
    )
  })
})

it('the least capacity is 0 for a recording without allocations', async () => {
  const trace = traceOf([[Action.snapshot, 0, 0]])
  const policies = ['pytorch', 'cuda-mempool', 'driver-malloc', 'driver-pool'] as const
  const { runs } = await replay(trace, bytes => openDevice(newDriver(bytes)), { policies, leastCapacity: true })
  for (const { policy, leastCapacityBytes } of runs) assert.equal(leastCapacityBytes, 0, policy)
})
