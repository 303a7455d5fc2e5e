// A ring beside a builder that keeps all events: the traces of both tell the same of the last events.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../../core/base/random.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { Action, BEFORE, framesOf, NEVER, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { EventRing } from './event-ring.js'

const ORIGIN = { file: 'test', recorder: 'cuda-mempool' } as const
const SEEDS = 24

interface Live {
  readonly address: number
  readonly bytes: number
  readonly stream: number
}

/** The same random allocations, frees and failures into several builders: with stacks, some tags and some pools. */
class Events {
  private readonly live: Live[] = []
  private readonly random: Random
  private timeUs = 1e15

  constructor(
    seed: number,
    private readonly builders: readonly (TraceBuilder | EventRing)[],
  ) {
    this.random = new Random(seed)
  }

  step(): void {
    const { random, live } = this
    this.timeUs += random.below(5)
    const choice = random.below(20)
    if (choice === 0) this.add(Action.outOfMemory, { address: 1e9, bytes: 1e8, stream: 0 })
    else if (choice < 11 || live.length === 0) this.allocate()
    else {
      const [block] = live.splice(random.below(live.length), 1)
      this.add(Action.freeRequested, block)
      this.add(Action.freeCompleted, block)
    }
  }

  private allocate(): void {
    const { random, live } = this
    let address = 4096 * (1 + random.below(200))
    while (live.some(block => block.address === address)) address += 4096
    const block = { address, bytes: 1 + random.below(4000), stream: random.below(3) }
    live.push(block)
    const line = 1 + random.below(5)
    const tag = random.below(2) === 0 ? '' : `request ${random.below(1000)}`
    const group = random.below(4)
    for (const builder of this.builders) {
      const stack = builder.stacks.number([builder.stacks.entry('server.js', line, 'handle')])
      const event = builder.add(Action.alloc, block.address, block.bytes, block.stream, this.timeUs, stack)
      if (random.below(2) === 0) builder.noteGranted(event, 4096)
      builder.noteTag(event, tag)
      if (group > 0) builder.notePool(event, builder.pools.number(`0,${group}`))
    }
  }

  private add(action: number, { address, bytes, stream }: Live): void {
    for (const builder of this.builders) builder.add(action, address, bytes, stream, this.timeUs)
  }
}

/** The facts of a trace about its last `count` events, and of the blocks that are live before them. */
function endOf(trace: Trace, count: number): object {
  const from = trace.events - count
  const { blocks } = trace
  const events = Array.from({ length: count }, (_, i) => {
    const event = from + i
    const { action, address, bytes, stream, timeUs } = trace
    return [action[event], address[event], bytes[event], trace.streams[stream[event]], timeUs[event]]
  })
  const numbers = Array.from({ length: blocks.count }, (_, block) => block)
  const seen = numbers.filter(block => blocks.freeCompletedAt[block] >= from)
  const described = seen.map(block => ({
    address: blocks.address[block],
    bytes: blocks.bytes[block],
    stream: trace.streams[blocks.stream[block]],
    tag: trace.tags[blocks.tag[block]],
    pool: trace.pools[blocks.pool[block]],
    line: framesOfBlock(trace, block),
    since: Math.max(BEFORE, blocks.allocatedAt[block] - from),
    until: blocks.freeCompletedAt[block] === NEVER ? NEVER : blocks.freeCompletedAt[block] - from,
  }))
  return { events, blocks: described.sort((a, b) => a.since - b.since || a.address - b.address) }
}

function framesOfBlock({ stacks, blocks }: Trace, block: number): number {
  const node = stacks.node[blocks.stack[block]]
  return node === 0 ? 0 : stacks.frames[stacks.frame[node]].line
}

test('a ring of any size tells the same of the last events, after each event', () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const size = 1 + (seed % 23)
    const [all, ring] = [new TraceBuilder(), new EventRing(size)]
    const events = new Events(seed, [all, ring])
    for (let step = 0; step < 120; step++) {
      events.step()
      const whole = all.build(ORIGIN)
      const last = ring.build(ORIGIN)
      const count = Math.min(size, whole.events)
      const message = `seed ${seed}, step ${step}`
      assert.deepEqual([ring.events, last.events, last.dropped], [whole.events, count, whole.events - count], message)
      assert.deepEqual(endOf(last, count), endOf(whole, count), message)
    }
  }
})

test('a ring is written and read again with the blocks from before it', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const size = 1 + (seed % 23)
    const ring = new EventRing(size)
    const events = new Events(seed, [ring])
    for (let step = 0; step < 100; step++) events.step()
    const trace = ring.build(ORIGIN)
    const read = await readRecording(pickleSnapshot(trace), { name: 'test' })
    assert.deepEqual(endOf(read, size), endOf(trace, size), `seed ${seed}`)
    assert.deepEqual([read.dropped, read.contradictions], [trace.dropped, trace.contradictions], `seed ${seed}`)
    assert.ok(framesOf(read, 0).length <= 1)
  }
})

test('a ring that runs for long holds its events and the live blocks only', () => {
  const ring = new EventRing(100)
  const events = new Events(1, [ring])
  for (let step = 0; step < 20_000; step++) events.step()
  const trace = ring.build(ORIGIN)
  const live = trace.blocks.freeCompletedAt.filter(end => end === NEVER).length
  assert.ok(ring['before'].size <= live + 100, `${ring['before'].size} blocks from before, ${live} live`)
  assert.equal(ring['tags'].length, 100)
})
