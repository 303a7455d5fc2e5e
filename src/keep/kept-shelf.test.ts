// Models on a shelf whose weights are kept regions: a switch moves the models' own work memory, and no weights.

import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import type { DeviceArray } from '../core/pool/array.js'
import { KeepWorld } from './keep.fixture.js'

const WORK_BYTES = 4 * MiB
const WEIGHTS = { bytes: 6 * MiB, version: 'v1' }
const NAMES = ['a', 'b', 'c']

interface KeptModel {
  /** the region stays attached while the model sleeps */
  readonly weights: DeviceArray<Uint32Array>
  work(): void
}

test('a switch to a model with kept weights maps its work memory only, and copies and creates nothing', {
  skip: process.platform !== 'linux' && `needs Linux, not ${process.platform}`,
}, async () => {
  const world = new KeepWorld()
  after(() => world.discard())
  const device = world.openDevice()
  const keep = await world.openKeep(device)
  for (const [index, name] of NAMES.entries()) {
    const region = await keep.region(name, WEIGHTS, filling => void filling.put('weights', Uint32Array.of(index)))
    region.close()
  }
  const shelf = device.createShelf<KeptModel>({ budgetBytes: WORK_BYTES })
  for (const name of NAMES) {
    shelf.add(name, {
      bytes: WORK_BYTES,
      load: async pool => {
        const region = await keep.attach(name)
        return { weights: region.array('weights', Uint32Array), work: () => pool.allocate(WORK_BYTES).free() }
      },
    })
    await shelf.use(name, model => model.work())
  }

  const { driver } = device
  let mappedBytes = 0
  const { cuMemMap } = driver
  driver.cuMemMap = (...args) => {
    mappedBytes += args[1]
    return cuMemMap.apply(driver, args)
  }
  const earlier = new Map(driver.calls)
  const switches = 2 * NAMES.length
  for (let count = 0; count < switches; count++) await shelf.use(NAMES[count % NAMES.length], model => model.work())
  const made = [...driver.calls].filter(([name, count]) => count !== earlier.get(name)).map(([name]) => name)
  const onMemory = made.filter(name => name.startsWith('cuMem') && name !== 'cuMemGetInfo')
  assert.deepEqual(onMemory.sort(), ['cuMemMap', 'cuMemSetAccess', 'cuMemUnmap'])
  assert.equal(mappedBytes, switches * WORK_BYTES)
  assert.equal(shelf.stats().switches, NAMES.length + switches)

  for (const [index, name] of NAMES.entries()) {
    assert.deepEqual([...(await shelf.use(name, ({ weights }) => weights.read()))], [index])
  }
  await shelf.close()
  await world.end()
})
