// Threads that take and free each other's blocks and are terminated at random moments. A longer run: npm run storm, with
// STORM_SEED set for another one.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { Random } from '../base/random.js'
import { newSharedState, SharedHeap } from './shared-heap.js'
import { type Handle, newStorm, Progress, redraw, STREAMS, type Storm, settleAll, UNITS } from './storm-thread.suite.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 40)
const THREADS = 4

class StormThread {
  private static readonly all = new Set<Worker>()
  readonly number: Promise<number>
  private readonly thread: Worker

  constructor(storm: Storm, seed: number) {
    const url = new URL('./storm-thread.suite.js', import.meta.url)
    this.thread = new Worker(url, { workerData: { storm, seed } })
    StormThread.all.add(this.thread)
    this.number = once(this.thread, 'message').then(([number]) => number as number)
  }

  terminate(): void {
    void this.thread.terminate()
    StormThread.all.delete(this.thread)
  }

  /** What it holds when it was told to stop. */
  async held(): Promise<Handle[]> {
    const [handles] = await once(this.thread, 'message')
    return handles
  }

  static async terminateAll(): Promise<void> {
    await Promise.all([...StormThread.all].map(thread => thread.terminate()))
  }
}
after(() => StormThread.terminateAll())

/** Takes what a dead thread held, off the map, too, and gives it back. Returns how many blocks that were. */
function inherit(heap: SharedHeap, storm: Storm, dead: number): number {
  heap.bury(dead, 0, 1)
  const holdings = heap.holdings(dead)
  for (const { record, tag, offset, units } of holdings) {
    if (!heap.adopt(record, tag, dead)) continue // by a thread that had it from the board
    storm.map.fill(0, offset, offset + units)
    assert.equal(heap.free(record, tag, 0, 1), true)
  }
  heap.reclaim(dead, 0, 1)
  return holdings.length
}

test(`a storm (STORM_SEED=${SEED} STORM_TERMINATIONS=${TERMINATIONS})`, async () => {
  const random = new Random(SEED)
  const state = newSharedState({ streams: STREAMS, records: 4096, ranges: 1 })
  const storm = newStorm(state)
  const { map, progress } = storm
  const heap = new SharedHeap(state)
  heap.addRange(0, 0, UNITS)
  const running = Array.from({ length: THREADS }, () => new StormThread(storm, random.next()))
  let found = 0
  for (let count = 0; count < TERMINATIONS; ) {
    const steps = Atomics.load(progress, Progress.steps)
    while (Atomics.load(progress, Progress.steps) < steps + 50) await setImmediate()
    for (let turns = random.below(30); turns > 0; turns--) await setImmediate()
    const victims = running.splice(0, 1 + random.below(2))
    await Promise.all(victims.map(victim => victim.number))
    for (const victim of victims) victim.terminate()
    for (let buried = 0; buried < victims.length; ) {
      const dead = heap.roster.lookAtAll()
      for (const number of dead) found += inherit(heap, storm, number)
      buried += dead.length
    }
    for (const _ of victims) running.push(new StormThread(storm, random.next()))
    count += victims.length
  }
  const survivors = running.splice(0, THREADS / 2)
  const numbers = await Promise.all(running.map(thread => thread.number))
  const others = await Promise.all(survivors.map(thread => thread.number))
  for (const thread of running) thread.terminate()
  for (const dead of numbers) {
    while (!heap.roster.look(dead));
    heap.bury(dead, 0, 1)
  }
  const held = survivors.map(thread => thread.held())
  Atomics.store(progress, Progress.stop, 1)
  const handles = await Promise.all(held)
  heap.check()

  // What is on the map is listed, and what a survivor says it holds is on the map.
  const listed = new Int32Array(UNITS)
  for (const worker of [...numbers, ...others]) {
    for (const { offset, units } of heap.holdings(worker)) listed.fill(worker, offset, offset + units)
  }
  for (const [unit, holder] of map.entries()) assert.ok(holder === 0 || listed[unit] !== 0, `unit ${unit} is lost`)
  for (const [index, handlesOfOne] of handles.entries()) {
    const records = new Set(heap.holdings(others[index]).map(({ record }) => record))
    for (const { record, tag } of handlesOfOne) {
      assert.ok(records.has(record))
      redraw(heap, map, record, others[index], 0)
      assert.equal(heap.free(record, tag, 0, 1), true)
    }
  }

  for (const worker of numbers) found += heap.reclaim(worker, 0, 1).length
  for (const worker of others) {
    // What is left is on the board.
    for (const { record, tag } of heap.holdings(worker)) assert.equal(heap.free(record, tag, 0, 1), true)
    assert.equal(heap.roster.bury(worker), true)
    heap.bury(worker, 0, 1)
    assert.equal(heap.reclaim(worker, 0, 1).length, 0)
  }
  settleAll(heap)
  heap.drain()
  settleAll(heap)
  heap.check()
  assert.equal(heap.freeUnits, UNITS)
  assert.notEqual(heap.allocate(UNITS, 0), 0, 'the whole capacity in one piece')
  assert.ok(
    found > 0 && progress[Progress.adopted] > 0,
    `${found} holdings of the dead, ${progress[Progress.adopted]} adopted`,
  )
})
