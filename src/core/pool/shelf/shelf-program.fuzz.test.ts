// Random requests for eight models on a device with room for three, beside a neighbour that takes and gives memory.
// A shadow knows what each model has. Nothing may run out of memory, since one model always has room.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Random } from '../../base/random.js'
import { seedsFrom } from '../../base/seeds.fixture.js'
import { addModels, inState, MODEL_BYTES, modelOf, Neighbour, openShelf, weightsOf } from './shelf.fixture.js'

const MODELS = 8
const ROOM = 3
const REQUESTS = 10_000
const USUAL_REQUESTS = 1000
const MOST_WAITING = 12

async function randomRequests(seed: number): Promise<void> {
  const random = new Random(seed)
  const { shelf, device, capacityBytes } = openShelf(ROOM)
  const neighbour = new Neighbour(device)
  const names = addModels(shelf, MODELS / 2, { unchanged: true })
  for (let value = names.length + 1; value <= MODELS; value++) {
    names.push(`changing ${value}`)
    shelf.add(names.at(-1)!, modelOf(value))
  }
  const values = names.map((_, index) => index + 1)
  const running = new Map<string, number>()
  let [answers, givenUp] = [0, 0]

  const request = async () => {
    const index = random.below(MODELS)
    const name = names[index]
    const controller = new AbortController()
    const isGivenUp = random.below(20) === 0
    const isChange = index >= MODELS / 2 && random.below(2) === 0
    const turns = random.below(4)
    const use = shelf.use(
      name,
      async model => {
        running.set(name, (running.get(name) ?? 0) + 1)
        assert.equal(weightsOf(model), values[index], name)
        if (isChange) {
          values[index] = random.below(256)
          model.weights.fill(values[index])
        }
        for (let turn = 0; turn < turns; turn++) await setImmediate()
        if (running.get(name) === 1) assert.equal(weightsOf(model), values[index], name)
        running.set(name, running.get(name)! - 1)
      },
      { signal: controller.signal },
    )
    if (isGivenUp) void setImmediate().then(() => controller.abort(new Error('given up')))
    try {
      await use
      answers++
    } catch (error) {
      if ((error as Error).message !== 'given up') throw error
      givenUp++
    }
  }

  const pending = new Set<Promise<void>>()
  for (let count = 0; count < REQUESTS; count++) {
    const one: Promise<void> = request().finally(() => pending.delete(one))
    pending.add(one)
    if (pending.size >= 1 + random.below(MOST_WAITING)) await Promise.race(pending)
    if (random.below(8) === 0) neighbour.giveBack()
    if (random.below(4) === 0)
      neighbour.take(Math.min(random.below(3), 2 - neighbour.heldBytes / MODEL_BYTES) * MODEL_BYTES)
    const { awakeBytes, budgetBytes } = shelf.stats()
    assert.ok(awakeBytes <= budgetBytes)
  }
  await Promise.all(pending)
  const { hits, waits, waiting, switches, models } = shelf.stats()
  assert.equal(answers + givenUp, REQUESTS)
  assert.ok(hits > 100 && switches > 1000 && givenUp > 10, `${hits} hits, ${switches} switches, ${givenUp} given up`)
  assert.deepEqual([waiting, models.filter(model => model.running > 0)], [0, []])
  assert.ok(hits + waits >= answers && inState(shelf, 'awake').length > 0)
  await shelf.close()
  neighbour.giveBack()
  assert.equal(device.freeBytes(), capacityBytes)
}

describe('a shelf beside a neighbour', () => {
  for (const seed of seedsFrom(1, 10, REQUESTS / USUAL_REQUESTS)) {
    it(`answers ${REQUESTS} random requests and runs out of no memory, seed ${seed}`, async () => {
      await randomRequests(seed)
    })
  }
})
