import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Context } from '../../../core/driver/context.js'
import { SimulatedDriver } from '../../../core/driver/simulated/simulated-driver.js'
import { Clocks } from '../../../core/order/clocks.js'
import { Stream } from '../../../core/order/stream.js'
import { CachingPool } from '../../../core/pool/caching/caching-pool.js'
import { parsePoolOptions } from '../../../core/pool/caching/options.js'
import { TestDevice } from '../../../core/pool/pool.fixture.js'
import { fallback } from '../../../core/pool/wrappers/fallback.js'
import { tagged } from '../../../core/pool/wrappers/tagged.js'
import { WRAPPERS, type Wrap, wrapperSuite } from '../../../core/pool/wrappers/wrapper.suite.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { BEFORE, framesOf, NEVER } from '../trace.js'
import { recorded } from './recorder.js'
import { allocation, eventsOf, failure, free, recordingSuite } from './recording.suite.js'

function openPool() {
  const driver = new SimulatedDriver()
  driver.cuInit()
  const clocks = new Clocks(Context.open(driver, 0))
  const stream = new Stream(clocks, 0, false)
  return new CachingPool(clocks, stream, parsePoolOptions({ maxPoolBytes: 8 * MiB }, 140 * 2 ** 30))
}

test('a recording is saved in a file, and all other places are refused by name', t => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-recorder-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const pool = recorded(openPool())
  pool.allocate(4096)
  const path = join(folder, 'run.pickle')
  const descriptor = openSync(join(folder, 'other'), 'w')
  t.after(() => closeSync(descriptor))
  for (const wrong of [undefined, null, '', descriptor, {}, 'a\0b']) {
    const message = /^save: path must name a file, not /
    assert.throws(() => pool.save(wrong as never), { name: 'TypeError', message })
  }
  assert.equal(readFileSync(join(folder, 'other'), 'utf8'), '')
  assert.throws(() => pool.save(folder), {
    name: 'PoolError',
    message: `save: ${folder} cannot be written (EISDIR); name a file in a folder that you may write to`,
  })
  assert.throws(() => pool.save(join(folder, 'no', 'run.pickle')), { name: 'PoolError', message: /\(ENOENT\)/ })
  pool.save(path)
  assert.deepEqual(readRecording(path), pool.trace(path))
})

/** A place for files, and the warnings of this process. */
function outOfMemoryFiles(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-recorder-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const warn = t.mock.method(process, 'emitWarning', () => {})
  return { folder, file: join(folder, 'oom.pickle'), warnings: () => warn.mock.calls.map(call => call.arguments[0]) }
}

const FULL = { name: 'OutOfMemoryError', message: /^no room for/ }

test('an out of memory writes the last events to a file, and only one that is thrown', t => {
  const { folder, file, warnings } = outOfMemoryFiles(t)
  const pool = recorded(openPool(), { last: 6, file })
  const held = pool.allocate(4 * MiB)
  for (let round = 0; round < 10; round++) pool.allocate(4096).free()
  assert.equal(pool.tryAllocate(16 * MiB), null)
  assert.throws(() => pool.allocate(0.5), { name: 'RangeError' })
  assert.deepEqual(readdirSync(folder), [])
  assert.throws(() => pool.allocate(7 * MiB), FULL)
  const read = readRecording(file)
  assert.deepEqual(read, pool.trace(file))
  const round = [allocation(4096), ...free(4096)]
  assert.deepEqual(eventsOf(read), [...round, ...round, failure(16 * MiB), failure(7 * MiB)].slice(-6))
  assert.deepEqual([read.events, read.dropped, pool.events], [6, 27, 33])
  const before = read.blocks.bytes.indexOf(held.byteLength)
  assert.deepEqual([read.blocks.allocatedAt[before], read.blocks.freeRequestedAt[before]], [BEFORE, NEVER])
  assert.deepEqual(warnings(), [])
})

test('a list of sizes that finds no room writes the file, too', t => {
  const { file } = outOfMemoryFiles(t)
  const pool = recorded(openPool(), { file })
  assert.throws(() => pool.allocateMany([4096, 16 * MiB]), { name: 'OutOfMemoryError', message: /^allocateMany: / })
  assert.deepEqual(eventsOf(readRecording(file)), [allocation(4096), failure(16 * MiB)])
})

test('the file is replaced at most once a minute', t => {
  const { file } = outOfMemoryFiles(t)
  let nowMs = 1000
  t.mock.method(performance, 'now', () => nowMs)
  const pool = recorded(openPool(), { last: 100, file })
  const failuresInFile = () => {
    assert.throws(() => pool.allocate(16 * MiB), FULL)
    return readRecording(file).events
  }
  const seen = [0, 59_999, 1, 30_000, 30_000].map(ms => {
    nowMs += ms
    return failuresInFile()
  })
  assert.deepEqual(seen, [1, 1, 3, 3, 5])
})

