// The graph groups that one thread of a shared pool uses: those that it has made or attached, and their captures here.

import { WrongTypeError } from '../../../base/argument-errors.js'
import { describe } from '../../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../../base/errors.js'
import type { Context } from '../../../driver/context.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Capture } from '../../../order/capture.js'
import type { Clocks } from '../../../order/clocks.js'
import type { Stream } from '../../../order/stream.js'
import { DeviceBuffer } from '../../buffer.js'
import { GraphGroup, type GroupPool } from '../../caching/captures/graph-group.js'
import type { GroupConfig } from '../../caching/captures/graph-groups.js'
import { GroupCaptures, type SharedGraphGroup } from '../../caching/captures/group-captures.js'
import { closedGroup } from '../../caching/captures/group-errors.js'
import { labelOfBuffer } from '../../labels.js'
import type { ServerClient } from '../server-client.js'
import type { SharedLiveBlock } from '../shared-report.js'
import type { SharedState } from '../shared-state.js'
import { CapturedBlock } from './captured-block.js'
import { GroupClient, type PoolOfGroup } from './group-client.js'
import type { GroupName } from './group-question.js'

/** The pool, as its groups in this thread use it. */
interface PoolOfGroups extends PoolOfGroup {
  readonly context: Context
  allocate(bytes: number, stream: Stream): DeviceBuffer
  release(buffer: DeviceBuffer, stream?: Stream): void
  reachableFrom(context: Context): boolean
}

/** A group, as this thread knows it. */
interface KnownGroup {
  readonly client: GroupClient
  readonly captures: GroupCaptures
  readonly group: GraphGroup
}

export class SharedGroups implements GroupPool {
  readonly isGuarded = false
  readonly servesCaptures = true
  readonly context: Context
  readonly clocks: Clocks
  /** the live buffers of this thread's captures */
  readonly blocks = new Set<CapturedBlock>()
  /** by number */
  private readonly known = new Map<number, KnownGroup>()

  constructor(
    /** the pool that hands buffers out */
    readonly owner: PoolOfGroups,
    private readonly server: ServerClient,
    private readonly state: SharedState,
    /** the number of the pool in its descriptors */
    private readonly number: number,
    /** the error for scratch that there is no room for */
    private readonly noRoom: (bytes: number) => OutOfMemoryError,
  ) {
    this.context = owner.context
    this.clocks = owner.clocks
  }

  create(config: GroupConfig): GraphGroup {
    const name = this.server.ask({ ask: 'groupCreate', config }) as GroupName
    return this.open({ pool: this.number, ...name, refuses: config.refuses, poison: config.poison })
  }

  /** The group of a descriptor. Throws TypeError, or PoolError for a closed group or one of another pool. */
  attach(shared: SharedGraphGroup): GraphGroup {
    const { pool, place, group } = shared ?? {}
    if (![pool, place, group].every(Number.isInteger)) {
      throw new WrongTypeError(`attachGraphGroup: shared must come from group.share(), not be ${describe(shared)}`)
    }
    if (pool !== this.number) {
      throw new PoolError('attachGraphGroup: the group is of another pool; call attachGraphGroup of that one')
    }
    if (!this.state.groupTable.isOpen(place, group)) throw closedGroup('attachGraphGroup')
    return this.known.get(group)?.group ?? this.open(shared)
  }

  /**
   * A buffer for captured work; null without memory. Throws PoolError for a capture outside of the pool's groups.
   */
  take(bytes: number, units: number, alignUnits: number, stream: Stream): DeviceBuffer | null {
    const capture = stream.capture!
    for (const { client, captures } of this.known.values()) {
      if (captures.capture !== capture) continue
      const block = client.take(capture, units, alignUnits, stream.lastSlot, captures.nextUse)
      return block === null ? null : new DeviceBuffer(new CapturedBlock(this, client, capture, stream, block, bytes), 0)
    }
    throw new PoolError(
      'allocate: a pool that threads share serves a captured stream in a graph group alone; capture it by ' +
        'pool.createGraphGroup(), or use a pool of this thread',
      'ERR_STREAM_CAPTURED',
    )
  }

  /** The number of the group of a capture of this thread; 0 for none. */
  groupOf(capture: Capture): number {
    for (const [number, { captures }] of this.known) if (captures.capture === capture) return number
    return 0
  }

  /** The live buffer of this thread at an address; null for none. */
  blockAt(ptr: number): CapturedBlock | null {
    for (const block of this.blocks) if (block.address === ptr && block.isLive()) return block
    return null
  }

  /** The live buffers of this thread. `thread` is its number for people. */
  live(thread: number): SharedLiveBlock[] {
    const live = [...this.blocks].filter(block => block.isLive())
    return live.map(block => ({
      ptr: block.address,
      byteLength: block.bytes,
      blockBytes: Math.ceil(block.bytes / UNIT_BYTES) * UNIT_BYTES,
      stream: block.stream.closed ? null : block.stream.handle,
      label: labelOfBuffer({ record: block.record, tag: 0, allocation: block }),
      thread,
    }))
  }

  /** Whether the limit of a group has refused the request that an error is made for. */
  get isFull(): boolean {
    for (const { client } of this.known.values()) if (client.isFull) return true
    return false
  }

  /** This thread leaves the pool: the next launches of other threads wait for the work that uses its buffers. */
  announceUses(): void {
    for (const block of this.blocks) block.announceUses()
  }

  allocate(bytes: number, stream: Stream): DeviceBuffer {
    return this.owner.allocate(bytes, stream)
  }

  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.owner.release(buffer, stream)
  }

  reachableFrom(context: Context): boolean {
    return this.owner.reachableFrom(context)
  }

  change<R>(_call: string, work: () => R): R {
    return work()
  }

  checkUse(): void {}

  checkOpen(call: string): void {
    this.owner.checkOpen(call)
  }

  private open(shared: SharedGraphGroup): GraphGroup {
    for (const [number, { client }] of this.known) if (client.closed) this.known.delete(number)
    const client = new GroupClient(this.owner, this.server, this.state, shared)
    const captures = new GroupCaptures(client, capture => capture.holdings.add(client.holdingOf(capture)), shared)
    const group = new GraphGroup(this, captures, this.noRoom)
    this.known.set(shared.group, { client, captures, group })
    return group
  }
}
