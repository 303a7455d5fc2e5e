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

import { addTo } from '../groups.js'
import { paceOf } from '../pace.js'
import { DisjointRanges } from '../placements/disjoint-ranges.js'
import type { PlacementCollector } from '../placements/placements.js'
import { type PassOptions, type PassResult, ReplayPass } from '../replay-pass.js'
import type { ReplayRound } from '../replay-result.js'
import { sumOf } from '../run-figures.js'
import { Action, BEFORE, NEVER, type Trace } from '../trace.js'
import { initialSegments } from './initial-blocks.js'
import { ExpandablePolicy } from './model/expandable-policy.js'
import type { PlacementPolicy, PolicyBlock } from './model/policy-blocks.js'
import { PytorchPolicy } from './model/pytorch-policy.js'
import { formatPytorchSettings, type PytorchSettings } from './model/pytorch-settings.js'
import { recordedPytorchSettings } from './named-settings.js'

interface PytorchResult extends PassResult {
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
  /** of these, the seconds in the second half of the first round's events */
  readonly laterDeviceSeconds: number
  readonly rounds: readonly ReplayRound[]
}

/** The settings of a model, and what it may reserve. */
export interface ModelOptions {
  /** PyTorch's settings; default its defaults */
  readonly settings?: PytorchSettings
  /** the most bytes to obtain from the device; default no limit */
  readonly capacityBytes?: number
  /** the program's own limit, as torch.cuda.set_per_process_memory_fraction sets it; default none */
  readonly limitBytes?: number
  /** whether segments that no recording places lie below the ones before; default above */
  readonly segmentsFall?: boolean
  /** where the program gave memory back; the policy then ignores other recorded releases; default: it follows all */
  readonly programReleases?: ReadonlySet<number>
  /** called before the first event of each run of events that give memory back */
  readonly onGiveBack?: (event: number, policy: PlacementPolicy) => void
}

/** Requests that failed in the recording are made only with the option `failedFrom`. */
interface PytorchReplayOptions extends ModelOptions, Omit<PassOptions<PolicyBlock>, 'observer'> {
  /** collects where blocks are, in the first round */
  readonly collector?: PlacementCollector | null
}

/** Replays `trace` on the policy. */
export function replayPytorchPolicy(trace: Trace, options: PytorchReplayOptions = {}): PytorchResult {
  return new ModelPass(trace, options).result()
}

interface Range {
  readonly address: number
  readonly bytes: number
}

class ModelPass extends ReplayPass<PolicyBlock> {
  private readonly policy: PlacementPolicy
  /** whether the recording was made with the policy's settings */
  private readonly ownSegments: boolean
  /** whether the policy may follow the recorded addresses: only in the first round */
  private followsAddresses: boolean
  private readonly expandable: boolean
  /** segments that the recording obtained for the next allocation */
  private readonly offered: Range[] = []
  /** segments that the recording gave back and the policy still uses */
  private readonly retained = new DisjointRanges<Range>((_, from, to) => ({ address: from, bytes: to - from }))
  private isLastRound = false
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
  /** the driver's seconds before the middle of the first round */
  private earlySeconds = 0

  constructor(
    trace: Trace,
    private readonly options: PytorchReplayOptions,
  ) {
    const { settings = {}, capacityBytes = Infinity, limitBytes = Infinity, segmentsFall = false } = options
    super(trace, paceOf(trace), `pytorch:${formatPytorchSettings(settings)}`.replace(/:$/, ''))
    this.expandable = settings.expandableSegments ?? false
    const policyOptions = {
      settings,
      capacityBytes,
      limitBytes,
      segmentsFall,
      onSynchronize: () => this.completePending(),
    }
    this.policy = this.expandable ? new ExpandablePolicy(policyOptions) : new PytorchPolicy(policyOptions)
    this.policy.watcher = options.collector ?? null
    this.ownSegments = hasSegmentsOf(this.expandable, trace) && isOwn(settings, trace)
    this.recordedBytes = trace.initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
    this.isExact = this.followsAddresses = this.ownSegments
    this.unusedFrom = poolsUnusedFrom(trace)
  }

