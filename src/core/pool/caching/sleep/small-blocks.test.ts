// Sleep and wake of many small blocks: copies that are joined, copies that go in one call of the driver, and host
// memory that several blocks share.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../../base/errors.js'
import { isDriverError } from '../../../base/thrown.js'
import { RESULT } from '../../../driver/constants.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'

const COUNT = 24
const BLOCK_BYTES = 128 * KiB
const CALLS = ['cuMemcpyBatchAsync', 'cuMemcpyDtoHAsync', 'cuMemcpyHtoDAsync'] as const

/** A pool of neighbours of 128 KiB; with `gaps`, every other one is free. */
function open(gaps: boolean) {
  const device = new TestDevice()
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 32 * MiB })
  const all = Array.from({ length: gaps ? 2 * COUNT : COUNT }, () => pool.allocate(BLOCK_BYTES))
  const blocks = all.filter((_, index) => !gaps || index % 2 === 1)
  for (const block of all) if (!blocks.includes(block)) block.free()
  for (const [index, block] of blocks.entries()) block.fill(index + 1)
  return { device, pool, blocks }
}

function assertKept(blocks: readonly DeviceBuffer[], kept = (_index: number) => true): void {
  for (const [index, block] of blocks.entries()) {
    if (kept(index)) assert.ok(isFilled(block.readSync(), index + 1), `block ${index}`)
  }
}

/** How often each of `CALLS` is made. */
async function copiesOf(device: TestDevice, work: () => Promise<void>): Promise<number[]> {
  const before = CALLS.map(call => device.calls(call))
  await work()
  return CALLS.map((call, index) => device.calls(call) - before[index])
}

async function sleepAndWake(pool: CachingPool): Promise<void> {
  await pool.sleep()
  await pool.wake()
}

describe('small blocks of a pool that sleeps', () => {
  it('are one copy where they are neighbours', async () => {
    const { device, pool, blocks } = open(false)
    assert.deepEqual(await copiesOf(device, () => pool.sleep()), [0, 1, 0])
    assert.deepEqual(await copiesOf(device, () => pool.wake()), [0, 0, 1])
    assertKept(blocks)
    pool.check()
  })

  it('are one call of the driver where they are not', async () => {
    const { device, pool, blocks } = open(true)
    assert.deepEqual(await copiesOf(device, () => pool.sleep()), [1, 0, 0])
    assert.deepEqual(await copiesOf(device, () => pool.wake()), [1, 0, 0])
    assertKept(blocks)
    blocks[COUNT / 2].free()
    await pool.sleep()
    blocks[COUNT / 4].free()
    await pool.wake()
    assertKept(blocks, index => index !== COUNT / 2 && index !== COUNT / 4)
    pool.check()
  })

  it('are copied one by one by a driver that takes no batches', async () => {
    const { device, pool, blocks } = open(true)
    for (const code of [RESULT.CUDA_ERROR_NOT_FOUND, RESULT.CUDA_ERROR_NOT_SUPPORTED]) {
      device.driver.failCall({ call: 'cuMemcpyBatchAsync', code, onwards: true })
      assert.deepEqual(await copiesOf(device, () => sleepAndWake(pool)), [2, COUNT, COUNT])
      device.driver.clearFaults()
    }
    device.driver.cuDriverGetVersion = () => 12_040
    assert.deepEqual(await copiesOf(device, () => sleepAndWake(pool)), [0, COUNT, COUNT])
    assertKept(blocks)
  })

  it('are copied one by one on the default stream, which takes no batches', async () => {
    const { device, pool, blocks } = open(true)
    for (let made = 1; made < MOST_STREAMS; made++) device.createStream()
    assert.deepEqual(await copiesOf(device, () => sleepAndWake(pool)), [0, COUNT, COUNT])
    assertKept(blocks)
  })

  it('share host memory, which goes back when all of them are freed', async () => {
    const { device, pool, blocks } = open(false)
    const host = device.createHostPool({ maxPoolBytes: 16 * MiB })
    await pool.sleep({ into: host })
    const { hostCopyBytes } = pool.stats()
    assert.deepEqual([hostCopyBytes, host.stats().liveBuffers], [COUNT * BLOCK_BYTES, 1])
    for (const block of blocks.slice(1)) block.free()
    assert.equal(pool.stats().hostCopyBytes, hostCopyBytes)
    blocks[0].free()
    assert.deepEqual([pool.stats().hostCopyBytes, host.stats().liveBuffers], [0, 0])
    await pool.wake()
    pool.check()
  })

  it('take smaller pieces of a host pool whose room lies in parts', async () => {
    const { device, pool, blocks } = open(false)
    const host = device.createHostPool({ maxPoolBytes: 2 * COUNT * BLOCK_BYTES, segmentBytes: 2 * COUNT * BLOCK_BYTES })
    const held = Array.from({ length: COUNT }, () => host.allocate(2 * BLOCK_BYTES))
    for (const [index, buffer] of held.entries()) if (index % 2 === 0) buffer.free()
    const { peakReservedBytes } = host.stats()
    await pool.sleep({ into: host })
    assert.ok(host.stats().liveBuffers >= COUNT, 'there is a piece in each gap')
    assert.equal(host.stats().liveBytes, host.maxPoolBytes)
    await pool.wake()
    assertKept(blocks)
    assert.equal(host.stats().peakReservedBytes, peakReservedBytes)
  })

  it('are not uploaded to a pool that sleeps, and an upload before the sleep is kept', async () => {
    const { pool, blocks, device } = open(true)
    const sources = [1, 2, 3].map(value => new Uint8Array(200 * KiB).fill(value))
    const uploaded = pool.uploadMany(sources, device.createStream())
    const asleep = pool.sleep()
    const refusal = { name: 'PoolError', code: 'ERR_POOL_ASLEEP' }
    assert.throws(() => pool.uploadMany(sources), refusal)
    await asleep
    assert.throws(() => pool.uploadMany(sources), refusal)
    await pool.wake()
    for (const [index, array] of uploaded.entries()) assert.ok(isFilled(array.readSync(), index + 1))
    assertKept(blocks)
  })

  it('lose nothing when any driver call of sleep or wake fails, once or from then on', async () => {
    let isMet = true
    for (let nth = 1; isMet; nth++) {
      for (const onwards of [false, true]) {
        const { device, pool, blocks } = open(true)
        const before = device.callCount
        device.driver.failCall({ call: '*', nth, code: 999, onwards })
        const outcomes = [await attempt(() => pool.sleep()), pool.asleep && (await attempt(() => pool.wake()))]
        isMet = device.callCount - before >= nth
        device.driver.clearFaults()
        try {
          if (pool.asleep) await pool.wake()
          assertKept(blocks)
          await sleepAndWake(pool)
          assertKept(blocks)
          assert.equal(pool.stats().hostCopyBytes, 0)
          pool.check()
          pool.close()
          assert.equal(device.freeBytes(), device.totalBytes)
        } catch (error) {
          throw new Error(`after call ${nth} failed${onwards ? ' onwards' : ''}; ${outcomes}`, { cause: error })
        }
      }
    }
  })
})

/** The message of a refusal; '' for none. */
async function attempt(call: () => Promise<void>): Promise<string> {
  try {
    await call()
    return ''
  } catch (error) {
    if (!(isDriverError(error) || error instanceof OutOfMemoryError || error instanceof PoolError)) throw error
    return (error as Error).message
  }
}
