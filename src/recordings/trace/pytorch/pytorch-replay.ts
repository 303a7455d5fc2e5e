// PyTorch's policy over a recorded trace, with its default segments or with expandable ones. The policy itself
// decides between reuse and new memory. The recording supplies only the address of a new segment, and when PyTorch
// gave memory back: after an out of memory, or on request. A request that failed in the recording is made again only
// with the option `failedFrom`, because blocks after it get other addresses then.
//
// A recording made with other settings has no addresses for the policy. Where it gave memory back, the policy gives
// back all it can, as PyTorch does then. With the option `programReleases` the policy gives memory back where it
// decides to, and where the program asked for it.
//
// The policy keeps the free memory of a private pool until the recording gives some back after the last request of the
// pool. Nothing uses the pool then: its graphs are destroyed.

import type { LatencyMeter } from '../latency.js'
import { type Pace, paceOf } from '../pace.js'
import { DisjointRanges } from '../placements/disjoint-ranges.js'
import type { PlacementCollector } from '../placements/placements.js'
import type { ReplayRound } from '../replay-result.js'
import { sumOf } from '../run-figures.js'
import { Action, BEFORE, type Frame, framesOf, NEVER, type Trace } from '../trace.js'
import { initialSegments } from './initial-blocks.js'
import { ExpandablePolicy } from './model/expandable-policy.js'
import type { PlacementPolicy, PolicyBlock } from './model/policy-blocks.js'
import { PytorchPolicy } from './model/pytorch-policy.js'
import { formatPytorchSettings, type PytorchSettings } from './model/pytorch-settings.js'
import { recordedPytorchSettings } from './recorded-settings.js'

interface PytorchResult {
  readonly peakRequestedBytes: number
  /** the bytes of live blocks as the policy rounds and splits them: PyTorch's own allocated_bytes.all.peak */
  readonly peakGrantedBytes: number
  readonly peakReservedBytes: number
  /** how many alloc events got the recorded address; null if the recording's addresses come from another policy */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  /** after how many of the alloc events the policy had reserved as much as PyTorch; null as `placement` */
  readonly reservedAlike: number | null
  /** how often all free memory was given back for a request: PyTorch's num_alloc_retries */
  readonly retries: number
  readonly deviceCalls: Readonly<Record<string, number>>
  /** modelled seconds of these calls */
  readonly modelledDeviceSeconds: number | null
  readonly rounds: readonly ReplayRound[]
  /** alloc events that got no block, which happens only with a capacity */
  readonly failures: number
  readonly firstFailure: {
    readonly event: number
    readonly bytes: number
    /** the stream's handle */
    readonly stream: number
    readonly frames: readonly Frame[]
  } | null
}

interface PytorchReplayOptions {
  /** how often to go through the trace; default 1. Blocks live at the end of a round are freed. */
  readonly repeat?: number
  /** times each call */
  readonly meter?: LatencyMeter | null
  /** PyTorch's settings; default its defaults */
  readonly settings?: PytorchSettings
  /** collects where blocks are, in the first round */
  readonly collector?: PlacementCollector | null
  /** the most bytes to obtain from the device; default no limit */
  readonly capacityBytes?: number
  /** the program's own limit, as torch.cuda.set_per_process_memory_fraction sets it; default none */
  readonly limitBytes?: number
  /** where the program gave memory back; the policy then ignores other recorded releases; default: it follows all */
  readonly programReleases?: ReadonlySet<number>
  /** called before the first event of each run of events that give memory back */
  readonly onGiveBack?: (event: number, policy: PlacementPolicy) => void
  /** from this event on, requests that failed in the recording are made, too, and freed at once; default none */
  readonly failedFrom?: number
  /** whether to stop at the first failure; default false */
  readonly stopsAtFailure?: boolean
}

/** Replays `trace` on the policy. */
export function replayPytorchPolicy(trace: Trace, options: PytorchReplayOptions = {}): PytorchResult {
  return new Replay(trace, options).run()
}

interface Range {
  readonly address: number
  readonly bytes: number
}

