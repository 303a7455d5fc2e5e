// The order of launches of a group that threads share. `test/terminated-launches.test.ts` has real threads, and
// `proof/interleave/scenarios/graph-groups.ts` all their interleavings.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError, PoolError } from '../../../base/errors.js'
import { CU_STREAM_PER_THREAD } from '../../../driver/constants.js'
import { Capture } from '../../../order/capture.js'
import { borrow, signal, TestOrder } from '../../../order/order.fixture.js'
import { Stream } from '../../../order/stream.js'
import { finish } from '../central/parts.js'
import { before, sharedGroup } from './group-order.fixture.js'

const unordered = { code: 'ERR_STREAM_ORDER', message: /^launch: graph \d+ of the group on .* may run beside/ }
/** an output that is valid, and that any graph may use */
const OUTPUT = { onlyGraph: null, checkValid: () => {} }
/** A graph whose launch does not come to its end. */
const cutGraph = () => ({ number: 7, launchSlot: 0, launchStamp: 0 })

describe('the order of launches in several threads', () => {
  it('a launch waits for one of another thread, unless it comes after that', () => {
    const { device, here, there } = sharedGroup()
    const [one, other] = [here.newGraph(), there.newGraph()]
    const release = device.hold(here.stream)
    one.launch()
    other.launch()
    assert.equal(there.stream.query(), false)
    assert.deepEqual([here.order.waits, here.order.launches], [1, 2])
    release()
    assert.equal(there.stream.query(), true)
    signal(borrow(here.clocks, there.stream), here.stream)
    one.launch()
    assert.deepEqual([there.order.waits, there.order.launches], [1, 3])
  })

  it('one that may run beside another thread’s is refused where the group refuses that, and leaves the lock', () => {
    const { here, there } = sharedGroup(true)
    const [one, other] = [here.newGraph(), there.newGraph()]
    one.launch()
    assert.throws(() => other.launch(), unordered)
    assert.equal(here.lock.owner, 0)
    signal(borrow(there.clocks, here.stream), there.stream)
    other.launch()
    assert.equal(here.order.latest, there.order.latest)
  })

  it('a mark that another thread places during the launch does not cover it', () => {
    const { device, here, there } = sharedGroup()
    const [one, other] = [here.newGraph(), there.newGraph()]
    const lent = borrow(there.clocks, here.stream)
    let release = () => {}
    const stop = before(device, 'cuGraphLaunch', () => {
      signal(lent, there.stream)
      release = device.hold(here.stream)
    })
    one.launch()
    stop()
    other.launch()
    assert.equal(there.stream.query(), false)
    release()
    assert.equal(there.stream.query(), true)
  })

  it('another thread cannot launch before the driver has taken the launch', () => {
    const { device, here, there } = sharedGroup()
    const [one, other] = [here.newGraph(), there.newGraph()]
    const owners: number[] = []
    const stop = before(device, 'cuGraphLaunch', () => owners.push(here.lock.owner))
    one.launch()
    other.launch()
    stop()
    assert.deepEqual(owners, [here.clocks.slots.me, there.clocks.slots.me])
    assert.equal(here.lock.owner, 0)
  })

  for (const call of ['cuEventRecord', 'cuStreamWaitEvent', 'cuGraphLaunch'] as const) {
    it(`if ${call} is refused, the next launch of any thread has the same waits`, () => {
      const { device, here, there, attach } = sharedGroup()
      const third = attach()
      const [one, other, another] = [here.newGraph(), there.newGraph(), third.newGraph()]
      const release = device.hold(here.stream)
      one.launch()
      device.driver.failCall({ call, code: 999 })
      assert.throws(() => other.launch(), CudaError)
      device.driver.clearFaults()
      assert.equal(here.lock.owner, 0)
      assert.equal(here.order.latest === 0, call === 'cuGraphLaunch', 'contents are lost only if it was submitted')
      another.launch()
      assert.equal(third.stream.query(), false)
      release()
      assert.equal(third.stream.query(), true)
    })
  }

  it('a launch waits for uses of outputs, and for work on freed memory, of other threads', () => {
    for (const way of ['a use', 'a lasting use', 'freed memory'] as const) {
      const { device, here, there } = sharedGroup()
      const [one, other] = [here.newGraph(), there.newGraph()]
      one.launch()
      if (way === 'a use') here.order.noteUse('launch', here.stream, OUTPUT)
      else if (way === 'a lasting use') here.order.noteUses(here.stream)
      here.stream.synchronize()
      const release = device.hold(here.stream)
      const { clocks, slot } = here.stream
      if (way === 'freed memory') here.order.add({ clocks, slot, stamp: clocks.marked[slot] + 1 })
      assert.equal(there.order.isComplete(), false, 'every thread knows of it')
      other.launch()
      assert.equal(there.stream.query(), false, way)
      release()
      finish(there.order.finish())
      assert.equal(here.order.isComplete(), true)
    }
  })

  it('a use of an output is refused once another thread has launched, and its check has the lock', () => {
    const { here, there } = sharedGroup()
    const [one, other] = [here.newGraph(), there.newGraph()]
    one.launch()
    const { latest } = here.order
    const checkValid = () => {
      assert.equal(here.lock.owner, here.clocks.slots.me)
      if (here.order.latest !== latest) throw new PoolError('overwritten')
    }
    const use = () => here.order.noteUse('launch', here.stream, { onlyGraph: null, checkValid })
    use()
    other.launch()
    assert.throws(use, /overwritten/)
    assert.equal(here.lock.owner, 0)
    there.order.loseContents()
    assert.equal(here.order.latest, 0)
  })

  it('streams that other threads could not wait for are refused', () => {
    const { device, here } = sharedGroup()
    const graph = here.newGraph()
    const own = new Stream(here.clocks, CU_STREAM_PER_THREAD, false)
    const elsewhere = new TestOrder(device.driver, 0).createStream()
    const refused: [Stream, string, RegExp][] = [
      [own, 'ERR_STREAM_ORDER', /cannot wait for the per-thread default stream of another; use a stream of device/],
      [elsewhere, 'ERR_OTHER_DEVICE', /threads that share a group do not know the order of another device; copy the/],
    ]
    for (const [stream, code, message] of refused) {
      assert.throws(() => here.order.noteUse('launch', stream, OUTPUT), { code, message })
      assert.throws(() => here.order.checkStream('free', stream), { code, message })
    }
    assert.throws(() => graph.launch(own), { code: 'ERR_STREAM_ORDER', message: refused[0][2] })
    assert.equal(here.lock.owner, 0)
  })

  it('another library cannot capture in it', () => {
    const { here } = sharedGroup()
    const group = { order: here.order, begin: () => 1, checkEnd: () => {}, end: () => {} }
    assert.throws(() => Capture.announce(here.stream, group), {
      code: 'ERR_NOT_SUPPORTED',
      message: /^beginCapture: another library cannot launch graphs of a group that threads share/,
    })
  })
})

