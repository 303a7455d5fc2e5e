import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../../base/random.js'
import { Scheduler } from './scheduler.js'
import { StreamGroup, type StreamQueue } from './stream-queue.js'

/** The order in which the operations of a random program ran; each is checked to come after its dependencies. */
function runProgram(seed: number, eager: boolean): number[] {
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
  for (let operation = 0; operation < 400; operation++) {
    const queue = queues[random.below(queues.length)]
    const own = before.get(queue)!
    switch (random.below(6)) {
      case 0:
      case 1: {
        orderByDefault(queue)
        const needed = [...own]
        scheduler.submit(queue, () => {
          for (const each of needed) assert.ok(done.has(each), `${operation} ran before ${each}`)
          done.add(operation)
          ran.push(operation)
        })
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
