// The allocators of kernels under many interleavings, without a GPU: small programs under every schedule with few
// preemptions, larger programs under random schedules. With one rule broken, the same programs must fail. DEVICE_SEED
// and DEVICE_RUNS replay and lengthen the random part.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../src/core/base/random.js'
import type { Steps } from './device-atomics.js'
import { type BumpRule, DeviceBumpModel } from './device-bump-model.js'
import { type Block, DeviceHeapModel, type DeviceRule, type HeapSize } from './device-heap-model.js'
import { type Exploration, explore, type ModelRun, sample } from './device-schedules.js'

const SEED = Number(process.env['DEVICE_SEED'] ?? 1)
const RUNS = Number(process.env['DEVICE_RUNS'] ?? 1000)
const CROWDS = 100

/** One action of a thread: it takes blocks of a class, or frees blocks of its own or of the beginning. */
type Deed =
  | { readonly take: number; readonly ofClass?: number }
  /** takes blocks for a thread that does 'free begun', without writing to them and without a fence */
  | { readonly pass: number | 'run' }
  | 'free'
  | 'free first'
  | 'free twice'
  /** frees its blocks, those that share a cell of the map by one operation */
  | 'free together'
  /** frees one block twice by one operation */
  | 'free twice together'
  | 'free begun'
  | 'free first begun'
  /** a second free of the initial blocks, also if another thread owns them by now */
  | 'free begun again'
  /** takes a whole superblock, writes to it and gives it back */
  | 'run'

interface Program {
  readonly size: HeapSize
  /** blocks of class 0 that are in use before the threads start */
  readonly begun?: number
  /** the number of these, from the first on, that are freed again by then (0) */
  readonly freed?: number
  readonly threads: readonly (readonly Deed[])[]
  readonly preemptions: number
}

const take = (count: number, ofClass = 0): Deed => ({ take: count, ofClass })
const pass = (count: number | 'run'): Deed => ({ pass: count })

