import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../../base/random.js'
import { Scheduler } from './scheduler.js'
import { StreamGroup, type StreamQueue } from './stream-queue.js'

/** The order in which the operations of a random program ran; each is checked to come after its dependencies. */
function runProgram(seed: number, eager: boolean, isGated = false): number[] {
  const random = new Random(seed)
  const scheduler = new Scheduler(eager ? null : new Random(seed + 1))
  let ids = 0
  const group = new StreamGroup(1, () => ids++)
  const queues = [group.legacy, group.perThread]
  for (let i = 0; i < 5; i++) queues.push(group.add(i < 2 ? 'blocking' : 'non-blocking', ids++))
  const ran: number[] = []
  const done = new Set<number>()
  // by stream: the operations that come before its next operation
  const before = new Map<StreamQueue, Set<number>>(queues.map(queue => [queue, new Set()]))
  const tickets: [StreamQueue, number][] = []
  const events: [StreamQueue, number, Set<number>][] = []
  const submitted = new Map<StreamQueue, Set<number>>(queues.map(queue => [queue, new Set()]))
  const include = (target: Set<number>, source: Iterable<number>) => {
    for (const each of source) target.add(each)
  }
  const orderByDefault = (queue: StreamQueue) => {
    if (queue.kind === 'non-blocking') return
    for (const other of queues) {
      const ordered = queue.kind === 'legacy' ? other.kind === 'blocking' : other.kind === 'legacy'
      if (ordered) include(before.get(queue)!, before.get(other)!)
    }
  }
  /** The effect of an operation: all operations that come before it have run. */
  const effectOf = (operation: number, needed: readonly number[]) => () => {
    for (const each of needed) assert.ok(done.has(each), `seed ${seed}: ${operation} ran before ${each}`)
    done.add(operation)
    ran.push(operation)
  }
  /** Two streams wait for each other, as in a collective: each gives, and takes once both have given. */
  const meet = (operation: number, pair: readonly StreamQueue[]) => {
    const gave = pair.map((_, i) => operation + (i + 1) / 10)
    for (const [i, each] of pair.entries()) {
      orderByDefault(each)
      scheduler.submit(each, effectOf(gave[i], [...before.get(each)!]))
      before.get(each)!.add(gave[i])
      submitted.get(each)!.add(gave[i])
    }
    const gate = { isOpen: () => gave.every(each => done.has(each)), stuck: () => null }
    for (const [i, each] of pair.entries()) {
      orderByDefault(each)
      const took = operation + (i + 3) / 10
      scheduler.submitSteps(each, () => [{ gate: gate, effect: effectOf(took, [...before.get(each)!, ...gave]) }])
      for (const earlier of [...gave, took]) before.get(each)!.add(earlier)
      submitted.get(each)!.add(took)
    }
  }
  /** A stream waits for another process, which is ready later, or only while the host waits. */
  const waitForOther = (operation: number, queue: StreamQueue) => {
    let isReady = false
    const gate = {
      isOpen: () => {
        isReady ||= random.below(20) === 0
        return isReady
      },
      stuck: () => {
        isReady = true
        return null
      },
    }
    orderByDefault(queue)
    scheduler.submitSteps(queue, () => [{ gate: gate, effect: effectOf(operation, [...before.get(queue)!]) }])
    before.get(queue)!.add(operation)
    submitted.get(queue)!.add(operation)
  }
  for (let operation = 0; operation < 400; operation++) {
    const queue = queues[random.below(queues.length)]
    const own = before.get(queue)!
    switch (random.below(isGated ? 8 : 6)) {
      case 0:
      case 1: {
        orderByDefault(queue)
        scheduler.submit(queue, effectOf(operation, [...own]))
        own.add(operation)
        submitted.get(queue)!.add(operation)
        break
      }
      case 2:
        orderByDefault(queue)
        events.push([queue, scheduler.submit(queue, null), new Set(own)])
        break
      case 3:
        if (events.length > 0) {
          const [other, position, covered] = events[random.below(events.length)]
          orderByDefault(queue)
          scheduler.wait(queue, other, position)
          include(own, covered)
        }
        break
      case 4:
        orderByDefault(queue)
        tickets.push([queue, scheduler.hold(queue)])
        break
      case 5:
        if (tickets.length > 0 && random.below(2) === 0) {
          const [held, ticket] = tickets[random.below(tickets.length)]
          scheduler.release(held, ticket)
        } else if (random.below(4) === 0) {
          scheduler.finishStream(queue)
          for (const each of submitted.get(queue)!) assert.ok(done.has(each), `${each} was waited for`)
        }
        break
      case 6:
        meet(operation, [queue, queues[(queues.indexOf(queue) + 1 + random.below(queues.length - 1)) % queues.length]])
        break
      case 7:
        if (random.below(4) === 0) waitForOther(operation, queue)
    }
    scheduler.progress()
  }
  for (const queue of queues) scheduler.finish(queue, queue.submitted)
  for (const queue of queues) {
    assert.equal(queue.completed, queue.submitted)
    assert.equal(queue.count, 0)
    assert.equal(queue.blocked, false)
  }
  assert.equal(
    done.size,
    [...submitted.values()].reduce((sum, set) => sum + set.size, 0),
  )
  return ran
}

