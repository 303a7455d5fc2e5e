// Errors on a full device name the other processes that hold it, in every kind of pool.

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { Peer } from '../driver/simulated/machine/peer-process.fixture.js'
import { TestDevice } from './pool.fixture.js'
import { fallback } from './wrappers/fallback.js'
import { limited } from './wrappers/limited.js'
import { retrying } from './wrappers/retrying.js'
import { spillable } from './wrappers/spillable.js'

const skip = process.platform !== 'linux' && 'a simulated machine works on Linux'

describe('out of memory on a device that other processes use', { skip }, () => {
  let folder = ''
  let device: TestDevice
  let peers: Peer[] = []
  /** questions to the driver about other processes */
  let questions = 0

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'users-'))
    device = new TestDevice({ machine: folder })
    const usersOf = device.driver.usersOf.bind(device.driver)
    questions = 0
    device.driver.usersOf = ordinal => {
      questions++
      return usersOf(ordinal)
    }
    peers = [await Peer.start(folder)]
  })
  afterEach(async () => {
    for (const peer of peers) await peer.kill()
    rmSync(folder, { recursive: true })
  })

  function errorOf(allocate: () => unknown): OutOfMemoryError {
    try {
      allocate()
    } catch (error) {
      assert.ok(error instanceof OutOfMemoryError, `${error}`)
      return error
    }
    assert.fail('there was room')
  }

  it('names them in every kind of pool', async () => {
    await peers[0].call('cuMemAlloc', 48 * MiB)
    const { pid } = peers[0]
    const name = nameOf(pid)
    const host = device.createHostPool()
    const requests: (() => unknown)[] = [
      () => device.createPool().allocate(32 * MiB),
      () => device.createPool({ backing: 'segments' }).allocate(32 * MiB),
      () => device.createPool().reserve(32 * MiB),
      () => device.createPool({ debug: true }).allocate(32 * MiB),
      () => device.createSharedPool().pool.allocate(32 * MiB),
      () => device.createPlainPool().allocate(32 * MiB),
      () => device.createDriverPool().allocate(32 * MiB),
      () => device.createArenaPool({ bytes: 1, maxPoolBytes: 60 * MiB }).allocate(32 * MiB),
      () => device.createBlockPool({ blockBytes: 32 * MiB, count: 1 }),
      () => device.createGrowableBuffer({ bytes: 1, capacityBytes: 60 * MiB }).grow(32 * MiB),
      () => retrying(device.createPool(), (_, attempt) => attempt < 3).allocate(32 * MiB),
      () => fallback(device.createPool(), device.createPlainPool()).allocate(32 * MiB),
      () => spillable(device.createPool(), { host, maxPoolBytes: 60 * MiB }).allocate(32 * MiB),
      () => {
        const blocks = device.createBlockPool({ blockBytes: 4 * MiB, count: 1, maxCount: 8 })
        for (;;) blocks.allocate(1)
      },
    ]
    for (const [index, request] of requests.entries()) {
      const error = errorOf(request)
      assert.deepEqual(error.processes, [{ pid, name, bytes: 48 * MiB }], `${request}: ${error.message}`)
      const [, after = ''] = error.message.split(`; other processes hold 48 MiB: ${pid} ${name} 48 MiB`)
      assert.match(after, /^$|^; of the spillable/, error.message)
      assert.ok(error.message.includes('; other processes'), error.message)
      assert.equal(questions, index + 1, `${request}: a failed request asks once`)
    }
  })

  it('names them where a pool cannot wake', async () => {
    const pool = device.createPool()
    pool.allocate(32 * MiB)
    await pool.sleep()
    await peers[0].call('cuMemAlloc', 48 * MiB)
    await assert.rejects(pool.wake(), ({ message, processes }: OutOfMemoryError) => {
      assert.match(message, /^wake: no room for 32 MiB.*; other processes hold 48 MiB: /)
      return processes.length === 1
    })
  })

  it('names three, the largest first, and sums the others', async () => {
    while (peers.length < 5) peers.push(await Peer.start(folder))
    for (const [i, peer] of peers.entries()) await peer.call('cuMemAlloc', (4 + 2 * i) * MiB)
    const error = errorOf(() => device.createPlainPool().allocate(48 * MiB))
    const [e, d, c] = [4, 3, 2].map(i => `${peers[i].pid} ${nameOf(peers[i].pid)} ${4 + 2 * i} MiB`)
    assert.ok(error.message.endsWith(`; other processes hold 40 MiB: ${e}, ${d}, ${c}, 2 more 10 MiB`), error.message)
    assert.equal(error.processes.length, 5)
  })

  it('does not ask for them where a limit stops the request, or it can never fit', async () => {
    await peers[0].call('cuMemAlloc', 48 * MiB)
    const full = device.createBlockPool({ blockBytes: 2 * MiB, count: 1 })
    full.allocate(1)
    const requests: (() => unknown)[] = [
      () => device.createPool({ maxPoolBytes: 8 * MiB }).allocate(12 * MiB),
      () => device.createPool({ leaveFreeBytes: 10 * MiB }).allocate(8 * MiB),
      () => device.createPool().allocate(65 * MiB),
      () => device.createPlainPool().allocate(65 * MiB),
      () => device.createDriverPool({ maxPoolBytes: 8 * MiB }).allocate(12 * MiB),
      () => device.createArenaPool({ bytes: 1, maxPoolBytes: 8 * MiB }).allocate(12 * MiB),
      () => full.allocate(1),
      () => limited(device.createPool(), 8 * MiB).allocate(12 * MiB),
    ]
    for (const request of requests) {
      const error = errorOf(request)
      assert.deepEqual([error.processes, questions], [[], 0], `${request}: ${error.message}`)
      assert.doesNotMatch(error.message, /other processes/)
    }
    assert.equal(device.createPool().tryAllocate(32 * MiB), null)
    assert.equal(questions, 0)
  })

  it('says nothing where nobody else holds memory, and where the driver does not know', async () => {
    device.createPlainPool().allocate(48 * MiB)
    assert.match(errorOf(() => device.createPlainPool().allocate(32 * MiB)).message, /in other programs$/)
    await peers[0].call('cuMemAlloc', 8 * MiB)
    device.driver.usersOf = () => null
    const error = errorOf(() => device.createPlainPool().allocate(32 * MiB))
    assert.deepEqual(error.processes, [])
    assert.match(error.message, /in other programs$/)
  })
})

const nameOf = (pid: number) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