const PROGRAMS: Record<string, Program> = {
  'two threads and one superblock': {
    size: { superblocks: 2, capacities: [2], slots: 1 },
    threads: [
      [take(1), 'free'],
      [take(1), 'free'],
    ],
    preemptions: 3,
  },
  'groups that need more than a superblock has': {
    size: { superblocks: 3, capacities: [3], slots: 2 },
    threads: [
      [take(2), 'free'],
      [take(3), 'free'],
    ],
    preemptions: 2,
  },
  'superblocks that change their class': {
    size: { superblocks: 2, capacities: [1, 2], slots: 1 },
    threads: [
      [take(1), 'free', take(1)],
      [take(2, 1), 'free', take(1, 1), 'free'],
    ],
    preemptions: 2,
  },
  'frees into what is full, while others allocate': {
    size: { superblocks: 3, capacities: [2], slots: 1 },
    begun: 3,
    threads: [['free begun'], [take(2), 'free first'], [take(1)]],
    preemptions: 2,
  },
  'a heap that is full': {
    size: { superblocks: 1, capacities: [2], slots: 1 },
    begun: 1,
    threads: [
      ['free begun', take(1)],
      [take(2), 'free'],
      [take(1), 'free'],
    ],
    preemptions: 2,
  },
  'an idle superblock that someone still knows': {
    size: { superblocks: 1, capacities: [2, 2], slots: 1, keeps: true },
    begun: 1,
    threads: [[take(1)], ['free begun', take(1, 1)]],
    preemptions: 3,
  },
  'threads that hold what is not full, while others look': {
    size: { superblocks: 2, capacities: [2], slots: 1 },
    threads: [[take(1)], [take(2)], [take(1)]],
    preemptions: 2,
  },
  'a block freed twice': {
    size: { superblocks: 2, capacities: [3], slots: 1 },
    begun: 1,
    threads: [[take(2), 'free twice'], [take(1)]],
    preemptions: 3,
  },
  'blocks that a group frees by one operation': {
    size: { superblocks: 2, capacities: [3], slots: 1 },
    begun: 2,
    threads: [
      [take(3), 'free together'],
      ['free begun', take(2), 'free together'],
    ],
    preemptions: 2,
  },
  'a block that a group frees twice by one operation': {
    size: { superblocks: 2, capacities: [3], slots: 1 },
    threads: [[take(2), 'free twice together'], [take(1)]],
    preemptions: 2,
  },
  'superblocks that slots keep while another class needs them': {
    size: { superblocks: 2, capacities: [2, 1], slots: 2, keeps: true },
    threads: [
      [take(1), 'free', take(1, 1)],
      [take(1), 'free', 'run', take(1, 1)],
    ],
    preemptions: 2,
  },
  'idle superblocks that are counted in batches': {
    size: { superblocks: 3, capacities: [1], slots: 1, stripes: 2, batch: 2, keeps: true },
    begun: 3,
    threads: [
      ['free begun', take(1)],
      [take(1), 'free', 'run'],
    ],
    preemptions: 2,
  },
  'a second free while the superblock changes its class': {
    size: { superblocks: 1, capacities: [2, 1], slots: 1 },
    begun: 2,
    threads: [['free begun', take(1, 1), 'free', take(1, 1)], ['free begun again']],
    preemptions: 3,
  },
  'second frees while classes change back and forth': {
    size: { superblocks: 2, capacities: [3, 1], slots: 1 },
    begun: 3,
    threads: [['free begun', take(1, 1), 'free', take(2)], ['free begun again'], [take(1, 1), 'free']],
    preemptions: 2,
  },
  'a second free while the superblock is written over as part of a run': {
    size: { superblocks: 1, capacities: [2], slots: 1 },
    begun: 1,
    threads: [['free begun', 'run', take(1)], ['free begun again']],
    preemptions: 3,
  },
  'a superblock that another thread finds while it is new': {
    size: { superblocks: 3, capacities: [2], slots: 1, patience: 0, tries: 2 },
    begun: 6,
    freed: 2,
    threads: [[take(1)], [take(1)], ['free first begun']],
    preemptions: 3,
  },
  'a block that one thread frees and another takes': {
    size: { superblocks: 1, capacities: [2], slots: 1 },
    begun: 1,
    threads: [
      [take(1), 'free'],
      [take(1), 'free'],
    ],
    preemptions: 3,
  },
  'blocks that others free at once': {
    size: { superblocks: 2, capacities: [2], slots: 1, patience: 0 },
    threads: [[pass(1)], [take(1), 'free begun', 'free']],
    preemptions: 3,
  },
  'a run that others free at once': {
    size: { superblocks: 2, capacities: [2], slots: 1 },
    threads: [[pass('run')], ['free begun', 'run', 'free begun']],
    preemptions: 3,
  },
}

function sequentially<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** So small that every schedule can be run, with any preemptions. */
const SMALLEST: Record<string, Omit<Program, 'preemptions'>> = {
  'two threads take of what has room': {
    size: { superblocks: 1, capacities: [3], slots: 1, tries: 1 },
    begun: 1,
    threads: [[take(1)], [take(1)]],
  },
  'two threads free': {
    size: { superblocks: 1, capacities: [2], slots: 1, tries: 1 },
    begun: 2,
    threads: [['free begun'], ['free begun']],
  },
  'one takes while the last block is freed': {
    size: { superblocks: 1, capacities: [2], slots: 1, tries: 1, keeps: true },
    begun: 1,
    threads: [[take(1)], ['free begun']],
  },
  'one takes while a full superblock gets room': {
    size: { superblocks: 1, capacities: [1], slots: 1, tries: 1, keeps: true },
    begun: 1,
    threads: [[take(1)], ['free begun']],
  },
  'a block is freed twice while its superblock changes its class': {
    size: { superblocks: 1, capacities: [2, 1], slots: 1, tries: 1, keeps: true },
    begun: 2,
    freed: 1,
    threads: [['free begun', take(1, 1)], ['free begun again']],
  },
  'a block is freed twice while its superblock is written over as a run': {
    size: { superblocks: 1, capacities: [2], slots: 1, tries: 1, keeps: true },
    begun: 1,
    threads: [['free begun', 'run'], ['free begun again']],
  },
}

