// Every driver call of a process that fills, commits, attaches and closes regions fails in turn, once or from then on.
// Each refused step has one typed error, regions are whole or not there, and nothing is leaked.

import assert from 'node:assert/strict'
import { after, before, describe, it, test } from 'node:test'
import { GiB } from '../core/base/bytes.js'
import { KeepError, OutOfMemoryError } from '../core/base/errors.js'
import { isDriverError } from '../core/base/thrown.js'
import type { KeeperClient } from '../core/keeper/client.js'
import { openFiles } from '../core/keeper/keeper.fixture.js'
import { CAPACITY, GRANULE, KeepWorld, type TestDevice } from './keep.fixture.js'
import type { Keep } from './keep.js'
import { fillWhole, isWhole } from './keep-process.fixture.js'
import type { Region } from './region.js'

/** CUresults, in turn: an invalid value, as for memory that is gone, no memory, and an unknown error. */
const CODES = [1, 2, 999]
const BYTES = 2 * GRANULE

const callsOf = ({ driver }: TestDevice) => [...driver.calls.values()].reduce((sum, count) => sum + count, 0)

class Workload {
  /** the names of regions whose commit has succeeded */
  readonly committed = new Set<string>()
  refused = 0

  constructor(private readonly keep: Keep) {}

  async run(): Promise<void> {
    const { keep } = this
    const regions: (Region | undefined)[] = []
    regions.push(await this.attempt(() => keep.attach('earlier')))
    regions.push(await this.attempt(() => keep.region('a', { bytes: BYTES }, filling => fillWhole(filling, 1)), 'a'))
    regions.push(await this.attempt(() => keep.attach('a')))
    const set = await this.attempt(() => this.committedSet(), 'b', 'c')
    regions.push(...(set ?? []))
    for (const region of regions) {
      if (region === undefined) continue
      const whole = await this.attempt(() => isWhole(region))
      assert.notEqual(whole, false, region.name)
      region.close()
    }
  }

  private async committedSet(): Promise<Region[]> {
    using b = await this.keep.begin('b', { bytes: BYTES })
    await fillWhole(b, 2)
    using c = await this.keep.begin('c', { bytes: BYTES })
    await fillWhole(c, 3)
    return await this.keep.commit([b, c])
  }

  private async attempt<T>(step: () => Promise<T>, ...names: readonly string[]): Promise<T | undefined> {
    try {
      const result = await step()
      for (const name of names) this.committed.add(name)
      return result
    } catch (error) {
      const isTyped = error instanceof OutOfMemoryError || isDriverError(error) || error instanceof KeepError
      if (!isTyped) throw error
      this.refused++
      return undefined
    }
  }
}

if (process.platform !== 'linux') test('driver failures', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  it('driver failures: a region of several pieces is committed whole, or its descriptors are closed', async () => {
    const world = new KeepWorld(128 * GiB)
    try {
      const device = world.openDevice()
      const keep = await world.openKeep(device)
      const region = (name: string) => keep.region(name, { bytes: 70 * GiB }, filling => fillWhole(filling, 1))
      const files = openFiles()
      for (let nth = 1; nth <= 3; nth++) {
        device.driver.failCall({ call: 'cuMemExportToShareableHandle', nth, code: 999 })
        await assert.rejects(region('a'), { name: 'CudaError', message: /^cuMemExportToShareableHandle/ })
        assert.equal(openFiles(), files, `export ${nth}`)
      }
      ;(await region('a')).close()
      const other = await world.openKeep()
      assert.ok(await isWhole(await other.attach('a')))
      assert.equal(world.freeBytes, 58 * GiB)
    } finally {
      await world.end().finally(() => world.discard())
    }
  })

  describe('driver failures: kept regions', () => {
    let world: KeepWorld
    let operator: KeeperClient
    let reader: Keep
    before(async () => {
      world = new KeepWorld()
      operator = await world.connect()
      reader = await world.openKeep()
    })
    after(() => world.end().finally(() => world.discard()))

    /** Makes the call fail, runs the workload, and asserts that what is left is whole. */
    async function runWith(fail: (device: TestDevice) => void): Promise<{ calls: number; refused: number }> {
      await reader.region('earlier', { bytes: GRANULE }, filling => fillWhole(filling, 9)).then(each => each.close())
      await reader.list()
      const [files, free] = [openFiles(), world.freeBytes]
      const device = world.openDevice()
      const keep = await world.openKeep(device)
      const opening = callsOf(device)
      fail(device)
      const workload = new Workload(keep)
      await workload.run()
      const calls = callsOf(device) - opening
      device.driver.clearFaults()
      keep.close()
      device.close()
      await assertWhole(workload)
      await operator.prune({ name: 'a' })
      await operator.prune({ name: 'b' })
      await operator.prune({ name: 'c' })
      await operator.prune({ unfinished: true })
      const names = (await operator.list()).map(({ name }) => name)
      assert.ok(names.length === 0 || names.join() === 'earlier', `${names}`)
      assert.equal(world.freeBytes, names.length === 0 ? CAPACITY : free, 'all memory comes back')
      assert.equal(openFiles(), files - (names.length === 0 ? 2 : 0), 'every descriptor is closed')
      return { calls, refused: workload.refused }
    }

    async function assertWhole({ committed }: Workload): Promise<void> {
      world.check()
      await reader.list() // after the end of the connection
      for (const { name, state, readers } of await operator.list()) {
        assert.ok(state === 'ready' || state === 'unfinished', `${name} ${state}`)
        assert.deepEqual(readers, [], `readers of ${name}`)
        assert.ok(state === 'ready' || !committed.has(name), `${name} was committed`)
        if (state !== 'ready') continue
        using region = await reader.attach(name)
        assert.ok(await isWhole(region), name)
      }
      await reader.list()
    }

    it('the error of a fill reaches its caller, whatever the driver refuses after it', async () => {
      const files = openFiles()
      const device = world.openDevice()
      const keep = await world.openKeep(device)
      const filled = keep.region('a', { bytes: BYTES }, filling => {
        const [stream, event] = [device.createStream(), device.createEvent()]
        filling.put('words', Uint32Array.of(1))
        event.record(device.defaultStream)
        stream.wait(event)
        filling.arena.allocate(256, stream).fill(0)
        device.driver.failCall({ call: '*', code: 999, onwards: true })
        throw new Error('no such file')
      })
      await assert.rejects(filled, /^Error: no such file$/)
      device.driver.clearFaults()
      keep.close()
      device.close()
      await operator.prune({ all: true })
      assert.deepEqual([world.freeBytes, openFiles()], [CAPACITY, files])
    })

    for (const onwards of [false, true]) {
      it(`a refusal at each call in turn${onwards ? ', and from then on' : ''} leaves whole regions or none`, async () => {
        const { calls, refused } = await runWith(() => {})
        assert.equal(refused, 0)
        const seen = { refused: 0, without: 0 }
        for (let nth = 1; nth <= calls; nth++) {
          const code = CODES[(nth + Number(onwards)) % CODES.length]
          try {
            const { refused: steps } = await runWith(({ driver }) => driver.failCall({ call: '*', nth, code, onwards }))
            seen[steps > 0 ? 'refused' : 'without']++
          } catch (error) {
            throw new Error(`after call ${nth} of ${calls} failed with ${code}`, { cause: error })
          }
        }
        assert.ok(seen.refused > calls / 3, JSON.stringify(seen))
      })
    }
  })
}
