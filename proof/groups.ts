// The graph groups of a program, as a careful user handles them. The library orders the launches of a group, and work
// with its outputs; the user orders all other work. This file knows which outputs are valid, and which launches need no
// inserted wait by the exact order.

import assert from 'node:assert/strict'
import { OutOfMemoryError, PoolError } from '../src/core/base/errors.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { CaptureMode, DeviceBuffer, GraphOutput, OutputLifetime, Stream } from '../src/index.js'
import type { Held, Recording, Sharing, Use } from './held.js'
import type { Machine } from './machine.js'
import type { Operation } from './operation.js'
import { assertAsleep } from './sleeps.js'

export class Groups<Point> {
  /** by name */
  readonly open = new Map<number, Sharing<Point>>()
  /** launches that came after all they must come after, by the exact order; and those that got no further wait */
  ordered = 0
  unwaited = 0

  constructor(
    private readonly machine: Machine<Point>,
    private readonly pools: readonly CachingPool[],
    private readonly held: ReadonlyMap<number, Held<Point>>,
  ) {}

  make({ group: name, pool: index, refuses, poison }: Operation & { do: 'make group' }): void {
    const pool = this.pools[index]
    const make = () => pool.createGraphGroup({ whenUnordered: refuses ? 'refuse' : 'wait', poison })
    if (pool.asleep) assertAsleep(make)
    else {
      const [group, sharing] = [make(), { pool: index, refuses, captures: 0, capture: null, graphs: 0 }]
      this.open.set(name, { ...sharing, group, latest: null, mayBeLost: false, pending: [], isExact: true })
    }
  }

  /** Carries out a call that changes the memory of a group. */
  change({ do: verb, group: name, ...operation }: Operation & { do: 'reserve group' | 'trim group' }): void {
    const sharing = this.open.get(name)
    if (sharing === undefined) return
    const { group, graphs, capture, pool } = sharing
    const isAsleep = this.pools[pool].asleep
    if (verb === 'trim group') {
      const isUsed = graphs > 0 || capture !== null || isAsleep
      const bytes = group.trim()
      if (isUsed) assert.equal(bytes, 0, 'memory that a graph uses is given back')
    } else if (isAsleep) assertAsleep(() => group.reserve(operation.bytes))
    else reserve(group, operation.bytes)
  }

  close(name: number): void {
    const sharing = this.open.get(name)
    if (sharing === undefined) return
    const { group } = sharing
    if (sharing.graphs > 0 || sharing.capture !== null) {
      assert.throws(() => group.close(), PoolError)
      return
    }
    try {
      group.close()
    } finally {
      if (group.closed) this.open.delete(name)
    }
  }

  /** Begins a capture; returns false if it must be, and is, refused. */
  begin({ group, capture, pool }: Sharing<Point>, stream: Stream, mode: CaptureMode): boolean {
    const begin = () => group.beginCapture(stream, mode)
    if (this.pools[pool].asleep) assertAsleep(begin)
    else if (capture !== null) assert.throws(begin, PoolError)
    else {
      begin()
      return true
    }
    return false
  }

  /** The output that an operation makes in a capture; null without memory. */
  output(recording: Recording<Point>, stream: Stream, bytes: number, lifetime: OutputLifetime): GraphOutput | null {
    const { group, pool } = recording.sharing!
    try {
      const output = group.allocateOutput(bytes, stream, lifetime)
      this.machine.granted(blockOf(output), this.pools[pool], stream, group, lifetime === 'own')
      if (lifetime === 'shared') recording.shared.push({ ptr: this.addressOf(output, pool), bytes })
      return output
    } catch (error) {
      if (error instanceof OutOfMemoryError) return null
      throw error
    }
  }

  /** The address of a buffer of a pool, without a use of it. */
  addressOf(buffer: DeviceBuffer, pool: number): number {
    return this.pools[pool].addressOfRecord(blockOf(buffer).record)
  }

  /**
   * Ends a capture. A buffer that is held where other graphs write is freed first: the capture could not end with it.
   */
  end(recording: Recording<Point>, free: (held: Held<Point>) => void): void {
    try {
      recording.graph = recording.origin.endCapture()
    } catch (error) {
      if (!(error instanceof PoolError) || !/is still held where earlier graphs/.test(error.message)) throw error
      assert.notEqual(recording.sharing, null)
      for (const held of this.pinnedBy(recording)) free(held)
      recording.graph = recording.origin.endCapture()
    }
  }

  /** A graph is about to be closed. Without one the pool gives the memory back when it needs that. */
  closing({ sharing }: Recording<Point>): void {
    if (sharing !== null && --sharing.graphs === 0) sharing.mayBeLost = true
  }

  /** The capture is over. The memory of shared outputs is scratch now, and held buffers have theirs to themselves. */
  ended(recording: Recording<Point>): void {
    const { sharing, shared, graph } = recording
    if (sharing === null) return
    sharing.capture = null
    if (graph !== null) sharing.graphs++
    for (const { ptr } of shared.splice(0)) this.machine.freed(ptr, [], null, 0)
    if (graph === null) return
    for (const { buffer, pool } of this.pinnedBy(recording)) this.machine.pinned(this.addressOf(buffer, pool))
  }

