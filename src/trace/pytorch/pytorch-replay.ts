// PyTorch's policy over a recorded trace, with its default segments or with expandable ones. The policy itself
// decides between reuse and new memory. The recording supplies only the address of a new segment, and when PyTorch
// gave memory back: after an out of memory, or on request. An outOfMemory event got no block in the recording, so it
// requests none here.
//
// A recording with segments of the other kind has no addresses for the policy. Where it gave memory back, the policy
// gives back all it can, as PyTorch does then.

import { Action, BEFORE, type Frame, framesOf, type Trace } from '../trace.js'
import { ExpandablePolicy } from './expandable-policy.js'
import { initialSegments } from './initial-blocks.js'
import type { PlacementPolicy, PolicyBlock } from './policy-blocks.js'
import { PytorchPolicy } from './pytorch-policy.js'

export interface PytorchResult {
  readonly peakRequestedBytes: number
  /** the bytes of live blocks as the policy rounds and splits them: PyTorch's own allocated_bytes.all.peak */
  readonly peakGrantedBytes: number
  readonly peakReservedBytes: number
  /** how many alloc events got the recorded address; null if the recording's addresses come from another policy */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  readonly deviceCalls: Readonly<Record<string, number>>
  /** modelled seconds of these calls */
  readonly modelledSeconds: number
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

export interface PytorchReplayOptions {
  /** whether segments are expandable; default false */
  readonly expandable?: boolean
  /** the most bytes to obtain from the device; default no limit */
  readonly capacityBytes?: number
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

/** Replays `trace` on the policy. */
export function replayPytorchPolicy(trace: Trace, options: PytorchReplayOptions = {}): PytorchResult {
  return new Replay(trace, options).run()
}

const PROGRESS_EVENTS = 65_536

class Replay {
  private readonly policy: PlacementPolicy
  /** whether the recording's segments are of the policy's kind */
  private readonly ownSegments: boolean
  private readonly expandable: boolean
  /** by block number; null for a block that is not live */
  private readonly held: (PolicyBlock | null)[]
  /** segments that the recording obtained for the next allocation */
  private readonly offered: { address: number; bytes: number }[] = []
  /** segments that the recording gave back and the policy still uses */
  private readonly retained: { address: number; bytes: number }[] = []
  private requestedBytes = 0
  private grantedBytes = 0
  private peakRequestedBytes = 0
  private peakGrantedBytes = 0
  private exact = 0
  /** whether every block so far has the recorded address */
  private isExact: boolean
  private failures = 0
  private firstFailure: PytorchResult['firstFailure'] = null

  constructor(
    private readonly trace: Trace,
    private readonly options: PytorchReplayOptions,
  ) {
    this.expandable = options.expandable ?? false
    this.policy = this.expandable ? new ExpandablePolicy(options) : new PytorchPolicy(options)
    this.ownSegments = hasSegments(trace, this.expandable)
    this.isExact = this.ownSegments
    this.held = new Array(trace.blocks.count).fill(null)
  }

  run(): PytorchResult {
    const { trace, policy } = this
    this.adoptInitial()
    for (let event = 0; event < trace.events; event++) {
      this.apply(event)
      if (event % PROGRESS_EVENTS === 0) this.options.onProgress?.(event / trace.events)
    }
    const { allocations } = trace
    return {
      peakRequestedBytes: this.peakRequestedBytes,
      peakGrantedBytes: this.peakGrantedBytes,
      peakReservedBytes: policy.peakReservedBytes,
      placement: this.ownSegments ? { allocations, exact: this.exact } : null,
      deviceCalls: policy.driver.calls,
      modelledSeconds: policy.driver.seconds,
      failures: this.failures,
      firstFailure: this.firstFailure,
    }
  }

  private apply(event: number): void {
    const { action, address, bytes, block } = this.trace
    switch (action[event]) {
      case Action.alloc:
        this.allocate(event, block[event])
        this.offered.length = 0
        break
      case Action.freeRequested:
        this.countFree(block[event])
        break
      case Action.freeCompleted:
        this.release(block[event])
        break
      case Action.segmentAlloc:
      case Action.segmentMap:
        if (this.ownSegments) this.offered.push({ address: address[event], bytes: bytes[event] })
        break
      case Action.segmentFree:
      case Action.segmentUnmap:
        this.giveBack(event)
        break
      case Action.outOfMemory:
        this.offered.length = 0
        break
    }
  }

  /** Follows a segment_free or segment_unmap event. */
  private giveBack(event: number): void {
    const { action, address, bytes } = this.trace
    if (this.ownSegments) {
      if (this.policy.releaseRecorded(address[event], bytes[event])) return
      this.retained.push({ address: address[event], bytes: bytes[event] })
    } else if (event === 0 || action[event] !== action[event - 1]) this.policy.releaseFree()
  }

  private allocate(event: number, number: number): void {
    const { blocks, streams } = this.trace
    const stream = blocks.stream[number]
    const bytes = blocks.bytes[number]
    const address = blocks.address[number]
    let granted = this.policy.allocate(bytes, stream, this.offeredBase)
    while (this.isExact && granted !== null && granted.address !== address && this.policy.reconsider(granted, bytes)) {
      granted = this.policy.allocate(bytes, stream, this.offeredBase)
    }
    if (granted === null) {
      this.failures++
      this.firstFailure ??= { event, bytes, stream: streams[stream], frames: framesOf(this.trace, event) }
      return
    }
    if (granted.address === address) this.exact++
    else this.isExact = false
    this.held[number] = granted
    this.countLive(number, granted)
  }

  /**
   * The address of a segment of this size, or of an expandable one, that the recording has just obtained, unless the
   * policy still has memory there.
   */
  private readonly offeredBase = (segmentBytes: number): number | undefined =>
    this.offered.find(
      ({ address, bytes }) =>
        (this.expandable || bytes === segmentBytes) &&
        !this.retained.some(range => range.address < address + bytes && address < range.address + range.bytes),
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
    this.policy.release(granted)
    this.held[number] = null
  }

  /** Adds the blocks and segments from before the first event, at their addresses if the recording has them. */
  private adoptInitial(): void {
    const { blocks } = this.trace
    for (const { segment, numbers, used } of this.ownSegments ? initialSegments(this.trace) : []) {
      const granted = this.policy.adoptSegment(segment.address, segment.bytes, segment.stream, used)
      numbers.forEach((number, i) => {
        this.held[number] = granted[i]
      })
    }
    for (let number = 0; number < blocks.initial; number++) {
      this.held[number] ??= this.policy.allocate(blocks.bytes[number], blocks.stream[number])
      const granted = this.held[number]
      if (granted !== null && blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted)
    }
    this.policy.driver.reset()
  }
}

/** Whether the recorded addresses come from segments as the policy models them. */
function hasSegments(trace: Trace, expandable: boolean): boolean {
  if (trace.recordedPeakReservedBytes === null) return false
  if (trace.initialSegments.some(segment => segment.expandable !== expandable)) return false
  const others = expandable ? [Action.segmentAlloc, Action.segmentFree] : [Action.segmentMap, Action.segmentUnmap]
  return !others.some(action => trace.action.includes(action))
}
