import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { Context } from '../driver/context.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from './clocks.js'
import { StagedCopy } from './staged-copy.js'
import { Stream } from './stream.js'

function setUp() {
  const driver = new SimulatedDriver({ progress: 'eager' })
  driver.cuInit()
  const clocks = new Clocks(Context.open(driver, 0))
  const [a, b] = [Stream.create(clocks), Stream.create(clocks)]
  const fill = (value: number, stream: Stream) => {
    const ptr = driver.cuMemAlloc(1000)
    driver.cuMemsetD8Async(ptr, value, 1000, stream.handle)
    return ptr
  }
  return { driver, a, b, fill }
}

/** A copy that the host never learns to be over. */
async function startAndGiveUp(driver: SimulatedDriver, ptr: number, stream: Stream): Promise<void> {
  using copy = new StagedCopy(stream, 1000)
  copy.start(ptr, 1000)
  driver.failCall({ call: 'cuEventRecord', code: 999 })
  await assert.rejects(stream.finished(), { name: 'CudaError' })
}

describe('a copy to the host', () => {
  it('keeps its memory while it may still run, after the driver refused the wait for it', async () => {
    const { driver, a, b, fill } = setUp()
    const [late, early] = [fill(1, a), fill(2, b)]
    const ticket = driver.holdOperation(a.handle)
    await startAndGiveUp(driver, late, a)
    using copy = new StagedCopy(b, 1000)
    copy.start(early, 1000)
    b.synchronize()
    driver.releaseThrough(a.handle, ticket)
    assert.equal(
      copy.arrived(1000).every(byte => byte === 2),
      true,
    )
  })

  it('gives its memory back once the host has seen a later mark complete', async () => {
    const { driver, a, b, fill } = setUp()
    await startAndGiveUp(driver, fill(1, a), a)
    assert.equal(driver.calls.get('cuMemHostRegister'), 1)
    a.synchronize()
    using _copy = new StagedCopy(b, 1000)
    assert.equal(driver.calls.get('cuMemHostRegister'), 1)
  })

  it('leaves its memory to the next copy if the driver refused it', () => {
    const { driver, a, fill } = setUp()
    const ptr = fill(1, a)
    for (let count = 0; count < 2; count++) {
      using copy = new StagedCopy(a, 1000)
      driver.failCall({ call: 'cuMemcpyDtoHAsync', code: 999 })
      assert.throws(() => copy.start(ptr, 1000), { name: 'CudaError' })
    }
    assert.equal(driver.calls.get('cuMemHostRegister'), 1)
  })

  it('keeps memory that the driver will not unregister for the next copy, and the contents arrive', () => {
    const { driver, a } = setUp()
    const ptr = driver.cuMemAlloc(100 * MiB)
    for (let count = 0; count < 2; count++) {
      using copy = new StagedCopy(a, 100 * MiB)
      copy.start(ptr, 100 * MiB)
      a.synchronize()
      assert.equal(copy.arrived(100 * MiB).byteLength, 100 * MiB)
      if (count === 0) driver.failCall({ call: 'cuMemHostUnregister', code: 999 })
    }
    assert.equal(driver.calls.get('cuMemHostUnregister'), 3, 'refused, done for the next copy, and after that')
  })

  it('registers memory without breaking a capture of another library', () => {
    const { driver, a, b } = setUp()
    driver.cuStreamBeginCapture(a.handle, 0)
    {
      using _copy = new StagedCopy(b, 1000)
    }
    driver.cuGraphDestroy(driver.cuStreamEndCapture(a.handle))
  })
})