  result(): PytorchResult {
    const { options, policy, rounds } = this
    const observer = options.collector?.observer<PolicyBlock>(
      ({ address }) => address,
      () => policy.reservedBytes,
    )
    const passed = this.run({ failedFrom: NEVER, ...options, ...(observer && { observer }) })
    const { allocations } = this.trace
    return {
      ...passed,
      peakRequestedBytes: this.peakRequestedBytes,
      peakGrantedBytes: this.peakGrantedBytes,
      peakReservedBytes: rounds.reduce((peak, round) => Math.max(peak, round.peakReservedBytes), 0),
      placement: this.ownSegments ? { allocations, exact: this.exact } : null,
      reservedAlike: this.ownSegments ? this.reservedAlike : null,
      retries: policy.retries,
      ...sumOf(rounds),
      laterDeviceSeconds: (rounds[0].modelledDeviceSeconds ?? 0) - this.earlySeconds,
      rounds,
    }
  }

  /** Adds the segments from before the first event with their blocks, if the recording has them. */
  protected override begin(round: number): void {
    this.isLastRound = round + 1 === (this.options.repeat ?? 1)
    if (round > 0) this.followsAddresses = this.isExact = false
    else if (this.ownSegments) this.adoptInitial()
  }

  protected override allocateInitial(block: number): void {
    this.allocate(-1, block)
  }

  /** The device's calls are counted from here on. */
  protected override beginEvents(round: number): void {
    if (round === 0) this.policy.driver.take()
  }

  protected override apply(event: number): void {
    const { action, address, bytes, block, events } = this.trace
    if (event === events >> 1 && this.rounds.length === 0) this.earlySeconds = this.policy.driver.seconds
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
        if (event >= this.failedFrom) this.tryFailed(event)
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
    const { blocks } = this.trace
    const stream = blocks.stream[number]
    const bytes = blocks.bytes[number]
    const pool = blocks.pool[number]
    const address = blocks.address[number]
    let granted = this.request(event, bytes, stream, pool)
    while (this.isExact && granted !== null && granted.address !== address && this.policy.reconsider(granted, bytes)) {
      granted = this.request(event, bytes, stream, pool)
    }
    this.held[number] = granted
    if (granted === null) return
    this.observer.allocated?.(number, granted)
    if (event >= 0 && this.followsAddresses) {
      if (granted.address === address) this.exact++
      else this.isExact = false
    }
    if (blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted)
  }

  /** Makes a request that failed in the recording, and frees it at once. */
  private tryFailed(event: number): void {
    const { bytes, stream, pool } = this.trace
    const granted = this.request(event, bytes[event], stream[event], pool[event])
    if (granted === null) return
    this.isExact = false
    this.peakRequestedBytes = Math.max(this.peakRequestedBytes, this.requestedBytes + bytes[event])
    this.peakGrantedBytes = Math.max(this.peakGrantedBytes, this.grantedBytes + granted.bytes)
    this.give(granted)
  }

  protected override take(bytes: number, stream: number, pool: number): PolicyBlock | null {
    return this.policy.allocate(bytes, stream, pool, this.offeredBase)
  }

  protected override give(granted: PolicyBlock): void {
    this.policy.release(granted)
  }

  protected override refusal(): string {
    return 'no segment that fits within the capacity'
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
    this.free(granted)
  }

  /** Frees the blocks that other streams use, as if their work had completed. */
  private completePending(): void {
    for (const number of this.pending) this.release(number)
    this.pending.clear()
  }

  private adoptInitial(): void {
    for (const { segment, numbers, used } of initialSegments(this.trace)) {
      this.pace?.step()
      const granted = this.policy.adoptSegment(segment.address, segment.bytes, segment.stream, used, segment.pool)
      numbers.forEach((number, i) => {
        this.held[number] = granted[i]
        this.observer.allocated?.(number, granted[i])
        if (this.trace.blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted[i])
      })
    }
  }

  /** What stays live after the last round changes no figure. */
  protected override end(block: number): void {
    if (this.isLastRound) return
    const granted = this.held[block]
    if (granted !== null) this.give(granted)
    this.held[block] = null
  }

  protected override endRound(): void {
    const { policy, rounds } = this
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
    addTo(byEvent, event, number)
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