class Replay {
  private readonly policy: PlacementPolicy
  private readonly pace: Pace
  /** whether the recording was made with the policy's settings */
  private readonly ownSegments: boolean
  /** whether the policy may follow the recorded addresses: only in the first round */
  private followsAddresses: boolean
  private readonly expandable: boolean
  /** by block number; null for a block that is not live */
  private readonly held: (PolicyBlock | null)[]
  /** segments that the recording obtained for the next allocation */
  private readonly offered: Range[] = []
  /** segments that the recording gave back and the policy still uses */
  private readonly retained = new DisjointRanges<Range>((_, from, to) => ({ address: from, bytes: to - from }))
  private requestedBytes = 0
  private grantedBytes = 0
  private peakRequestedBytes = 0
  private peakGrantedBytes = 0
  private exact = 0
  /** whether every block so far has the recorded address */
  private isExact: boolean
  /** bytes that PyTorch had reserved after the events so far */
  private recordedBytes = 0
  private reservedAlike = 0
  /** by the first event of the releases which show it: the private pools that nothing uses any more */
  private readonly unusedFrom: ReadonlyMap<number, readonly number[]>
  /** freed blocks that another stream still uses */
  private readonly pending = new Set<number>()
  private readonly rounds: ReplayRound[] = []
  private failures = 0
  private firstFailure: PytorchResult['firstFailure'] = null

  constructor(
    private readonly trace: Trace,
    private readonly options: PytorchReplayOptions,
  ) {
    const { settings = {}, capacityBytes = Infinity, limitBytes = Infinity } = options
    this.expandable = settings.expandableSegments ?? false
    const policyOptions = { settings, capacityBytes, limitBytes, onSynchronize: () => this.completePending() }
    this.policy = this.expandable ? new ExpandablePolicy(policyOptions) : new PytorchPolicy(policyOptions)
    this.policy.watcher = options.collector ?? null
    this.ownSegments = hasSegmentsOf(this.expandable, trace) && isOwn(settings, trace)
    this.recordedBytes = trace.initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
    this.isExact = this.followsAddresses = this.ownSegments
    this.pace = paceOf(trace)
    this.held = new Array(trace.blocks.count).fill(null)
    this.unusedFrom = poolsUnusedFrom(trace)
  }

  run(): PytorchResult {
    const { trace, rounds, options, pace } = this
    pace.begin(trace, `pytorch:${formatPytorchSettings(options.settings ?? {})}`.replace(/:$/, ''))
    this.adoptInitial()
    this.policy.driver.take()
    for (let round = 0; round < (options.repeat ?? 1); round++) {
      if (round > 0) this.followsAddresses = this.isExact = false
      this.allocateInitial()
      if (round === 0) this.policy.driver.take()
      for (let event = 0; event < trace.events && !this.hasStopped; event++) {
        this.apply(event)
        options.collector?.after(event, this.policy.reservedBytes)
        pace.step()
      }
      options.collector?.stop()
      this.endRound()
    }
    pace.end()
    const { allocations } = trace
    return {
      peakRequestedBytes: this.peakRequestedBytes,
      peakGrantedBytes: this.peakGrantedBytes,
      peakReservedBytes: rounds.reduce((peak, round) => Math.max(peak, round.peakReservedBytes), 0),
      placement: this.ownSegments ? { allocations, exact: this.exact } : null,
      reservedAlike: this.ownSegments ? this.reservedAlike : null,
      retries: this.policy.retries,
      ...sumOf(rounds),
      rounds,
      failures: this.failures,
      firstFailure: this.firstFailure,
    }
  }

  private get hasStopped(): boolean {
    return this.failures > 0 && this.options.stopsAtFailure === true
  }