test('a file that cannot be written is a warning, and the error is that of the pool', t => {
  const { folder, warnings } = outOfMemoryFiles(t)
  const file = join(folder, 'no', 'oom.pickle')
  const pool = recorded(openPool(), { last: 100, file })
  assert.throws(() => pool.allocate(16 * MiB), FULL)
  assert.throws(() => pool.allocate(16 * MiB), FULL)
  assert.deepEqual(warnings(), [
    `recorded: the recording of an out of memory is lost: save: ${file} cannot be written (ENOENT); name a file in a ` +
      'folder that you may write to',
  ])
  pool.allocate(4096).free()
})

test('a bad number of events, and a bad file, are refused', () => {
  const refuse = (options: object, name: string, message: RegExp) =>
    assert.throws(() => recorded(openPool(), options), { name, message })
  for (const last of [0, -1, 0.5, Number.NaN, -Infinity, 2_000_001, 2 ** 53])
    refuse({ last }, 'RangeError', /^recorded: last must be 1 to 2000000 events, not /)
  for (const last of ['100', null, 100n, {}]) refuse({ last }, 'TypeError', /^recorded: last must be a number, not /)
  for (const file of ['', 'a\0b', 5, null, {}, new URL('file:///tmp/x')])
    refuse({ file }, 'TypeError', /^recorded: file must name a file, not /)
  refuse({ lasts: 5 }, 'TypeError', /unknown option 'lasts'.*did you mean last\?/)
})

test('a recording stays the same as a PyTorch snapshot', () => {
  const pool = recorded(openPool(), { stacks: true })
  for (let round = 0; round < 3; round++) pool.allocate(4096 * (round + 1)).free()
  const trace = pool.trace()
  const read = readRecording(pickleSnapshot(trace), { name: 'again' })
  assert.deepEqual(eventsOf(read), eventsOf(trace))
  const [innermost] = framesOf(read, 0)
  assert.match(innermost.filename, /recorder\.test\.js$/, 'the stack begins at the caller')
})

for (const last of [Infinity, 1000]) {
  recordingSuite(`recorded() of ${last} events`, (upstream, stacks = false) => {
    const pool = recorded(upstream, { stacks, last })
    return { pool, end: () => pool.trace() }
  })
}

test('a recording counts its events', () => {
  const arena = new TestDevice().createArenaPool({ bytes: MiB })
  const pool = recorded(arena)
  pool.allocate(1000)
  arena.reset()
  assert.equal(pool.events, 3)
})

test('a snapshot of a recording has the sizes that the pool granted, and the tags', () => {
  const tags = tagged(openPool())
  const pool = recorded(tags)
  tags.inScope('weights', () => pool.allocate(300))
  const trace = readRecording(pickleSnapshot(pool.trace()), { name: 'again' })
  assert.deepEqual([trace.blocks.grantedBytes[0], trace.tags[trace.blocks.tag[0]]], [512, 'weights'])
})

const recorderOf =
  (last: number): Wrap =>
  upstream => {
    const pool = recorded(upstream, { last })
    const held = () => {
      const { blocks } = pool.trace()
      const live = blocks.bytes.filter((_, block) => blocks.freeCompletedAt[block] === NEVER)
      return { bytes: live.reduce((sum, bytes) => sum + bytes, 0), buffers: live.length }
    }
    return { pool, held }
  }
const recorder = recorderOf(Infinity)

wrapperSuite('recorded', [recorder])
// Blocks that are live at the oldest of four events are kept, so the counts are those of a whole recording.
wrapperSuite('recorded, of the last events', [recorderOf(4)])
wrapperSuite('recorded, in recorded', [recorder, recorder])
for (const [name, wrap] of Object.entries(WRAPPERS)) {
  wrapperSuite(`recorded, in ${name}`, [recorder, wrap])
  wrapperSuite(`${name}, in recorded`, [wrap, recorder])
}

test('each line that allocates has a stack of its own, the same each time', () => {
  const pool = recorded(openPool(), { stacks: true })
  const here = () => pool.allocate(1000).free()
  for (let round = 0; round < 3; round++) {
    here()
    pool.tryAllocate(2000)!.free()
  }
  assert.equal(pool.tryAllocate(16 * MiB), null)
  const trace = pool.trace()
  const lines = Array.from({ length: trace.events }, (_, event) => framesOf(trace, event)).filter(
    ({ length }) => length > 0,
  )
  const [first, second, third] = [lines[0][0].line, lines[1][0].line, lines[6][0].line]
  assert.deepEqual(
    lines.map(([{ line }]) => line),
    [first, second, first, second, first, second, third],
  )
  assert.equal(new Set([first, second, third]).size, 3)
  assert.equal(lines[0][0].name, 'here')
})