/** Whether all blocks that a program ever asks for fit into the heap at once. */
function fits({ size, begun = 0, threads }: Omit<Program, 'preemptions'>): boolean {
  let asked = begun
  for (const deed of threads.flat()) {
    if (deed === 'run') return false
    if (typeof deed !== 'object') continue
    const count = 'take' in deed ? deed.take : deed.pass
    if (count === 'run' || ('take' in deed && deed.ofClass !== 0)) return false
    asked += count
  }
  return asked <= size.superblocks * size.capacities[0]
}

/** A run of a program: checked when the threads have ended, and again when all remaining blocks are freed. */
function runOf(program: Omit<Program, 'preemptions'>, rule: DeviceRule | null = null): ModelRun {
  const { size, begun = 0, freed = 0, threads } = program
  const heap = new DeviceHeapModel(size, rule)
  const first = begun === 0 ? [] : sequentially(heap.allocate(0, 0, begun))
  const held: Block[][] = threads.map(() => [])
  for (const block of first.splice(0, freed)) sequentially(heap.free(block))
  const begunWith = [...first]
  let [taken, frees] = [first.length, 0]
  // A second free may free a block of another thread, which then does not stay as its owner wrote it.
  const freedTwice = threads.some(deeds => deeds.includes('free begun again'))

  function* free(block: Block): Steps<void> {
    frees++
    yield* heap.free(block)
  }

  /** Frees a block that the thread has written to. */
  function* freeOwn(block: Block, thread: number): Steps<void> {
    if (!freedTwice) {
      yield
      assert.equal(heap.read(block), thread + 1, 'a block was written over')
    }
    yield* free(block)
  }

  function* perform(deeds: readonly Deed[], thread: number): Steps<void> {
    const mine = held[thread]
    for (const deed of deeds) {
      if (typeof deed === 'object' && 'take' in deed) {
        const blocks = yield* heap.allocate(thread, deed.ofClass ?? 0, deed.take)
        taken += blocks.length
        for (const block of blocks) heap.write(block, thread + 1)
        mine.push(...blocks)
      } else if (typeof deed === 'object') {
        const run = deed.pass === 'run' ? yield* heap.allocateRun(thread) : null
        const blocks = deed.pass === 'run' ? [] : yield* heap.allocate(thread, 0, deed.pass)
        if (run !== null) blocks.push(run)
        taken += blocks.length
        first.push(...blocks)
      } else if (deed === 'run') {
        const block = yield* heap.allocateRun(thread)
        if (block === null) continue
        taken++
        heap.write(block, thread + 1)
        yield* freeOwn(block, thread)
      } else if (deed === 'free begun again') {
        for (const block of begunWith) yield* free(block)
      } else if (deed === 'free twice') {
        const block = mine.pop()
        if (block === undefined) continue
        yield* freeOwn(block, thread)
        // If another thread has got the block meanwhile, this would free that thread's block.
        if (heap.isTaken(block)) continue
        const before = heap.doubleFrees
        sequentially(free(block))
        if (heap.doubleFrees === before) throw new Error('a double free was not noticed')
      } else if (deed === 'free together') {
        while (mine.length > 0) {
          const [leader] = mine
          const together = mine.filter(block => block === leader || DeviceHeapModel.shareCell(leader, block))
          for (const block of together) mine.splice(mine.indexOf(block), 1)
          frees += together.length
          yield* heap.free(...together)
        }
      } else if (deed === 'free twice together') {
        const block = mine.pop()
        if (block === undefined) continue
        frees += 2
        yield* heap.free(block, block)
      } else {
        const isBegun = deed === 'free begun' || deed === 'free first begun'
        const blocks = isBegun ? first : mine
        const isOne = deed === 'free first' || deed === 'free first begun'
        for (let left = isOne ? 1 : blocks.length; left > 0 && blocks.length > 0; left--) {
          const block = blocks.shift()!
          yield* isBegun ? free(block) : freeOwn(block, thread)
        }
      }
    }
  }

  return {
    memory: heap.cells,
    threads: threads.map(perform),
    check: () => {
      heap.check()
      if (fits(program)) assert.equal(heap.requestsRefusedAsFull, 0, 'a heap with room was taken for full')
      const left = [...first, ...held.flat()]
      assert.ok(freedTwice || heap.liveBlocks === left.length, 'blocks are lost')
      for (const block of left) sequentially(free(block))
      heap.check()
      assert.equal(heap.liveBlocks, 0)
      assert.equal(heap.doubleFrees, frees - taken, 'each block is freed once, and each other free is counted')
      // All free memory can be taken again as a whole.
      const [capacity] = size.capacities
      const all = Array.from({ length: size.superblocks }, () => sequentially(heap.allocate(0, 0, capacity)))
      assert.equal(all.flat().length, size.superblocks * capacity, 'memory is lost')
      assert.equal(sequentially(heap.allocate(0, 0, 1)).length, 0)
    },
  }
}

