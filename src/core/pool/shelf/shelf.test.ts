import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { GiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { CachingPool } from '../caching/caching-pool.js'
import { TestDevice } from '../pool.fixture.js'
import {
  addModels,
  inState,
  MODEL_BYTES,
  modelOf,
  Neighbour,
  openShelf,
  type TestModel,
  weightsOf,
} from './shelf.fixture.js'
import { Shelf } from './shelf.js'

/** A use that goes on until `end` is called; `began` resolves at its start. */
function longUse(shelf: Shelf<TestModel>, name: string, signal?: AbortSignal) {
  let [begin, end] = [() => {}, () => {}]
  const began = new Promise<void>(resolve => {
    begin = resolve
  })
  const ended = new Promise<void>(resolve => {
    end = resolve
  })
  const done = shelf.use(
    name,
    async model => {
      begin()
      await ended
      return weightsOf(model)
    },
    signal === undefined ? {} : { signal },
  )
  return { began, end, done }
}

/** Models a and b, which are awake, and a large one, which both make room for. */
async function twoOfThreeAwake() {
  const opened = openShelf(2)
  addModels(opened.shelf, 2)
  opened.shelf.add('large', modelOf(9, { bytes: 2 * MODEL_BYTES }))
  for (const name of ['large', 'a', 'b']) await opened.shelf.use(name, () => {})
  return opened
}

async function turns(count = 50): Promise<void> {
  for (let turn = 0; turn < count; turn++) await setImmediate()
}

describe('a shelf', () => {
  it('loads a model at its first use, and lets that sleep which was used longest ago', async () => {
    const { shelf, device, capacityBytes } = openShelf(2)
    const names = addModels(shelf, 3, { unchanged: true })
    assert.equal(device.freeBytes(), capacityBytes, 'nothing is loaded yet')
    for (const name of ['a', 'b', 'a', 'c', 'a', 'b']) {
      assert.equal(await shelf.use(name, weightsOf), names.indexOf(name) + 1)
    }
    assert.deepEqual([inState(shelf, 'awake'), inState(shelf, 'asleep')], ['ab', 'c'])
    const { hits, waits, switches, awakeBytes, asleepBytes, hostCopyBytes, models } = shelf.stats()
    assert.deepEqual([hits, waits, switches], [2, 4, 4])
    assert.deepEqual([awakeBytes, asleepBytes > 0, hostCopyBytes > 0], [2 * MODEL_BYTES, true, true])
    assert.deepEqual(
      models.map(({ name, uses, wakes, running }) => [name, uses, wakes, running]),
      [
        ['a', 3, 1, 0],
        ['b', 2, 2, 0],
        ['c', 1, 1, 0],
      ],
    )
    await shelf.close()
    assert.equal(device.freeBytes(), capacityBytes)
  })

  it('gives a model that is awake all of its bytes, whatever else takes memory', async () => {
    const { shelf, device } = openShelf(1, { slackBytes: 1 * MiB })
    const neighbour = new Neighbour(device)
    addModels(shelf, 2)
    for (const name of ['a', 'b', 'a']) {
      await shelf.use(name, ({ weights }) => {
        neighbour.take(64 * MiB)
        const { pool } = weights.allocation as unknown as { pool: { allocate(bytes: number): { free(): void } } }
        pool.allocate(3 * MiB).free()
      })
      neighbour.giveBack()
    }
    await shelf.close()
  })

  it('keeps each model to its bytes, and says how to give it more', async () => {
    const device = new TestDevice()
    const shelf = new Shelf<CachingPool>(device, { budgetBytes: 2 * MODEL_BYTES })
    shelf.add('small\n', { bytes: MODEL_BYTES, load: pool => pool })
    await shelf.use('small\n', pool => {
      assert.throws(() => pool.allocate(2 * MODEL_BYTES), {
        name: 'OutOfMemoryError',
        message: /; ask for less, or raise the bytes of model 'small\?' on its shelf by at least 4 MiB/,
      })
      const raise = () => {
        pool.maxPoolBytes = 2 * MODEL_BYTES
      }
      assert.throws(raise, {
        name: 'PoolError',
        message: /^maxPoolBytes is fixed: raise the bytes of model 'small\?' on its shelf$/,
      })
    })
    await shelf.close()
  })

  it('gives all memory of the model that falls asleep to the one that wakes', async () => {
    const { shelf, device, capacityBytes } = openShelf(2)
    const names = addModels(shelf, 3)
    for (const name of names) await shelf.use(name, () => {})
    const calls = () => device.calls('cuMemCreate') + device.calls('cuMemRelease')
    const before = calls()
    for (const [index, name] of names.entries()) assert.equal(await shelf.use(name, weightsOf), index + 1)
    assert.deepEqual([calls(), shelf.stats().switches], [before, 6])
    await shelf.close()
    assert.equal(device.freeBytes(), capacityBytes)
  })

  it('takes no more of the device than the budget while models of other sizes take turns', async () => {
    const device = new TestDevice({ capacityBytes: 8 * GiB })
    const capacityBytes = device.freeBytes()
    const shelf = new Shelf<TestModel>(device, { budgetBytes: 2 * GiB })
    const { driver } = device
    const { cuMemCreate } = driver
    driver.cuMemCreate = (...args) => {
      const handle = cuMemCreate.apply(driver, args)
      assert.ok(capacityBytes - device.freeBytes() <= shelf.budgetBytes)
      return handle
    }
    const sizes = [0.5, 0.75, 1, 0.625, 2, 0.25, 1.5].map(size => size * GiB) // so that pieces differ
    for (const [index, bytes] of sizes.entries()) shelf.add(`${index}`, modelOf(index, { bytes }))
    for (let count = 0; count < 40; count++) {
      const model = (count * count + 3 * count) % sizes.length
      assert.equal(await shelf.use(`${model}`, weightsOf), model)
      assert.equal(capacityBytes - device.freeBytes(), shelf.stats().awakeBytes)
    }
    await shelf.close()
    assert.equal(device.freeBytes(), capacityBytes)
  })

  it('keeps what uses write, and copies nothing anew of a model that is unchanged', async () => {
    const { shelf, device } = openShelf(1)
    shelf.add('changing', modelOf(1))
    shelf.add('weights', modelOf(2, { unchanged: true }))
    await shelf.use('changing', ({ weights }) => weights.fill(7))
    for (let round = 0; round < 2; round++) {
      assert.equal(await shelf.use('weights', weightsOf), 2)
      assert.equal(await shelf.use('changing', weightsOf), 7)
    }
    const copies = () => device.driver.calls.get('cuMemcpyDtoHAsync') ?? 0
    await shelf.use('weights', () => {})
    const before = copies()
    await shelf.use('changing', () => {})
    assert.equal(copies(), before)
    await shelf.use('weights', () => {})
    assert.ok(copies() > before)
    await shelf.close()
  })

  it('runs several uses of a model at a time, and lets no model sleep while it is used', async () => {
    const { shelf } = openShelf(1)
    addModels(shelf, 2)
    const uses = [longUse(shelf, 'a'), longUse(shelf, 'a')]
    await Promise.all(uses.map(({ began }) => began))
    const other = shelf.use('b', weightsOf)
    uses[0].end()
    assert.equal(await uses[0].done, 1)
    await turns()
    assert.equal(inState(shelf, 'awake'), 'a')
    uses[1].end()
    assert.deepEqual(await Promise.all([uses[1].done, other]), [1, 2])
    await shelf.close()
  })

  it('lets no use of a model that is awake overtake one that waits for room', async () => {
    const { shelf } = openShelf(1)
    addModels(shelf, 2)
    const first = longUse(shelf, 'a')
    await first.began
    const order: string[] = []
    const waiting = shelf.use('b', () => order.push('b'))
    await turns()
    const late = shelf.use('a', () => order.push('a'))
    await turns()
    assert.deepEqual([order, shelf.stats().waiting], [[], 2])
    first.end()
    await Promise.all([first.done, waiting, late])
    assert.deepEqual(order, ['b', 'a'])
    await shelf.close()
  })

  it('begins uses of models that are awake while a model wakes', async () => {
    const { shelf } = openShelf(2)
    addModels(shelf, 3)
    await shelf.use('b', () => {})
    await shelf.use('a', () => {})
    const switching = shelf.use('c', weightsOf)
    const { hits } = shelf.stats()
    assert.equal(await shelf.use('a', weightsOf), 1)
    assert.equal(shelf.stats().hits, hits + 1)
    assert.equal(await switching, 3)
    await shelf.close()
  })
})

describe('a shelf on a full device', () => {
  it('lets a second model sleep, then waits for a use to end', async () => {
    const { shelf, device } = openShelf(3)
    const neighbour = new Neighbour(device)
    addModels(shelf, 3)
    await shelf.use('a', () => {})
    neighbour.take(MODEL_BYTES)
    await shelf.use('b', () => {})
    assert.equal(await shelf.use('c', weightsOf), 3)
    assert.equal(inState(shelf, 'asleep'), 'a')
    const used = [longUse(shelf, 'b'), longUse(shelf, 'c')]
    const waiting = shelf.use('a', weightsOf)
    await turns()
    assert.equal(shelf.stats().waiting, 1)
    used[1].end()
    assert.equal(await waiting, 1)
    assert.deepEqual([inState(shelf, 'awake'), inState(shelf, 'asleep')], ['ab', 'c'])
    used[0].end()
    await shelf.close()
  })

  it('rejects with OutOfMemoryError when nothing can be freed, and goes on when there is room', async () => {
    const { shelf, device, capacityBytes } = openShelf(1)
    const neighbour = new Neighbour(device)
    shelf.add('a', modelOf(1))
    shelf.add('b', modelOf(2, { bytes: MODEL_BYTES / 2 })) // leaves less memory than a needs
    neighbour.take(1)
    await assert.rejects(
      shelf.use('a', () => {}),
      OutOfMemoryError,
    )
    assert.equal(inState(shelf, 'notLoaded'), 'ab')
    neighbour.giveBack()
    await shelf.use('a', () => {})
    await shelf.use('b', ({ weights }) => weights.fill(9))
    device.driver.failCall({ call: 'cuMemCreate', onwards: true }) // as if the neighbour were faster
    await assert.rejects(
      shelf.use('a', () => {}),
      OutOfMemoryError,
    )
    assert.equal(inState(shelf, 'asleep'), 'ab')
    await assert.rejects(
      shelf.use('b', () => {}),
      (error: unknown) => error instanceof OutOfMemoryError && /sleeps on with its contents/.test(error.message),
    )
    device.driver.clearFaults()
    assert.deepEqual([await shelf.use('b', weightsOf), await shelf.use('a', weightsOf)], [9, 1])
    await shelf.close()
    assert.equal(device.freeBytes(), capacityBytes)
  })

  it('rejects with the error of the sleep when no model can sleep', async () => {
    const device = new TestDevice({ capacityBytes: 64 * MiB })
    const host = device.createHostPool({ maxPoolBytes: 1 * MiB, segmentBytes: 65536 })
    const shelf = new Shelf<TestModel>(device, { budgetBytes: MODEL_BYTES, host })
    shelf.add('small', modelOf(1))
    shelf.add('large', modelOf(2, { load: pool => ({ weights: pool.allocate(3 * MiB) }) }))
    await shelf.use('large', () => {})
    await assert.rejects(
      shelf.use('small', () => {}),
      /^OutOfMemoryError: sleep: 3 MiB of contents do not fit/,
    )
    assert.equal(inState(shelf, 'awake'), 'large')
    host.maxPoolBytes = 8 * MiB
    assert.equal(await shelf.use('small', weightsOf), 1)
    await shelf.close()
    assert.equal(host.stats().liveBytes, 0)
    host.close()
  })
})

describe('a use of a shelf that waits', () => {
  it('ends with the reason of its signal, and leaves the queue whole', async () => {
    const { shelf } = openShelf(1)
    addModels(shelf, 3)
    const first = longUse(shelf, 'a')
    await first.began
    const controllers = ['b', 'c', 'b'].map(name => {
      const controller = new AbortController()
      return { controller, name, done: shelf.use(name, weightsOf, { signal: controller.signal }) }
    })
    const after = [shelf.use('c', weightsOf), shelf.use('a', weightsOf)]
    for (const { controller, name, done } of controllers) {
      controller.abort(new Error(`no ${name}`))
      await assert.rejects(done, { message: `no ${name}` })
    }
    first.end()
    assert.deepEqual(await Promise.all([first.done, ...after]), [1, 3, 1])
    assert.equal(shelf.stats().models[1].uses, 0)
    await shelf.close()
  })

  it('can be given up at each moment of a switch', async () => {
    for (let moment = 0, ended = false; !ended; moment++) {
      const { shelf, device, capacityBytes } = await twoOfThreeAwake()
      const controller = new AbortController()
      const use = shelf.use('large', weightsOf, { signal: controller.signal }).catch(error => error)
      for (let turn = 0; turn < moment; turn++) await (turn % 2 === 0 ? null : setImmediate())
      controller.abort(new Error('given up'))
      const outcome = await use
      ended = outcome === 9
      if (!ended) assert.equal(outcome.message, 'given up')
      await turns()
      assert.equal(capacityBytes - device.freeBytes(), shelf.stats().awakeBytes)
      for (const [name, value] of [
        ['a', 1],
        ['large', 9],
        ['b', 2],
      ] as const) {
        assert.equal(await shelf.use(name, weightsOf), value)
      }
      assert.equal(shelf.stats().waiting, 0)
      await shelf.close()
      assert.equal(device.freeBytes(), capacityBytes)
      assert.ok(moment < 500)
    }
  })

  it('is refused beyond maxWaiting', async () => {
    const { shelf } = openShelf(1, { maxWaiting: 1 })
    addModels(shelf, 2)
    const first = shelf.use('a', weightsOf)
    await assert.rejects(shelf.use('b', weightsOf), { code: 'ERR_TOO_MANY_WAIT' })
    assert.equal(await first, 1)
    await shelf.close()
  })
})

describe('uses within uses', () => {
  it('are those of the same model, which never wait, and no others', async () => {
    const { shelf } = openShelf(2)
    addModels(shelf, 3)
    await shelf.use('b', () => {})
    await shelf.use('a', async () => {
      assert.equal(await shelf.use('a', weightsOf), 1)
      await assert.rejects(shelf.use('b', weightsOf), { name: 'PoolError', code: 'ERR_POOL_IN_USE' })
      const others = [longUse(shelf, 'a')]
      await assert.rejects(shelf.remove('a'), { code: 'ERR_POOL_IN_USE' })
      await assert.rejects(shelf.close(), { code: 'ERR_POOL_IN_USE' })
      others[0].end()
      await others[0].done
    })
    await shelf.close()
  })

  it('of the same model do not wait behind a use that waits for room', async () => {
    const { shelf } = openShelf(1)
    addModels(shelf, 2)
    const outside = shelf.use('a', async () => {
      await turns()
      assert.equal(shelf.stats().waiting, 1)
      return await shelf.use('a', weightsOf)
    })
    while (shelf.stats().models[0].running === 0) await setImmediate()
    const other = shelf.use('b', weightsOf)
    assert.deepEqual(await Promise.all([outside, other]), [1, 2])
    await shelf.close()
  })

  it('may follow in work that outlives its use', async () => {
    const { shelf } = openShelf(1)
    addModels(shelf, 2)
    const after = await shelf.use('a', () => [turns().then(() => shelf.use('b', weightsOf))])
    assert.equal(await after[0], 2)
    await shelf.close()
  })

  it('are refused in load', async () => {
    const { shelf } = openShelf(2)
    shelf.add('a', modelOf(1))
    shelf.add('b', modelOf(2, { load: () => shelf.use('a', model => model) }))
    await shelf.use('a', () => {})
    await assert.rejects(
      shelf.use('b', () => {}),
      { code: 'ERR_POOL_IN_USE' },
    )
    await shelf.close()
  })
})

describe('errors of a shelf', () => {
  it('name the argument', async () => {
    const { shelf, device } = openShelf(1)
    addModels(shelf, 1)
    const bad = <T>(value: unknown) => value as T
    for (const [call, message] of [
      [() => new Shelf(device, bad({ budget: 1 })), /createShelf: unknown option 'budget'/],
      [() => new Shelf(device, { budgetBytes: 0 }), /createShelf: budgetBytes must/],
      [() => new Shelf(device, { host: bad({}) }), /createShelf: host must be a host pool/],
      [() => new Shelf(device, { host: new TestDevice().createHostPool() }), /createShelf: .* another device/],
      [() => shelf.add(bad(1), modelOf(1)), /add: name must be a text/],
      [() => shelf.add('a', modelOf(1)), /add: the shelf has a model 'a' already/],
      [() => shelf.add('b', modelOf(1, { load: bad(1) })), /add: load must be a function/],
      [() => shelf.add('b', modelOf(1, { unchanged: bad(1) })), /add: unchanged must be true or false/],
      [() => shelf.add('b', modelOf(1, { bytes: -1 })), /add: bytes must/],
      [
        () => shelf.add('b', modelOf(1, { bytes: MODEL_BYTES + 1 })),
        /add: bytes of model 'b' \(6 MiB\) exceed budgetBytes \(4 MiB\)/,
      ],
    ] as const) {
      assert.throws(call, { message })
    }
    await assert.rejects(
      shelf.use('b', () => {}),
      /RangeError.*: use: no model 'b': the models are 'a'/,
    )
    await assert.rejects(shelf.use('a', bad(1)), /use: work must be a function/)
    await assert.rejects(
      shelf.use('a', () => {}, bad({ timeout: 1 })),
      /use: unknown option 'timeout'/,
    )
    await assert.rejects(
      shelf.use('a', () => {}, { signal: AbortSignal.abort(new Error('early')) }),
      /early/,
    )
    await assert.rejects(shelf.remove('b'), /remove: no model 'b'/)
    shelf.add('weights\u001b', modelOf(1))
    await assert.rejects(shelf.remove('weight\u001b'), /no model 'weight\?': .*; did you mean weights\?\?$/)
    await shelf.close()
    assert.throws(() => shelf.add('b', modelOf(1)), { code: 'ERR_POOL_CLOSED' })
    await assert.rejects(
      shelf.use('a', () => {}),
      { code: 'ERR_POOL_CLOSED' },
    )
    await shelf.close()
  })

  it('of work and of load reach their uses alone, and a later use loads again', async () => {
    const { shelf, device, capacityBytes } = openShelf(2)
    let fails = true
    shelf.add('a', modelOf(1))
    shelf.add('b', {
      bytes: MODEL_BYTES,
      load: async pool => {
        const weights = pool.allocate(1 * MiB)
        await setImmediate()
        if (fails) throw new Error('no file')
        weights.fill(2)
        return { weights }
      },
    })
    const uses = [shelf.use('b', weightsOf), shelf.use('a', weightsOf), shelf.use('b', weightsOf)]
    const outcomes = await Promise.allSettled(uses)
    assert.deepEqual(
      outcomes.map(outcome => (outcome.status === 'fulfilled' ? outcome.value : outcome.reason.message)),
      ['no file', 1, 'no file'],
    )
    assert.equal(device.freeBytes(), capacityBytes - MODEL_BYTES)
    fails = false
    await assert.rejects(
      shelf.use('b', () => {
        throw new Error('mine')
      }),
      { message: 'mine' },
    )
    assert.equal(await shelf.use('b', weightsOf), 2)
    await shelf.close()
  })

  it('of a device without virtual memory say so', () => {
    const device = new TestDevice({ virtualMemory: false })
    assert.throws(() => new Shelf(device, {}), {
      code: 'ERR_NOT_SUPPORTED',
      message: /createShelf: models cannot sleep/,
    })
  })
})

describe('the end of a shelf, or of a model', () => {
  it('waits for uses, and rejects those that wait', async () => {
    const { shelf, device, capacityBytes } = openShelf(1)
    addModels(shelf, 2)
    const use = longUse(shelf, 'a')
    await use.began
    const waiting = [shelf.use('b', () => {}), shelf.use('b', () => {})].map(each => each.catch(error => error))
    const removed = shelf.remove('b')
    for (const each of waiting) assert.match((await each).message, /model 'b' was removed/)
    await removed
    assert.throws(() => shelf.add('a', modelOf(1)), PoolError)
    const gone = shelf.remove('a')
    await assert.rejects(
      shelf.use('a', () => {}),
      /no model 'a': the shelf is empty/,
    )
    shelf.add('a', modelOf(3)) // the name is free
    const next = shelf.use('a', weightsOf)
    use.end()
    assert.equal(await next, 3)
    await gone
    assert.deepEqual([await use.done, shelf.stats().models.length], [1, 1])
    await shelf.close()
    assert.equal(device.freeBytes(), capacityBytes)
  })

  it('comes at once by dispose, in each moment of a switch', async () => {
    for (let moment = 0, ended = false; !ended; moment++) {
      const { shelf, device, capacityBytes } = await twoOfThreeAwake()
      const use = shelf.use('large', weightsOf).catch(error => error)
      for (let turn = 0; turn < moment; turn++) await (turn % 2 === 0 ? null : setImmediate())
      shelf[Symbol.dispose]()
      assert.equal(device.freeBytes(), capacityBytes)
      const outcome = await use
      ended = outcome === 9
      if (!ended) assert.equal(outcome.code, 'ERR_POOL_CLOSED')
      await turns(5)
      assert.ok(shelf.closed && shelf.isGone)
    }
  })

  it('comes with an abort while a model is used', async () => {
    const { shelf, device, capacityBytes } = openShelf(1)
    addModels(shelf, 1)
    const use = longUse(shelf, 'a')
    await use.began
    const controller = new AbortController()
    const closed = assert.rejects(shelf.close({ signal: controller.signal }), { name: 'AbortError' })
    await turns()
    assert.equal(shelf.isGone, false)
    controller.abort()
    await closed
    assert.equal(device.freeBytes(), capacityBytes)
    use.end()
    await assert.rejects(use.done, /closed/)
  })

  it('closes a host pool of its own, and no other', async () => {
    const device = new TestDevice()
    const host = device.createHostPool({ maxPoolBytes: 16 * MiB })
    const shelf = new Shelf<TestModel>(device, { budgetBytes: MODEL_BYTES, host })
    addModels(shelf, 2)
    for (const name of ['a', 'b']) await shelf.use(name, () => {})
    assert.ok(host.stats().liveBytes > 0)
    await shelf.close()
    assert.deepEqual([host.closed, host.stats().liveBytes], [false, 0])
    host.close()
  })
})