  private pinnedBy(recording: Recording<Point>): Held<Point>[] {
    const isPinned = ({ madeIn, output, sharing }: Held<Point>) =>
      madeIn === recording && sharing !== null && output === null
    return [...this.held.values()].filter(isPinned)
  }

  /** Whether the library must order a use of a buffer before the next launch of a group. */
  orders(sharing: Sharing<Point> | null, { output, sharing: own, buffer }: Held<Point>, use: Use<Point>): boolean {
    if (sharing === null) return false
    if (own === sharing && buffer.freed && !use.byGraph) return true
    if (sharing.refuses) return false
    return use.sharing === sharing || (own === sharing && output !== null && !use.byGraph)
  }

  /** Whether the library makes a use of a buffer, in `stream`, come after another one: a launch of its group. */
  follows({ output, sharing }: Held<Point>, use: Use<Point>, stream: Stream): boolean {
    return output !== null && !sharing!.refuses && use.sharing === sharing && stream.capture === null
  }

  /** Uses a buffer, unless its group refuses that, since the order is not known. */
  attempt({ output, sharing }: Held<Point>, use: () => void): void {
    try {
      use()
    } catch (error) {
      if (!isUnordered(error) || output === null || !sharing!.refuses) throw error
    }
  }

  /** Launches a graph; false if its group refuses that, since the order is not known. */
  launch(recording: Recording<Point>, stream: Stream): boolean {
    const sharing = recording.sharing!
    const isOrdered = sharing.isExact && sharing.pending.every(point => this.machine.comesBefore(point, stream))
    const { waits } = sharing.group.stats()
    if (isOrdered) this.ordered++
    try {
      recording.graph!.launch(stream)
    } catch (error) {
      if (isUnordered(error) && sharing.refuses) return false
      // It may have been submitted, or not.
      sharing.isExact = false
      sharing.mayBeLost = true
      if (isOrdered) this.ordered--
      throw error
    }
    if (isOrdered && sharing.group.stats().waits === waits) this.unwaited++
    sharing.latest = recording
    sharing.mayBeLost = false
    sharing.pending = [this.machine.pointOf(stream)]
    sharing.isExact = true
    return true
  }

  /** A buffer was used in work that runs. */
  used({ sharing, output }: Held<Point>, stream: Stream): void {
    if (sharing === null || output === null || stream.capture !== null) return
    sharing.pending.push(this.machine.pointOf(stream))
    if (stream.clocks !== this.machine.device.clocks) sharing.isExact = false // order of other devices is not followed
  }

  /**
   * Whether a use of a buffer must be refused, in work that runs or is captured: of an output that is not valid, or of
   * scratch whose capture made no graph.
   */
  isRefused(held: Held<Point>, recording: Recording<Point> | null): boolean {
    const { output, madeIn, sharing } = held
    if (output === null) return sharing !== null && madeIn!.capture.ended && madeIn!.graph === null
    if (!madeIn!.capture.ended) return recording === null || (output === 'shared' && recording !== madeIn)
    return output === 'shared' && (recording !== null || this.isStale(held))
  }

  /** Whether the contents of a shared output are gone, as the library says, too. */
  isStale({ buffer, madeIn, output, sharing, run }: Held<Point>): boolean {
    if (output !== 'shared') return false
    const { overwritten } = buffer as GraphOutput
    const { latest, mayBeLost } = sharing!
    if (latest !== madeIn) assert.ok(overwritten, 'an output that was overwritten counts as valid')
    else if (!mayBeLost) assert.ok(!overwritten, 'a valid output counts as overwritten')
    if (overwritten) run.uses = []
    return overwritten
  }

  /** The memory of a pool has gone and comes back without the contents of scratch. */
  slept(pool: CachingPool): void {
    for (const { sharing } of this.held.values()) {
      if (sharing !== null && this.pools[sharing.pool] === pool) sharing.latest = null
    }
    for (const sharing of this.open.values()) if (this.pools[sharing.pool] === pool) sharing.latest = null
  }

  /** What the groups' outputs add to the counters of a pool, beside the buffers that are held. */
  countsIn(index: number): { liveBuffers: number; requestedBytes: number } {
    const ofPool = [...this.open.values()].filter(({ pool }) => pool === index)
    const shared = ofPool.flatMap(({ capture }) => capture?.shared ?? [])
    return { liveBuffers: shared.length, requestedBytes: shared.reduce((sum, { bytes }) => sum + bytes, 0) }
  }

  check(): void {
    for (const { group, graphs } of this.open.values()) assert.equal(group.stats().graphs, graphs, 'graphs of a group')
  }

  finish(): void {
    for (const name of [...this.open.keys()]) this.close(name)
  }
}

function isUnordered(error: unknown): boolean {
  return error instanceof PoolError && /may run beside/.test(error.message)
}

/** The buffer whose memory an output is. */
export function blockOf(buffer: DeviceBuffer): DeviceBuffer {
  return buffer.record === -1 && 'overwritten' in buffer ? (buffer as GraphOutput).allocation['block'] : buffer
}

export function reserve(pool: { reserve(bytes: number): void }, bytes: number): void {
  try {
    pool.reserve(bytes)
  } catch (error) {
    if (!(error instanceof OutOfMemoryError)) throw error
  }
}