  private apply(event: number): void {
    const { action, address, bytes, block } = this.trace
    switch (action[event]) {
      case Action.alloc:
        this.allocate(event, block[event])
        this.offered.length = 0
        if (this.policy.reservedBytes === this.recordedBytes && this.followsAddresses) this.reservedAlike++
        break
      case Action.freeRequested:
        this.countFree(block[event])
        this.pending.add(block[event])
        break
      case Action.freeCompleted:
        this.pending.delete(block[event])
        this.release(block[event])
        break
      case Action.segmentAlloc:
      case Action.segmentMap:
        this.recordedBytes += bytes[event]
        if (this.followsAddresses) this.offered.push({ address: address[event], bytes: bytes[event] })
        break
      case Action.segmentFree:
      case Action.segmentUnmap:
        this.recordedBytes -= bytes[event]
        this.giveBack(event)
        break
      case Action.outOfMemory:
        if (event >= (this.options.failedFrom ?? NEVER)) this.tryFailed(event)
        this.offered.length = 0
        break
    }
  }

  /** Follows a segment_free or segment_unmap event. */
  private giveBack(event: number): void {
    const { address, bytes } = this.trace
    const { programReleases, onGiveBack } = this.options
    const begins = beginsReleases(this.trace, event)
    if (begins) {
      for (const pool of this.unusedFrom.get(event) ?? []) this.policy.unusedPools.add(pool)
      onGiveBack?.(event, this.policy)
    }
    if (programReleases !== undefined) {
      if (programReleases.has(event)) this.policy.releaseFree()
    } else if (this.followsAddresses) {
      if (this.policy.releaseAt(address[event], bytes[event])) return
      this.retained.add({ address: address[event], bytes: bytes[event] })
    } else if (begins) this.policy.releaseFree()
  }

  private allocate(event: number, number: number): void {
    const { blocks, streams } = this.trace
    const stream = blocks.stream[number]
    const bytes = blocks.bytes[number]
    const pool = blocks.pool[number]
    const address = blocks.address[number]
    let granted = this.take(bytes, stream, pool)
    while (this.isExact && granted !== null && granted.address !== address && this.policy.reconsider(granted, bytes)) {
      granted = this.take(bytes, stream, pool)
    }
    this.held[number] = granted
    if (granted === null) {
      this.noteFailure(event, bytes, streams[stream])
      return
    }
    this.options.collector?.place(number, granted.address)
    if (event >= 0 && this.followsAddresses) {
      if (granted.address === address) this.exact++
      else this.isExact = false
    }
    if (blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted)
  }

  /** Makes a request that failed in the recording, and frees it at once. */
  private tryFailed(event: number): void {
    const { bytes, stream, streams, pool } = this.trace
    const granted = this.take(bytes[event], stream[event], pool[event])
    if (granted === null) {
      this.noteFailure(event, bytes[event], streams[stream[event]])
      return
    }
    this.isExact = false
    this.peakRequestedBytes = Math.max(this.peakRequestedBytes, this.requestedBytes + bytes[event])
    this.peakGrantedBytes = Math.max(this.peakGrantedBytes, this.grantedBytes + granted.bytes)
    this.policy.release(granted)
  }

  private noteFailure(event: number, bytes: number, stream: number): void {
    this.failures++
    this.firstFailure ??= { event, bytes, stream, frames: event === -1 ? [] : framesOf(this.trace, event) }
  }

  private take(bytes: number, stream: number, pool: number): PolicyBlock | null {
    const { meter } = this.options
    if (!meter) return this.policy.allocate(bytes, stream, pool, this.offeredBase)
    const start = performance.now()
    const granted = this.policy.allocate(bytes, stream, pool, this.offeredBase)
    meter.noteAllocation((performance.now() - start) * 1e6)
    return granted
  }

  /**
   * The address of a segment of this size, or of an expandable one, that the recording has just obtained, unless the
   * policy still has memory there.
   */
  private readonly offeredBase = (segmentBytes: number): number | undefined =>
    this.offered.find(
      ({ address, bytes }) =>
        (this.expandable || bytes === segmentBytes) &&
        !this.policy.holds(address) &&
        !this.retained.overlaps(address, address + bytes),
    )?.address

  private countLive(number: number, granted: PolicyBlock): void {
    this.requestedBytes += this.trace.blocks.bytes[number]
    this.grantedBytes += granted.bytes
    this.peakRequestedBytes = Math.max(this.peakRequestedBytes, this.requestedBytes)
    this.peakGrantedBytes = Math.max(this.peakGrantedBytes, this.grantedBytes)
  }

