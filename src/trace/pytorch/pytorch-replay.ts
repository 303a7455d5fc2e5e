// PyTorch's policy over a recorded trace. The policy itself decides between reuse and a new segment. The recording
// supplies only the address of a new segment, and its segment_free events, which tell when PyTorch gave memory back:
// after an out of memory, or on request. An outOfMemory event got no block in the recording, so it requests none
// here.

import { Action, BEFORE, type Frame, framesOf, type Trace } from '../trace.js'
import { type PolicyBlock, PytorchPolicy } from './pytorch-policy.js'

export interface PytorchResult {
  readonly peakRequestedBytes: number
  /** the bytes of live blocks as the policy rounds and splits them: PyTorch's own allocated_bytes.all.peak */
  readonly peakGrantedBytes: number
  readonly peakReservedBytes: number
  /** how many alloc events got the recorded address; null if the recording's addresses come from another policy */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  readonly deviceCalls: { readonly cuMemAlloc: number; readonly cuMemFree: number }
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
  private readonly policy: PytorchPolicy
  /** by block number; null for a block that is not live */
  private readonly held: (PolicyBlock | null)[]
  /** segments that the recording obtained for the next allocation */
  private offered: { address: number; bytes: number }[] = []
  /** segments that the recording gave back and the policy still uses */
  private readonly retained: { address: number; bytes: number }[] = []
  private initialSegmentCalls = 0
  private requestedBytes = 0
  private grantedBytes = 0
  private peakRequestedBytes = 0
  private peakGrantedBytes = 0
  private exact = 0
  private failures = 0
  private firstFailure: PytorchResult['firstFailure'] = null

  constructor(
    private readonly trace: Trace,
    private readonly options: PytorchReplayOptions,
  ) {
    this.policy = new PytorchPolicy(options)
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
      placement: usesPlainSegments(trace) ? { allocations, exact: this.exact } : null,
      deviceCalls: {
        cuMemAlloc: policy.segmentsObtained - this.initialSegmentCalls,
        cuMemFree: policy.segmentsReturned,
      },
      failures: this.failures,
      firstFailure: this.firstFailure,
    }
  }

  private apply(event: number): void {
    const { action, address, bytes, block } = this.trace
    switch (action[event]) {
      case Action.alloc:
        this.allocate(event, block[event])
        this.offered = []
        break
      case Action.freeRequested:
        this.countFree(block[event])
        break
      case Action.freeCompleted:
        this.release(block[event])
        break
      case Action.segmentAlloc:
        this.offered.push({ address: address[event], bytes: bytes[event] })
        break
      case Action.segmentFree:
        if (!this.policy.releaseSegment(address[event])) {
          this.retained.push({ address: address[event], bytes: bytes[event] })
        }
        break
      case Action.outOfMemory:
        this.offered = []
        break
    }
  }

  private allocate(event: number, number: number): void {
    const { blocks, streams } = this.trace
    const stream = blocks.stream[number]
    const bytes = blocks.bytes[number]
    const granted = this.policy.allocate(bytes, stream, this.offeredBase)
    if (granted === null) {
      this.failures++
      this.firstFailure ??= { event, bytes, stream: streams[stream], frames: framesOf(this.trace, event) }
      return
    }
    if (granted.address === blocks.address[number]) this.exact++
    this.held[number] = granted
    this.countLive(number, granted)
  }

  /**
   * The address of a segment of this size that the recording has just obtained, unless the policy still has memory
   * there.
   */
  private readonly offeredBase = (segmentBytes: number): number | undefined =>
    this.offered.find(
      ({ address, bytes }) =>
        bytes === segmentBytes &&
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
    const { blocks, initialSegments } = this.trace
    const numbers = Array.from({ length: blocks.initial }, (_, number) => number)
    numbers.sort((a, b) => blocks.address[a] - blocks.address[b])
    for (const { address: base, bytes, stream } of initialSegments) {
      let cursor = base
      const inside = numbers.filter(number => {
        const fits = blocks.address[number] >= cursor && blocks.address[number] + blocks.bytes[number] <= base + bytes
        if (fits) cursor = blocks.address[number] + blocks.bytes[number]
        return fits
      })
      const used = inside.map(number => ({ address: blocks.address[number], bytes: blocks.bytes[number] }))
      const granted = this.policy.adoptSegment(base, bytes, stream, used)
      inside.forEach((number, i) => {
        this.held[number] = granted[i]
      })
    }
    for (const number of numbers) {
      this.held[number] ??= this.policy.allocate(blocks.bytes[number], blocks.stream[number])
      const granted = this.held[number]
      if (granted !== null && blocks.freeRequestedAt[number] !== BEFORE) this.countLive(number, granted)
    }
    this.initialSegmentCalls = this.policy.segmentsObtained
  }
}

/** Whether the recorded addresses come from segments as the policy models them. */
function usesPlainSegments(trace: Trace): boolean {
  if (trace.recordedPeakReservedBytes === null) return false
  return !trace.initialSegments.some(segment => segment.expandable) && !trace.action.includes(Action.segmentMap)
}
