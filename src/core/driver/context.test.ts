import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { Context, unreachable } from './context.js'
import type { SimulatedOptions } from './simulated/options.js'
import { SimulatedDriver } from './simulated/simulated-driver.js'

function openDriver(options: SimulatedOptions = {}): SimulatedDriver {
  const driver = new SimulatedDriver({ devices: 2, progress: 'eager', ...options })
  driver.cuInit()
  return driver
}

function openTwo(options: SimulatedOptions = {}) {
  const driver = openDriver(options)
  const [first, second] = [Context.open(driver, 0), Context.open(driver, 1)]
  return { driver, first, second }
}

/** Free bytes of the device, as the driver reports them. */
const freeBytes = (context: Context) => context.activate().cuMemGetInfo().freeBytes

/** Whether work of `user` has access to linear memory of `owner`. Without access, the context of `user` ends. */
function canTouch(user: Context, owner: Context): boolean {
  const ptr = owner.activate().cuMemAlloc(MiB)
  try {
    user.activate().cuMemsetD8Async(ptr, 1, MiB, 0)
    user.driver.cuCtxSynchronize()
    return true
  } catch (error) {
    assert.ok(error instanceof CudaError && error.resultName === 'CUDA_ERROR_ILLEGAL_ADDRESS', `${error}`)
    return false
  }
}

describe('the current context', () => {
  it('is set only after another context was set', () => {
    const { driver, first, second } = openTwo()
    const sets = () => driver.calls.get('cuCtxSetCurrent') ?? 0
    first.activate()
    const before = sets()
    for (let round = 0; round < 3; round++) first.activate()
    assert.equal(sets(), before)
    second.activate()
    first.activate()
    assert.equal(sets(), before + 2)
  })

  it('is right with two drivers in one thread, one for each device', () => {
    const drivers = [openDriver({ capacityBytes: 64 * MiB }), openDriver({ capacityBytes: 64 * MiB })]
    const contexts = drivers.map((driver, ordinal) => Context.open(driver, ordinal))
    for (const [ordinal, context] of contexts.entries()) context.activate().cuMemAlloc((ordinal + 1) * MiB)
    for (let round = 0; round < 3; round++) {
      for (const [ordinal, context] of contexts.entries()) assert.equal(freeBytes(context), (63 - ordinal) * MiB)
    }
    assert.deepEqual(
      drivers.map(driver => [driver.usedBytes(0), driver.usedBytes(1)]),
      [
        [1 * MiB, 0],
        [0, 2 * MiB],
      ],
    )
    contexts[0].release()
    assert.equal(freeBytes(contexts[1]), 62 * MiB)
    assert.throws(() => contexts[0].activate(), { name: 'PoolError', message: /device is closed/ })
  })
})

