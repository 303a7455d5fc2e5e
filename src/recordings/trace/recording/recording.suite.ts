// What every recording of a pool has, by `recorded()` or without a wrapper.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { OutOfMemoryError } from '../../../core/base/errors.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import { TestDevice } from '../../../core/pool/pool.fixture.js'
import type { Pool } from '../../../core/pool/pool.js'
import { tagged } from '../../../core/pool/wrappers/tagged.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { Action, framesOf, NEVER, type Trace } from '../trace.js'

/** Each event with its action and its bytes. */
export function eventsOf({ events, action, bytes }: Trace): number[][] {
  return Array.from({ length: events }, (_, event) => [action[event], bytes[event]])
}

export const allocation = (bytes: number): number[] => [Action.alloc, bytes]
export const failure = (bytes: number): number[] => [Action.outOfMemory, bytes]
export const free = (bytes: number): number[][] => [
  [Action.freeRequested, bytes],
  [Action.freeCompleted, bytes],
]

/** A recording of a pool: allocations of the program go through `pool`, and `end` ends it. */
interface Recording {
  readonly pool: Pool
  end(): Trace
}

/** `record` begins a recording, with call stacks if `stacks` is true. */
export function recordingSuite(name: string, record: (upstream: Pool, stacks?: boolean) => Recording): void {
  describe(`a recording by ${name}`, () => {
    let device: TestDevice
    beforeEach(() => {
      device = new TestDevice()
    })

    it('has allocations, frees and failed requests, and no call that the pool refuses', () => {
      const upstream = device.createPool({ maxPoolBytes: 8 * MiB })
      const { pool, end } = record(upstream)
      const first = pool.allocate(1000)
      const second = pool.tryAllocate(2 * MiB)!
      first.free()
      assert.throws(() => first.free(), { name: 'PoolError', message: /^free: the buffer was already freed/ })
      assert.throws(() => pool.allocate(-1), RangeError)
      assert.equal(pool.tryAllocate(16 * MiB), null)
      assert.throws(() => pool.allocate(32 * MiB), OutOfMemoryError)
      pool.free(second)
      const trace = end()
      assert.deepEqual(eventsOf(trace), [
        ...[allocation(1000), allocation(2 * MiB), ...free(1000)],
        ...[failure(16 * MiB), failure(32 * MiB), ...free(2 * MiB)],
      ])
      assert.equal(trace.peakRequestedBytes, 2 * MiB + 1000)
      assert.equal(upstream.stats().liveBuffers, 0)
    })

    it('has the stream, the call stack and the free memory of a failed request', () => {
      const stream = device.createStream()
      const { pool, end } = record(device.createPool({ maxPoolBytes: 8 * MiB }), true)
      assert.throws(() => pool.allocate(16 * MiB, stream), OutOfMemoryError)
      assert.equal(pool.tryAllocate(32 * MiB, stream), null)
      assert.throws(() => pool.allocate(64 * MiB), OutOfMemoryError)
      const trace = end()
      assert.deepEqual(eventsOf(trace), [failure(16 * MiB), failure(32 * MiB), failure(64 * MiB)])
      const handles = [...trace.stream].map(number => trace.streams[number])
      assert.deepEqual(handles, [stream.handle, stream.handle, 0])
      assert.deepEqual([...trace.address].map(Number.isNaN), [false, true, false])
      for (const event of [0, 1, 2]) assert.match(framesOf(trace, event)[0].filename, /recording\.suite\.js$/)
    })

    it('has the size that the pool granted, and the tag of a scope', () => {
      const tags = tagged(device.createPool())
      const { pool, end } = record(tags)
      pool.allocate(1000)
      tags.inScope('weights', () => pool.allocate(300))
      const { blocks, tags: names, dropped, complete } = end()
      assert.deepEqual([...blocks.grantedBytes], [1024, 512])
      const tagOf = [...blocks.tag].map(tag => names[tag])
      assert.deepEqual(tagOf, ['', 'weights'])
      assert.deepEqual([dropped, complete], [0, true])
    })

    it('names the memory of captures as PyTorch does, also in a file: by the group, or the capture', () => {
      const upstream = device.createPool()
      const stream = device.createStream()
      const { pool, end } = record(upstream)
      const groups = [upstream.createGraphGroup(), upstream.createGraphGroup()]
      const work = () => pool.allocate(1000, stream).free()
      const graphs = [...groups, groups[0]].map(group => group.capture(stream, work))
      for (let own = 0; own < 2; own++) {
        stream.beginCapture()
        work()
        graphs.push(stream.endCapture())
      }
      work()
      for (const graph of graphs) graph.close()
      const { blocks, pools, events } = readRecording(pickleSnapshot(end()))
      const [first, second] = groups.map(({ number }) => `0,${number}`)
      const names = [...blocks.pool].map(number => pools[number])
      assert.deepEqual([names.slice(0, 3), names.at(-1)], [[first, second, first], '0,0'])
      const [one, other] = names.slice(3).map(name => /^([1-9]\d*),0$/.exec(name)?.[1])
      assert.equal(Number(other), Number(one) + 1)
      assert.equal(events, 3 * names.length)
    })

    it('has a free that ends in the error of an observer', () => {
      const upstream = device.createPool({ releaseThresholdBytes: 0 })
      const { pool, end } = record(upstream)
      const buffer: DeviceBuffer = pool.allocate(12 * MiB) // too large to be cached
      const leaving = () => {
        throw new Error('the observer refuses')
      }
      const stop = upstream.observeSegments({ ready() {}, leaving })
      assert.throws(() => buffer.free(), { message: 'the observer refuses' })
      stop()
      assert.deepEqual(eventsOf(end()), [allocation(12 * MiB), ...free(12 * MiB)])
    })

    it('has a transfer to another thread as a free', () => {
      const { pool: shared, attach } = device.createSharedPool()
      const { pool, end } = record(shared)
      const buffer = pool.allocate(1024)
      attach().adopt(buffer.transfer()).free()
      assert.throws(() => buffer.transfer(), { name: 'PoolError', message: /^transfer: / })
      assert.deepEqual(eventsOf(end()), [allocation(1024), ...free(1024)])
    })

    it('has the frees of a reset, a rewind and a close of an arena, each before the next event', () => {
      const arena = device.createArenaPool({ bytes: MiB })
      const stream = device.createStream()
      const { pool, end } = record(arena)
      const kept = pool.allocate(1024)
      const mark = arena.mark()
      pool.allocate(2048, stream)
      arena.rewind(mark)
      pool.allocate(4096).free()
      kept.free()
      pool.allocate(8192)
      arena.reset()
      pool.allocate(512)
      arena.close()
      const trace = end()
      assert.deepEqual(eventsOf(trace), [
        ...[allocation(1024), allocation(2048), ...free(2048), allocation(4096), ...free(4096)],
        ...[...free(1024), allocation(8192), ...free(8192), allocation(512), ...free(512)],
      ])
      assert.equal(trace.streams[trace.stream[2]], stream.handle)
      assert.equal(trace.peakRequestedBytes, 8192)
      assert.ok(!trace.blocks.freeCompletedAt.includes(NEVER))
    })
  })
}