test('a stack has 1 frame less than an error', () => {
  const pool = recorded(openPool(), { stacks: true })
  const deep = (calls: number): void => (calls > 0 ? deep(calls - 1) : pool.allocate(1000).free())
  deep(Error.stackTraceLimit)
  assert.equal(framesOf(pool.trace(), 0).length, Error.stackTraceLimit - 1)
})

test('a stack has as many frames as the program asks for, and the program keeps its own settings', () => {
  const { stackTraceLimit, prepareStackTrace } = Error
  const prepare = () => ['not a text']
  Error.prepareStackTrace = prepare
  try {
    const pool = recorded(openPool(), { stacks: 2 })
    const deep = (depth: number): void => (depth === 0 ? pool.allocate(1000).free() : deep(depth - 1))
    deep(5)
    assert.equal(Error.prepareStackTrace, prepare)
    const frames = framesOf(pool.trace(), 0)
    assert.deepEqual(
      frames.map(({ name }) => name),
      ['deep', 'deep'],
    )
    assert.match(frames[0].filename, /recorder\.test\.js$/)
  } finally {
    Error.prepareStackTrace = prepareStackTrace
  }
  assert.equal(Error.stackTraceLimit, stackTraceLimit)
})

test('requests below stackMinBytes have no stack, and larger ones have all of it', () => {
  const pool = recorded(openPool(), { stacks: true, stackMinBytes: 2000 })
  for (const bytes of [1999, 2000, 4000]) pool.allocate(bytes)
  assert.equal(pool.tryAllocate(16 * MiB), null)
  const trace = pool.trace()
  const names = [0, 1, 2, 3].map(
    event => framesOf(trace, event).map(({ filename }) => /recorder\.test/.test(filename))[0],
  )
  assert.deepEqual(names, [undefined, true, true, true])
})

test('a bad stackMinBytes is refused, and one without stacks', () => {
  for (const stackMinBytes of [-1, 0.5, Number.NaN]) {
    assert.throws(() => recorded(openPool(), { stacks: true, stackMinBytes }), {
      name: 'RangeError',
      message: /^recorded: stackMinBytes must be a whole number of bytes/,
    })
  }
  assert.throws(() => recorded(openPool(), { stackMinBytes: 1 * MiB }), {
    name: 'TypeError',
    message: /^recorded: stackMinBytes needs stacks/,
  })
})

test('stacks are refused beyond their bounds', () => {
  for (const stacks of [0, 1.5, 201, Number.NaN]) {
    assert.throws(() => recorded(openPool(), { stacks }), {
      name: 'RangeError',
      message: /^recorded: stacks must be 1 to/,
    })
  }
  assert.throws(() => recorded(openPool(), { stacks: 'yes' as never }), {
    name: 'TypeError',
    message: /^recorded: stacks/,
  })
})

test('a block that was freed by its address ends where the address is handed out again', () => {
  const upstream = openPool()
  const pool = recorded(upstream)
  const { ptr } = pool.allocate(1000)
  upstream.deallocate(ptr)
  const again = pool.allocate(1010)
  assert.equal(again.ptr, ptr)
  again.free()
  assert.deepEqual(eventsOf(pool.trace()), [allocation(1000), ...free(1000), allocation(1010), ...free(1010)])
})

test('a reset does not end the block after one that was freed by its address', () => {
  const device = new TestDevice()
  const [upstream, arena] = [device.createPool(), device.createArenaPool({ bytes: MiB })]
  const pool = recorded(fallback(upstream, arena))
  const { ptr } = pool.allocate(1000)
  upstream.deallocate(ptr)
  const again = pool.allocate(1010)
  assert.equal(again.ptr, ptr)
  arena.reset()
  pool.allocate(3000)
  again.free()
  const { bytes, freeRequestedAt } = pool.trace().blocks
  assert.deepEqual([...bytes], [1000, 1010, 3000])
  assert.deepEqual([...freeRequestedAt], [1, 5, NEVER])
})

test('a failed request is on the default stream of its pool', () => {
  const { clocks } = openPool()
  const stream = Stream.create(clocks)
  const pool = recorded(new CachingPool(clocks, stream, parsePoolOptions({ maxPoolBytes: 8 * MiB }, 140 * 2 ** 30)))
  pool.allocate(1000).free()
  assert.equal(pool.tryAllocate(16 * MiB), null)
  assert.deepEqual(pool.trace().streams, [stream.handle])
})