/** A larger program from a seed: threads that take and free in any order, and hold on to some. */
function randomRun(seed: number, rule: DeviceRule | null = null): ModelRun {
  const random = new Random(seed)
  const capacities = [1 + random.below(4), 1 + random.below(4)]
  const slots = 1 << random.below(2)
  const size = {
    superblocks: 1 + random.below(4),
    capacities,
    slots,
    batch: 1 << random.below(2),
    keeps: random.below(2) === 1,
  }
  const threads = Array.from({ length: 2 + random.below(3) }, () =>
    Array.from({ length: 2 + random.below(8) }, (): Deed => {
      const choice = random.below(11)
      if (choice === 10) return 'free together'
      if (choice < 3) return take(1 + random.below(4), random.below(2))
      if (choice < 4) return pass(random.below(4) || 'run')
      if (choice < 6) return 'free first'
      return (['free', 'free begun', 'free begun again', 'run'] as const)[choice - 6]
    }),
  )
  return runOf({ size, begun: random.below(4), threads }, rule)
}

/** Many threads that ask at once for half of a heap with few slots, as warps do in a small one. */
function crowdRun(rule: DeviceRule | null = null): ModelRun {
  const size = { superblocks: 15, capacities: [8], slots: 1, patience: 16, tries: 258 }
  const heap = new DeviceHeapModel(size, rule)
  let taken = 0
  function* perform(thread: number): Steps<void> {
    const blocks = yield* heap.allocate(thread, 0, 1)
    taken += blocks.length
  }
  const crowd = 60
  return {
    memory: heap.cells,
    threads: Array.from({ length: crowd }, (_, thread) => perform(thread)),
    check: () => {
      heap.check()
      assert.equal(taken, crowd, 'a heap that is half empty refused a request')
    },
  }
}

function bumpRun(sizes: readonly (readonly number[])[], grow: number | null, rule: BumpRule | null = null): ModelRun {
  const arena = new DeviceBumpModel(10, 16, rule)
  function* perform(mine: readonly number[]): Steps<void> {
    for (const size of mine) yield* arena.allocate(size)
  }
  const threads = sizes.map(perform)
  if (grow !== null) threads.push(arena.grow(grow))
  return { memory: arena.cells, threads, check: () => arena.check() }
}

function expectFine({ failure, complete }: Exploration, replay = ''): void {
  assert.equal(failure, null, `${failure?.message}\nschedule: ${failure?.schedule}\n${replay}`)
  assert.ok(complete)
}