  private countFree(number: number): void {
    const granted = this.held[number]
    if (granted === null) return
    this.requestedBytes -= this.trace.blocks.bytes[number]
    this.grantedBytes -= granted.bytes
  }

  private release(number: number): void {
    const granted = this.held[number]
    if (granted === null) return
    this.held[number] = null
    const { meter } = this.options
    const start = meter ? performance.now() : 0
    this.policy.release(granted)
    meter?.noteFree((performance.now() - start) * 1e6)
  }

  /** Frees the blocks that other streams use, as if their work had completed. */
  private completePending(): void {
    for (const number of this.pending) this.release(number)
    this.pending.clear()
  }

  /** Adds the segments from before the first event with their blocks, if the recording has them. */
  private adoptInitial(): void {
    if (!this.ownSegments) return
    for (const { segment, numbers, used } of initialSegments(this.trace)) {
      const granted = this.policy.adoptSegment(segment.address, segment.bytes, segment.stream, used, segment.pool)
      numbers.forEach((number, i) => {
        this.held[number] = granted[i]
        this.options.collector?.place(number, granted[i].address)
        if (this.trace.blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted[i])
      })
    }
  }

  /** Allocates the other blocks from before the first event. */
  private allocateInitial(): void {
    for (let number = 0; number < this.trace.blocks.initial; number++) {
      if (this.held[number] === null) this.allocate(-1, number)
      this.pace.step()
    }
  }

  /** Frees what is live, and notes the figures of the round. */
  private endRound(): void {
    const { policy, held, rounds, pace } = this
    for (const [number, granted] of held.entries()) {
      if (granted !== null) policy.release(granted)
      held[number] = null
      pace.step()
    }
    this.pending.clear()
    policy.unusedPools.clear()
    this.requestedBytes = this.grantedBytes = 0
    const { calls: deviceCalls, seconds: modelledDeviceSeconds } = policy.driver.take()
    rounds.push({ peakReservedBytes: policy.peakReservedBytes, deviceCalls, modelledDeviceSeconds })
    policy.peakReservedBytes = policy.reservedBytes
  }
}

/** The private pools by the first event of the run of releases that gives back their memory after the last request. */
function poolsUnusedFrom(trace: Trace): Map<number, number[]> {
  const found = new Map<number, number>()
  if (trace.pools.length === 1) return new Map()
  const { action, pool } = trace
  let first = 0
  for (let event = 0; event < trace.events; event++) {
    const code = action[event]
    if (code === Action.alloc || code === Action.outOfMemory) found.delete(pool[event])
    if (code !== Action.segmentFree && code !== Action.segmentUnmap) continue
    if (beginsReleases(trace, event)) first = event
    if (pool[event] > 0 && !found.has(pool[event])) found.set(pool[event], first)
  }
  const byEvent = new Map<number, number[]>()
  for (const [number, event] of found) {
    const alike = byEvent.get(event)
    if (alike === undefined) byEvent.set(event, [number])
    else alike.push(number)
  }
  return byEvent
}

/** Whether a segment_free or segment_unmap event is the first of a run of its kind. */
function beginsReleases({ action }: Trace, event: number): boolean {
  return event === 0 || action[event] !== action[event - 1]
}

function isOwn(settings: PytorchSettings, trace: Trace): boolean {
  return formatPytorchSettings(settings) === formatPytorchSettings(recordedPytorchSettings(trace))
}

/** Whether the recorded addresses come from segments of the policy's kind: expandable ones, or others. */
function hasSegmentsOf(expandable: boolean, trace: Trace): boolean {
  if (trace.recordedPeakReservedBytes === null) return false
  if (trace.initialSegments.some(segment => segment.expandable !== expandable)) return false
  const others = expandable ? [Action.segmentAlloc, Action.segmentFree] : [Action.segmentMap, Action.segmentUnmap]
  return !others.some(action => trace.action.includes(action))
}