describe('a thread that ends in a launch', () => {
  it('leaves the lock to others, whose launches come after all work of its stream', () => {
    for (const refuses of [false, true]) {
      const { device, here, there } = sharedGroup(refuses)
      const other = there.newGraph()
      here.order.enter('launch', cutGraph(), here.stream)
      there.clocks.watcher.mark(here.stream.slot)
      const release = device.hold(here.stream) // the launch, which the mark does not cover
      here.die()
      if (refuses) {
        assert.throws(() => other.launch(), unordered)
        signal(borrow(there.clocks, here.stream), there.stream)
      }
      other.launch()
      assert.deepEqual([there.stream.query(), there.lock.owner], [false, 0])
      release()
      assert.equal(there.stream.query(), true)
    }
  })

  it('leaves the lock before another thread gets its number', () => {
    const { here, there } = sharedGroup()
    here.order.enter('launch', cutGraph(), here.stream)
    there.order.bury(there.clocks.slots.me)
    assert.equal(there.lock.owner, here.clocks.slots.me)
    here.die()
    there.order.bury(here.clocks.slots.me)
    assert.equal(there.lock.owner, 0)
  })

  it('takes the lock again if its call was cut short, or leaves it before it waits for others', () => {
    const { device, here, there } = sharedGroup()
    const [one, other] = [here.newGraph(), there.newGraph()]
    for (const way of ['again', 'leaves'] as const) {
      here.order.enter('launch', cutGraph(), here.stream)
      const release = device.hold(here.stream)
      if (way === 'again') one.launch()
      else here.lock.dropStale()
      other.launch()
      assert.equal(there.stream.query(), false)
      release()
    }
  })

  it('has launched, as far as a use of an output knows, when its call was cut short', () => {
    for (const way of ['of its graph', 'of any graph'] as const) {
      const { device, here } = sharedGroup()
      const [memory, user] = [here.newGraph()['memory'], Stream.create(here.clocks)]
      here.order.enter('launch', memory, here.stream)
      const release = device.hold(here.stream)
      here.order.noteUse('launch', user, { ...OUTPUT, onlyGraph: way === 'of its graph' ? memory : null })
      assert.equal(user.query(), false)
      release()
      assert.equal(user.query(), true)
    }
  })

  for (const pending of ['the launch before', 'a use', 'its own launch'] as const) {
    it(`leaves a list that covers ${pending}, whichever its last store was`, () => {
      let isOver = false
      for (let stores = 1; !isOver; stores++) {
        const { device, here, there, attach, attachTo, state, lockWords } = sharedGroup()
        const user = attach()
        const dying = attachTo(endingAfter(stores, state, lockWords))
        const [one, other, last] = [here.newGraph(), there.newGraph(), dying.newGraph()]
        for (let mark = 0; mark < 3; mark++) dying.stream.synchronize() // more than the launch before has
        if (pending === 'the launch before') device.hold(here.stream)
        one.launch()
        user.order.noteUses(user.stream)
        if (pending === 'a use') device.hold(user.stream)
        const stop = before(device, 'cuGraphLaunch', () => {
          if (pending === 'its own launch') device.hold(dying.stream)
        })
        const launches = device.calls('cuGraphLaunch')
        isOver = !endsIn(() => last.launch(), state, lockWords)
        stop()
        dying.die()
        other.launch()
        const isMade = device.calls('cuGraphLaunch') === launches + 2
        assert.equal(there.stream.query(), pending === 'its own launch' && !isMade, `${stores} stores`)
        assert.ok(stores < 20)
      }
    })
  }
})

/** A thread has ended; with what it left. */
class Ended extends Error {
  constructor(
    readonly state: Float64Array,
    readonly lockWords: Int32Array,
  ) {
    super('ended')
  }
}

/** A view of the state for a thread that ends after so many stores. */
function endingAfter(stores: number, state: Float64Array, lockWords: Int32Array): Float64Array {
  let left = stores
  return new Proxy(state, {
    set: (target, index, value) => {
      if (left === 0) return true // `catch` and `finally` blocks do not run in a thread that has ended
      Reflect.set(target, index, value)
      if (--left === 0) throw new Ended(state.slice(), lockWords.slice())
      return true
    },
  })
}

/** Whether the thread ends in a launch; what it had stored by then stays. */
function endsIn(launch: () => void, state: Float64Array, lockWords: Int32Array): boolean {
  try {
    launch()
    return false
  } catch (error) {
    if (!(error instanceof Ended)) throw error
    state.set(error.state)
    lockWords.set(error.lockWords)
    return true
  }
}