describe('the heap of kernels', () => {
  for (const [name, program] of Object.entries(PROGRAMS)) {
    it(`${name}: every schedule with ${program.preemptions} preemptions`, t => {
      const result = explore(() => runOf(program), program.preemptions)
      t.diagnostic(`${result.runs} runs, ${result.steps} steps`)
      expectFine(result)
      assert.ok(result.runs > 100)
    })
  }

  for (const [name, program] of Object.entries(SMALLEST)) {
    it(`${name}: every schedule there is`, t => {
      const result = explore(() => runOf(program), Infinity)
      t.diagnostic(`${result.runs} runs, ${result.steps} steps`)
      expectFine(result)
      assert.ok(result.runs > 50)
    })
  }

  it('a crowd gets half of a heap, under random schedules', t => {
    const result = sample(() => crowdRun(), SEED, CROWDS)
    t.diagnostic(`${result.runs} runs, ${result.steps} steps`)
    expectFine(result)
  })

  it(`random programs under random schedules (DEVICE_SEED=${SEED} DEVICE_RUNS=${RUNS})`, t => {
    const result = sample(seed => randomRun(seed), SEED, RUNS)
    t.diagnostic(`${result.runs} runs, ${result.steps} steps`)
    expectFine(result, `DEVICE_SEED=${SEED + result.runs - 1} DEVICE_RUNS=1 node --test dist/proof/device-heap.test.js`)
  })
})

describe('the heap of kernels with a broken rule', () => {
  /** Each rule, with the program that notices when it is broken. */
  const noticing: Record<DeviceRule, string> = {
    'reserve before searching': 'a heap that is full',
    'a set bit is a block in use': 'a second free while the superblock changes its class',
    'maps lie outside the superblocks': 'a second free while the superblock is written over as part of a run',
    'clear the bit before raising the count': 'a heap that is full',
    'change tags by adding': 'an idle superblock that someone still knows',
    'list by compare-and-swap': 'frees into what is full, while others allocate',
    'give back only what is full as a whole': 'two threads and one superblock',
    'look again before leaving': 'frees into what is full, while others allocate',
    'look at the bit that a free clears': 'a block freed twice',
    'lower the count of the idle': 'two threads and one superblock',
    'look at each superblock before giving up': 'threads that hold what is not full, while others look',
    'give back what slots keep': 'superblocks that slots keep while another class needs them',
    'count batches that are not full': 'idle superblocks that are counted in batches',
    'raise by the bits that were set': 'a block that a group frees twice by one operation',
    'a fence before listing a new superblock': 'a superblock that another thread finds while it is new',
    'a fence before filling a slot': 'two threads and one superblock',
    'a fence behind the word of a run': 'a run that others free at once',
    'a fence before giving back': 'a block that one thread frees and another takes',
    'a fence before looking at a word without members': 'a superblock that another thread finds while it is new',
  }
  for (const [rule, name] of Object.entries(noticing) as [DeviceRule, string][]) {
    it(`${rule}: that it is not so is noticed in: ${name}`, t => {
      const program = PROGRAMS[name]
      const { failure, runs } = explore(() => runOf(program, rule), program.preemptions)
      assert.ok(failure !== null, `not noticed in ${runs} runs`)
      t.diagnostic(`run ${runs}: ${failure.message.split('\n')[0]}`)
    })
  }

  it('look at each superblock before giving up: that it is not so is noticed by a crowd', t => {
    const { failure, runs } = sample(() => crowdRun('look at each superblock before giving up'), SEED, CROWDS)
    assert.ok(failure !== null, `not noticed in ${runs} runs`)
    t.diagnostic(`run ${runs}: ${failure.message.split('\n')[0]}`)
  })
})

describe('the arena of kernels', () => {
  const cases: readonly (readonly [sizes: readonly (readonly number[])[], grow: number | null])[] = [
    [
      [
        [4, 4],
        [4, 2],
      ],
      null,
    ],
    [[[6], [6], [3]], null],
    [[[8, 1], [5]], 16],
    [[[9], [2, 2]], 14],
  ]
  for (const [sizes, grow] of cases) {
    it(`${JSON.stringify(sizes)}${grow === null ? '' : ` while the limit grows to ${grow}`}: every schedule`, t => {
      const result = explore(() => bumpRun(sizes, grow), Infinity)
      t.diagnostic(`${result.runs} runs`)
      expectFine(result)
    })
  }

  for (const rule of ['give back only the end', 'saturate at what the limit can reach'] as const) {
    it(`${rule}: that it is not so is noticed`, () => {
      const results = cases.map(([sizes, grow]) => explore(() => bumpRun(sizes, grow, rule), Infinity))
      assert.ok(results.some(({ failure }) => failure !== null))
    })
  }
})