describe('contexts of several devices', () => {
  it('share addresses with one driver, and a device with one ordinal', () => {
    const { driver, first, second } = openTwo()
    const again = Context.open(driver, 0)
    const elsewhere = Context.open(openDriver(), 0)
    assert.deepEqual(
      [first, second, again, elsewhere].map(other => [first.sharesAddresses(other), first.sharesDevice(other)]),
      [
        [true, true],
        [true, false],
        [true, true],
        [false, false],
      ],
    )
  })

  it('have peer access in the enabled direction only', () => {
    const { first, second } = openTwo()
    assert.deepEqual([first.canAccess(second), first.hasPeerAccess(second)], [true, false])
    first.enablePeerAccess(second)
    assert.deepEqual([first.hasPeerAccess(second), second.hasPeerAccess(first)], [true, false])
    assert.deepEqual([second.peers, first.peers], [[first], []])
    assert.deepEqual([canTouch(first, second), canTouch(second, first)], [true, false])
  })

  it('enable peer access once, even if another library has enabled it', () => {
    const { driver, first, second } = openTwo()
    first.activate().cuCtxEnablePeerAccess(second.handle) // by another library
    first.enablePeerAccess(second)
    first.enablePeerAccess(second)
    assert.equal(driver.calls.get('cuCtxEnablePeerAccess'), 2)
    assert.equal(first.hasPeerAccess(second), true)
  })

  it('always have access to their own device, even if it is open twice', () => {
    const { driver, first } = openTwo({ peerAccess: false })
    const again = Context.open(driver, 0)
    assert.deepEqual([first.canAccess(again), first.hasPeerAccess(again)], [true, true])
    first.enablePeerAccess(again)
    assert.deepEqual([driver.calls.get('cuCtxEnablePeerAccess'), canTouch(first, again)], [undefined, true])
  })

  it('refuse access between unconnected devices with a remedy', () => {
    const { driver, first, second } = openTwo({ peerAccess: false })
    assert.equal(second.canAccess(first), false)
    const expected = { name: 'PoolError', message: /device 1 cannot .* device 0.*copyFrom/ }
    assert.throws(() => second.enablePeerAccess(first), expected)
    assert.equal(second.hasPeerAccess(first), false)
    const elsewhere = Context.open(openDriver(), 1)
    assert.equal(first.canAccess(elsewhere), false)
    assert.throws(() => first.enablePeerAccess(elsewhere), { name: 'PoolError', message: /two drivers.*openDevices/ })
    assert.equal(driver.calls.get('cuCtxEnablePeerAccess'), undefined)
  })

  it('have no access after a refusal, to a closed device, or after a release', () => {
    const { driver, first, second } = openTwo()
    driver.failCall({ call: 'cuCtxEnablePeerAccess', code: 999 })
    assert.throws(() => first.enablePeerAccess(second), CudaError)
    assert.equal(first.hasPeerAccess(second), false)
    first.enablePeerAccess(second)
    second.release()
    assert.equal(first.hasPeerAccess(second), false)
    assert.throws(() => first.enablePeerAccess(second), { name: 'PoolError', message: /device 1 is closed/ })
    const again = Context.open(driver, 1)
    assert.equal(first.hasPeerAccess(again), false)
    first.enablePeerAccess(again)
    first.release()
    assert.deepEqual(again.peers, [])
  })

  it('wait for their work, unless they are closed or lost', () => {
    const { driver, first, second } = openTwo()
    const ptr = second.activate().cuMemAlloc(MiB)
    driver.holdOperation(0)
    driver.cuMemsetD8Async(ptr, 7, MiB, 0)
    first.activate()
    second.finishWork()
    assert.equal(driver.cuStreamQuery(0), true)
    first.activate().cuMemsetD8Async(ptr, 1, MiB, 0)
    assert.throws(() => first.activate().cuCtxSynchronize(), CudaError)
    assert.throws(() => first.activate().cuCtxSynchronize(), DeviceLostError)
    first.finishWork()
    second.release()
    second.finishWork()
  })

  it('are named in the error for memory without access', () => {
    const { first, second } = openTwo()
    const error = unreachable('fill: the buffer', second, first)
    assert.ok(error instanceof PoolError)
    assert.match(
      error.message,
      /^fill: the buffer belongs to another device: device 1 .* device 0; .*setAccess.*copyFrom/,
    )
    const elsewhere = Context.open(openDriver(), 0)
    assert.match(unreachable('fill: the buffer', elsewhere, first).message, /another driver.*openDevices/)
  })
})

describe('an object that the driver has refused to destroy', () => {
  it('is destroyed later, also by work that destroys the rest itself', () => {
    const { driver, first } = openTwo()
    const stream = first.activate().cuStreamCreate(0)
    const end = () => {
      first.destroyRest()
      driver.cuStreamDestroy(stream)
    }
    driver.failCall({ call: 'cuStreamDestroy' })
    first.discard(end)
    first.destroyRest()
    assert.throws(() => driver.cuStreamQuery(stream), CudaError)
  })
})