test('all operations run in an order that their dependencies allow, the same for the same seed', () => {
  const sorted = (order: number[]) => order.every((each, i) => i === 0 || order[i - 1] < each)
  let reordered = 0
  for (let seed = 0; seed < 60; seed++) {
    const order = runProgram(seed, false)
    assert.deepEqual(runProgram(seed, false), order)
    runProgram(seed, true)
    if (!sorted(order)) reordered++
  }
  assert.ok(reordered > 50, 'random order was tried')
})

test('the same with streams that wait for each other, and for other processes', () => {
  for (let seed = 0; seed < 40; seed++) {
    assert.deepEqual(runProgram(seed, false, true), runProgram(seed, false, true), `seed ${seed}`)
    runProgram(seed, true, true)
  }
})

test('work behind a gate runs once a driver call finds it open', () => {
  for (const eager of [true, false]) {
    const scheduler = new Scheduler(eager ? null : new Random(1))
    const { legacy } = new StreamGroup(1, () => 0)
    const ran: string[] = []
    let isOpen = false
    scheduler.submitSteps(legacy, () => [
      { gate: { isOpen: () => isOpen, stuck: () => null }, effect: () => ran.push('gated') },
    ])
    scheduler.submit(legacy, () => ran.push('later'))
    for (let i = 0; i < 100; i++) scheduler.progress()
    assert.deepEqual([ran, scheduler.isIdle(legacy)], [[], false])
    isOpen = true
    for (let i = 0; i < 100; i++) scheduler.progress()
    assert.deepEqual([ran, scheduler.isIdle(legacy)], [['gated', 'later'], true])
  }
})

test('a wait for a gate that can never open is an error, and changes nothing', () => {
  const scheduler = new Scheduler(null)
  const group = new StreamGroup(1, () => 0)
  const [stream, other] = [2, 3].map(id => group.add('non-blocking', id))
  let isOpen = false
  scheduler.submitSteps(stream, () => [
    { gate: { isOpen: () => isOpen, stuck: () => 'nobody comes' }, effect: () => {} },
  ])
  scheduler.wait(other, stream, stream.submitted)
  for (const each of [stream, other]) {
    assert.throws(() => scheduler.finishStream(each), { name: 'EndlessWait', message: /waits for ever: nobody comes$/ })
  }
  isOpen = true
  scheduler.finishStream(other)
  assert.deepEqual([stream.completed, stream.count, other.count], [stream.submitted, 0, 0])
})

test('a fault opens the gates of its context, and a gate that is not the first entry is not asked', () => {
  const scheduler = new Scheduler(null)
  const group = new StreamGroup(1, () => 0)
  const [stream, faulty] = [2, 3].map(id => group.add('non-blocking', id))
  let asked = 0
  const gate = { isOpen: () => ++asked < 0, stuck: () => null }
  const ticket = scheduler.hold(stream)
  scheduler.submitSteps(stream, () => [{ gate: gate, effect: () => assert.fail('the context has ended') }])
  scheduler.progress()
  assert.equal(asked, 0)
  scheduler.release(stream, ticket)
  scheduler.progress()
  assert.equal(asked, 1)
  scheduler.submit(faulty, () => {
    throw new Error('a bug in a kernel')
  })
  scheduler.finishStream(stream)
  assert.equal(stream.completed, stream.submitted)
})

test('ready work runs at once if eager, and later if seeded', () => {
  for (const eager of [true, false]) {
    const scheduler = new Scheduler(eager ? null : new Random(1))
    const { legacy } = new StreamGroup(1, () => 0)
    let ran = false
    scheduler.submit(legacy, () => {
      ran = true
    })
    assert.equal(ran, eager)
    for (let i = 0; i < 100; i++) scheduler.progress()
    assert.equal(ran, true)
  }
})

test('a failing operation ends its context, and later work completes without an effect', () => {
  const scheduler = new Scheduler(null)
  const group = new StreamGroup(1, () => 0)
  let ran = false
  scheduler.submit(group.legacy, () => {
    throw new Error('a bug in a kernel')
  })
  scheduler.submit(group.legacy, () => {
    ran = true
  })
  assert.deepEqual([ran, group.legacy.completed, group.fault?.detail], [false, 2, 'a bug in a kernel'])
})

test('a million held operations leave no entries, and a destroyed stream is removed after its work', () => {
  const scheduler = new Scheduler(null)
  const group = new StreamGroup(1, () => 0)
  const queue = group.add('non-blocking', 2)
  for (let i = 0; i < 1e6; i++) assert.equal(scheduler.hold(queue), i + 1)
  const mark = scheduler.submit(queue, null)
  scheduler.release(queue, 1e6 - 1)
  assert.equal(queue.completed, 1e6 - 1)
  queue.destroyed = true
  scheduler.release(queue, 1e6)
  assert.equal(queue.completed, mark)
  assert.equal(group.queues.has(queue), false)
})
