import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { programReleases } from '../pytorch/program-releases.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder, type TraceOrigin } from '../trace-builder.js'
import { giveBacksOf, hasRetries } from './give-backs.js'

type Event = readonly [action: number, mebibytes: number, ...stack: string[]]

/** Events one after another, each at an address of its own but for releases, which give back the oldest segments. */
function recorded(events: readonly Event[], origin: Partial<TraceOrigin> = {}): Trace {
  const builder = new TraceBuilder()
  const segments: number[] = []
  events.forEach(([action, mebibytes, ...names], i) => {
    const stack = builder.stacks.number(names.map(name => builder.stacks.entry('a.py', i, name)))
    const isGivenBack = action === Action.segmentFree
    const address = isGivenBack ? segments.shift()! : (i + 1) * 2 ** 30
    if (action === Action.segmentAlloc) segments.push(address)
    builder.add(action, address, mebibytes * MiB, 0, i, stack)
  })
  return builder.build({ file: 'built', settings: '', ...origin })
}

const { alloc, segmentAlloc, segmentFree, outOfMemory, snapshot } = Action
const TAKEN: readonly Event[] = [
  [segmentAlloc, 20],
  [segmentAlloc, 40],
]

test('a stack with empty_cache says that the program gave memory back, whatever follows', () => {
  const trace = recorded([
    ...TAKEN,
    [segmentFree, 20, 'empty_cache', 'train'],
    [segmentAlloc, 8, 'grow'],
    [alloc, 8, 'grow'],
    [segmentFree, 40, 'torch::cuda::emptyCacheless', 'forward'],
    [segmentAlloc, 100, 'forward'],
    [alloc, 100, 'forward'],
  ])
  assert.deepEqual(giveBacksOf(trace), [
    {
      by: 'allocator',
      inferred: false,
      times: 1,
      bytes: 40 * MiB,
      sites: [{ site: 'a.py:5 forward', times: 1, bytes: 40 * MiB }],
    },
    {
      by: 'program',
      inferred: false,
      times: 1,
      bytes: 20 * MiB,
      sites: [{ site: 'a.py:2 empty_cache', times: 1, bytes: 20 * MiB }],
    },
  ])
})

test('models learn from the stack where the program gave memory back, whatever the next request needs', () => {
  const next: readonly Event[] = [
    [segmentAlloc, 100],
    [alloc, 100, 'whole'],
  ]
  const releases = (name: string) => recorded([...TAKEN, [segmentFree, 20, name], [segmentFree, 40, name], ...next])
  assert.deepEqual([...programReleases(releases('empty_cache'))], [2])
  assert.deepEqual([...programReleases(releases('whole'))], [])
  const malloc = 'c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)'
  const unneeded = recorded([...TAKEN, [segmentFree, 20, malloc, 'forward'], [alloc, 1, 'forward']])
  assert.deepEqual([[...programReleases(unneeded)], hasRetries(unneeded)], [[], true])
  assert.deepEqual([hasRetries(releases('empty_cache')), hasRetries(releases('whole'))], [false, true])
})

test('without a stack of its own, memory that the allocator gave back is named by the request', () => {
  const trace = recorded([...TAKEN, [segmentFree, 20], [segmentFree, 40], [segmentAlloc, 100], [alloc, 100, 'whole']])
  assert.deepEqual(giveBacksOf(trace), [
    {
      by: 'allocator',
      inferred: true,
      times: 1,
      bytes: 60 * MiB,
      sites: [{ site: 'a.py:5 whole', times: 1, bytes: 60 * MiB }],
    },
  ])
})

test("cuDNN's benchmark empties the cache below a line that does not", () => {
  const trace = recorded([...TAKEN, [segmentFree, 20, 'forward'], [alloc, 1, 'forward']])
  assert.equal(giveBacksOf(trace)[0].by, 'program')
})

test('what no request needs, or one that obtains nothing, the program gave back', () => {
  for (const next of [[[snapshot, 0]], [[alloc, 1, 'small']], []] as Event[][]) {
    const found = giveBacksOf(recorded([...TAKEN, [segmentFree, 20], ...next]))
    assert.deepEqual(
      found.map(({ by, sites }) => [by, sites]),
      [['program', [{ site: null, times: 1, bytes: 20 * MiB }]]],
    )
  }
})

test('two releases for one request are one time', () => {
  const trace = recorded([
    ...TAKEN,
    [segmentFree, 20],
    [segmentAlloc, 2],
    [segmentFree, 40],
    [segmentAlloc, 100],
    [alloc, 100, 'whole'],
  ])
  assert.deepEqual(
    giveBacksOf(trace).map(({ by, times, bytes }) => [by, times, bytes]),
    [['allocator', 1, 60 * MiB]],
  )
})

test('a release before a failed request is the allocator’s', () => {
  const [found] = giveBacksOf(recorded([...TAKEN, [segmentFree, 20], [outOfMemory, 500, 'whole']]))
  assert.deepEqual([found.by, found.inferred], ['allocator', false])
})

test('a release that the next request did not need is the program’s, unless PyTorch collects below its limit', () => {
  const builder = new TraceBuilder()
  const add = (action: number, mebibytes: number, index: number) =>
    builder.add(action, index * 2 ** 30, mebibytes * MiB, 0, builder.events)
  for (const index of [1, 2]) {
    add(segmentAlloc, 20 * index, index)
    add(alloc, 20 * index, index)
  }
  for (const index of [1, 2]) {
    add(Action.freeRequested, 20 * index, index)
    add(Action.freeCompleted, 20 * index, index)
  }
  for (const index of [1, 2]) add(segmentFree, 20 * index, index)
  add(segmentAlloc, 20, 3)
  add(alloc, 4, 3)
  const byOf = (origin: Partial<TraceOrigin>) => giveBacksOf(builder.build({ file: 'built', ...origin }))[0].by
  assert.equal(byOf({ settings: '' }), 'program')
  assert.equal(byOf({ settings: 'garbage_collection_threshold:0.6' }), 'allocator')
  assert.equal(byOf({ settings: '', recorder: 'RMM' }), null)
})

test('a recording without releases, or without events, has none', () => {
  assert.deepEqual(giveBacksOf(recorded(TAKEN)), [])
  assert.deepEqual(giveBacksOf(recorded([])), [])
})
