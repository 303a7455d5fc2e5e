// Every driver call of a workload fails in turn, once or from then on. Uses may be refused, and nothing is lost.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { OutOfMemoryError } from '../../base/errors.js'
import { isDriverError } from '../../base/thrown.js'
import { inState, MODEL_BYTES, modelOf, openShelf, weightsOf } from './shelf.fixture.js'

const MOST_TURNS = 120

function start() {
  const opened = openShelf(1)
  opened.shelf.add('a', modelOf(1))
  opened.shelf.add('b', modelOf(2, { unchanged: true, bytes: MODEL_BYTES / 2 })) // so that memory is left, and created
  return opened
}

type Opened = ReturnType<typeof start>

const isRefusal = (error: unknown) => error instanceof OutOfMemoryError || isDriverError(error)

/**
 * Two rounds, so that each model is loaded, falls asleep and wakes; returns how many uses were refused. A sleep goes on
 * until the driver says that copies have ended: after many turns of the event loop, it refuses no more.
 */
async function useAll({ shelf, device }: Opened): Promise<number> {
  let [refused, ended] = [0, 0]
  const use = async (name: string) => {
    try {
      await shelf.use(name, () => {})
    } catch (error) {
      if (!isRefusal(error)) throw error
      refused++
    }
    ended++
  }
  for (const [index, name] of ['a', 'b', 'a', 'b'].entries()) {
    const done = use(name)
    for (let turn = 0; turn < MOST_TURNS && ended === index; turn++) await setImmediate()
    if (ended === index) device.driver.clearFaults()
    await done
  }
  return refused
}

async function assertWhole({ shelf, device, capacityBytes }: Opened): Promise<void> {
  for (const [index, name] of ['a', 'b'].entries()) {
    assert.equal(await shelf.use(name, weightsOf), index + 1, name)
  }
  const { waiting, models } = shelf.stats()
  assert.deepEqual([waiting, models.filter(({ running }) => running > 0), inState(shelf, 'awake')], [0, [], 'b'])
  await shelf.close()
  assert.equal(device.freeBytes(), capacityBytes)
}

describe('driver failures: a shelf', () => {
  for (const onwards of [false, true]) {
    it(`a refusal at each call in turn${onwards ? ', and from then on' : ''} loses nothing`, async () => {
      const first = start()
      const opening = first.device.callCount
      assert.equal(await useAll(first), 0)
      const calls = first.device.callCount - opening
      await assertWhole(first)
      let refused = 0
      for (let nth = 1; nth <= calls; nth++) {
        const opened = start()
        opened.device.driver.failCall({ call: '*', nth, code: nth % 2 === 0 ? 2 : 999, onwards })
        try {
          refused += await useAll(opened)
          opened.device.driver.clearFaults()
          await assertWhole(opened)
        } catch (error) {
          throw new Error(`after call ${nth} of ${calls} failed`, { cause: error })
        }
      }
      assert.ok(refused > 0)
    })
  }

  it('leaves a model that was in use whole', async () => {
    const opened = start()
    await opened.shelf.use('a', ({ weights }) => weights.fill(9))
    opened.device.driver.failCall({ call: 'cuMemcpyDtoHAsync', code: 999, onwards: true })
    await assert.rejects(
      opened.shelf.use('b', () => {}),
      { name: 'CudaError' },
    )
    opened.device.driver.clearFaults()
    assert.equal(await opened.shelf.use('a', weightsOf), 9)
    await opened.shelf.close()
  })
})
