// The blocks that ONNX Runtime holds, and the callbacks that hand them out. A failure is noted, and the answer is one
// that ONNX Runtime survives: 0 on CUDA, which makes `run` fail, and ordinary memory on the CPU, where 0 is unchecked.

import { AsyncLocalStorage } from 'node:async_hooks'
import { isUnderWay } from '../core/base/call-stack.js'
import { OutOfMemoryError, PoolError } from '../core/base/errors.js'
import { thrownText } from '../core/base/thrown.js'
import { deviceOf } from '../core/device/device.js'
import { CU_STREAM_PER_THREAD } from '../core/driver/constants.js'
import type { Koffi } from '../core/libraries/koffi.js'
import type { Stream } from '../core/order/stream.js'
import type { HostSegment } from '../core/pool/backing/pinned-segments.js'
import type { DeviceBuffer } from '../core/pool/buffer.js'
import type { HostBuffer } from '../core/pool/host/host-buffer.js'
import type { HostPool } from '../core/pool/host/host-pool.js'
import { groupLive, type LiveGroup } from '../core/pool/labels.js'
import type { Pool } from '../core/pool/pool.js'
import type { Callback, MemorySource } from './allocator.js'
import { type Block, HeldBlocks } from './held-blocks.js'

/** A pool that serves ONNX Runtime. */
export type AnyPool = Pool | HostPool

/** The work of one session, and the first reason why it got no memory of the pool. */
export interface Scope {
  readonly name: string
  /** where the memory comes from, if not from the service's own pool */
  readonly pool: AnyPool | null
  /** pools that the work's session has memory of */
  readonly uses: Set<AnyPool>
  failure: Error | null
}

/** ONNX Runtime's kernels for AVX-512 crash with less. */
const CPU_ALIGNMENT = 64

/** Of requests outside of scopes. */
const UNNAMED: Scope = { name: '', pool: null, uses: new Set(), failure: null }

/** Whether the pool sleeps, or one behind a wrapper; kinds of pools that cannot never do. */
export function sleeps(pool: AnyPool): boolean {
  const { asleep, sources = [] } = pool as { readonly asleep?: boolean; readonly sources?: readonly object[] }
  if (asleep === true) return true
  for (const source of sources) if ((source as { readonly asleep?: boolean }).asleep === true) return true
  return false
}

/** The error for a run of a session whose memory sleeps. */
export function asleepError(call: string, name: string): PoolError {
  const whose = name === '' ? 'memory of the session' : `memory of '${name}'`
  return new PoolError(`${call}: ${whose} lies in a pool that sleeps; await its wake() first`, 'ERR_POOL_ASLEEP')
}

/** Throws PoolError while a pool sleeps that the scope's session has memory of. */
function refuseAsleep({ uses, name }: Scope): void {
  for (const pool of uses) if (sleeps(pool)) throw asleepError('as', name)
}

/** Why a request gets no memory of a pool, and the work that is to fail for it. */
interface Refusal {
  readonly error: PoolError
  readonly of: Iterable<Scope>
}

export abstract class Blocks implements MemorySource {
  /** the scopes whose work has not ended */
  readonly underWay = new Set<Scope>()
  /** whether work has begun whose memory comes from another pool than the service's own */
  hasOtherPools = false
  allocations = 0
  failures = 0
  protected readonly held = new HeldBlocks<AnyPool>()
  /** whether the process was warned of a failure outside of scopes; once is enough */
  warned = false
  /** of one session: while it is made, requests of this thread must be its own */
  isMaking = false
  /** of one session: a second session has got its allocator, so no pool of a request is known */
  isMixed = false

  /** `owner` is the session that all memory is for, in whatever thread it asks; null for the blocks of a service. */
  constructor(
    readonly owner: Scope | null = null,
    readonly scopes = new AsyncLocalStorage<Scope>(),
  ) {}

  /** The blocks held, by the name of the scope that asked for them; '' outside of scopes. */
  groups(): LiveGroup[] {
    return groupLive(this.live, block => block.name)
  }

  /** The blocks held. */
  get live(): readonly Block<AnyPool>[] {
    return this.held.blocks
  }

  /** Whether no block is held. */
  get isEmpty(): boolean {
    return this.held.blocks.length === 0
  }

  /** The pools with blocks of that name. */
  poolsOf(name: string): Set<AnyPool> {
    const blocks = this.held.blocks.filter(block => block.name === name)
    return new Set(blocks.flatMap(({ pool }) => pool ?? []))
  }

  allocate(bytes: number, stream: number | null, callback?: Callback): number {
    const scope = this.owner ?? this.scopes.getStore() ?? UNNAMED
    this.allocations++
    try {
      const refusal = this.owner === null ? this.foreignRefusal(scope, callback) : this.mixedRefusal(callback)
      if (refusal !== null) return this.fail(refusal.error, bytes, refusal.of)
      if (this.owner === null && scope.uses.size > 0) refuseAsleep(scope) // the pool of an owner refuses by itself
      return this.take(Math.max(1, bytes), stream, scope)
    } catch (error) {
      const isTold = this.owner === null ? scope !== UNNAMED : this.underWay.size > 0
      return this.fail(error, bytes, isTold ? [scope] : [])
    }
  }

  reserve(bytes: number, callback?: Callback): number {
    return this.allocate(bytes, null, callback)
  }

  /** Another thread knows no scope: its memory may have to come from another pool than the service's own. */
  private foreignRefusal(scope: Scope, callback: Callback | undefined): Refusal | null {
    if (scope !== UNNAMED || callback === undefined) return null
    if (this.underWay.size === 0 && !this.hasOtherPools) return null
    // No JavaScript has called it when ONNX Runtime calls in a thread of its own, and the event loop runs it here.
    if (isUnderWay(callback)) return null
    const error = new PoolError(
      'as: ONNX Runtime asked for memory in another thread, where the pool to take it from is not known; make the session by createSession()',
    )
    return { error, of: this.underWay }
  }

  /** Other sessions that are made together with the owner get its allocator. They ask in scopes of their own. */
  private mixedRefusal(callback: Callback | undefined): Refusal | null {
    const scope = this.isMaking || this.isMixed ? this.scopes.getStore() : this.owner!
    if (!this.isMixed && (scope === this.owner || callback === undefined || !isUnderWay(callback))) return null
    this.isMixed = true
    const error = new PoolError(
      `createSession: another session was made together with '${this.owner!.name}'; make sessions one after another, each by createSession()`,
    )
    return { error, of: [...this.underWay, ...(scope === undefined ? [] : [scope])] }
  }

  /** The answer to a request without memory, which fails the scopes, or warns without any. */
  private fail(thrown: unknown, bytes: number, scopes: Iterable<Scope>): number {
    this.failures++
    // A callback of a wrapper may throw anything.
    const error = thrown instanceof Error ? thrown : new Error(thrownText(thrown), { cause: thrown })
    let name: string | null = null
    for (const scope of scopes) {
      scope.failure ??= error
      name ??= scope.name
    }
    if (name === null && !this.warned) {
      process.emitWarning(`ONNX Runtime: ${error.message}`)
      this.warned = true
    }
    return this.instead(Math.max(1, bytes), name ?? '')
  }

  free(ptr: number): void {
    const block = this.held.remove(ptr)
    if (block === null) return
    try {
      block.free()
    } catch (error) {
      // A closed pool has taken its memory back already.
      if (!(error instanceof PoolError)) process.emitWarning(error instanceof Error ? error : thrownText(error))
    }
  }

  /** Ends the use of ONNX Runtime's streams, which their sessions have destroyed; waits for all work on the device. */
  forgetStreams(): void {}

  /** The pool that a scope's memory comes from. Its session has memory of that pool from now on. */
  protected lender(own: AnyPool, scope: Scope): AnyPool {
    const pool = scope.pool ?? own
    if (this.owner === null && scope !== UNNAMED) scope.uses.add(pool)
    return pool
  }

  /** Memory of the scope's pool; throws. */
  protected abstract take(bytes: number, stream: number | null, scope: Scope): number

  /** The answer when the pool has no memory. */
  protected abstract instead(bytes: number, name: string): number
}

/** A block of a host pool. A class, since a run makes many. */
class HostBlock implements Block<HostPool> {
  constructor(
    readonly name: string,
    readonly pool: HostPool,
    readonly byteLength: number,
    private readonly buffer: HostBuffer,
    /** referenced here: after a close of the pool the memory stays readable for sessions */
    readonly segment: HostSegment,
  ) {}

  free(): void {
    this.buffer.free()
  }
}

/** The segment of no memory. */
const NO_SEGMENT: HostSegment = { address: 0, bytes: new Uint8Array(0) }

/** Blocks of a host pool, for the CPU. */
export class HostBlocks extends Blocks {
  /** of the last request; the next one is likely to be in it */
  private segment = NO_SEGMENT
  /** what to add to the segment's addresses to get those of C: a simulated device's are not the host's */
  private shift = 0

  constructor(
    private readonly pool: HostPool,
    private readonly koffi: Koffi,
    owner: Scope | null = null,
    scopes?: AsyncLocalStorage<Scope>,
  ) {
    super(owner, scopes)
  }

  /** Without blocks it keeps no memory of a pool that gives back a segment, or is closed. */
  override free(ptr: number): void {
    super.free(ptr)
    if (this.isEmpty) this.segment = NO_SEGMENT
  }

  protected override take(bytes: number, _stream: number | null, scope: Scope): number {
    const pool = this.lender(this.pool, scope) as HostPool
    const buffer = pool.allocate(bytes + CPU_ALIGNMENT)
    const { address } = buffer
    if (address < this.segment.address || address >= this.segment.address + this.segment.bytes.length) {
      this.goTo(pool.memory.segmentAt(address))
    }
    const ptr = alignedFrom(address + this.shift)
    this.held.add(ptr, new HostBlock(scope.name, pool, bytes, buffer, this.segment))
    return ptr
  }

  protected override instead(bytes: number, name: string): number {
    try {
      const memory = new Uint8Array(bytes + CPU_ALIGNMENT)
      const ptr = alignedFrom(Number(this.koffi.address(memory)))
      this.held.add(ptr, { name, pool: null, byteLength: bytes, free: () => void memory })
      return ptr
    } catch {
      return 0 // the system has no memory either
    }
  }

  private goTo(segment: HostSegment): void {
    this.segment = segment
    this.shift = Number(this.koffi.address(segment.bytes)) - segment.address
  }
}

function alignedFrom(address: number): number {
  return Math.ceil(address / CPU_ALIGNMENT) * CPU_ALIGNMENT
}

/**
 * Pinned memory for results of the CUDA provider, which copies to it faster. It is a help only: weights, and what the
 * pool has no room for, lie in ordinary memory, and no run fails for it.
 */
export class ResultBlocks extends HostBlocks {
  override reserve(bytes: number, _callback?: Callback): number {
    return this.instead(Math.max(1, bytes), '')
  }

  protected override take(bytes: number, stream: number | null, scope: Scope): number {
    try {
      return super.take(bytes, stream, scope)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError || error instanceof PoolError)) throw error
      return this.instead(bytes, scope.name)
    }
  }
}

/** A block that is freed in the order of the stream it was asked for on. A class, since a run makes many. */
class StreamBlock implements Block<Pool> {
  constructor(
    readonly name: string,
    readonly pool: Pool,
    readonly byteLength: number,
    private readonly buffer: DeviceBuffer,
  ) {}

  free(): void {
    this.buffer.free()
  }
}

/**
 * Blocks of a device's pool, for the CUDA provider. A session destroys its streams without a word when it is released.
 * It frees its weights then, which are on no stream: at such a free all streams are forgotten here. A session that goes
 * on has its streams adopted again at its next run.
 */
export class DeviceBlocks extends Blocks {
  private readonly adopted: Stream[] = []

  constructor(
    private readonly pool: Pool,
    private readonly byStream: boolean,
    owner: Scope | null = null,
    scopes?: AsyncLocalStorage<Scope>,
  ) {
    super(owner, scopes)
  }

  protected override take(bytes: number, handle: number | null, scope: Scope): number {
    const { name } = scope
    if (handle !== null) return this.takeOn((scope.pool ?? this.pool) as Pool, handle, bytes, name)
    const pool = this.lender(this.pool, scope) as Pool
    const buffer = this.named(pool.allocate(bytes), name, this.byStream)
    const free = () => {
      this.forgetStreams()
      if (this.byStream && !buffer.freed) this.pool.context.activate().cuCtxSynchronize()
      buffer.free()
    }
    this.held.addLasting(buffer.ptr, { name, pool, byteLength: bytes, free })
    return buffer.ptr
  }

  private takeOn(pool: Pool, handle: number, bytes: number, name: string): number {
    const stream = this.adoptedStream(handle)
    const buffer = this.named(pool.allocate(bytes, stream), name, false)
    const { ptr } = buffer
    this.held.add(ptr, new StreamBlock(name, pool, bytes, buffer))
    return ptr
  }

  /** A new buffer with its name; it goes back to its pool if that fails. */
  private named(buffer: DeviceBuffer, name: string, waits: boolean): DeviceBuffer {
    try {
      if (name !== '') buffer.label = name // a label of a shared pool has a greatest length
      // Without a stream, nothing orders the work on this memory: the host waits, when a session is loaded or released.
      if (waits) buffer.stream.synchronize()
      return buffer
    } catch (error) {
      buffer.free()
      throw error
    }
  }

  private adoptedStream(handle: number): Stream {
    // Each session has a few. A map takes longer, as `HeldBlocks` says.
    for (const stream of this.adopted) if (stream.handle === handle) return stream
    const stream = deviceOf.get(this.pool.defaultStream.clocks)!.adoptStream(handle)
    this.adopted.push(stream)
    return stream
  }

  override forgetStreams(): void {
    for (const stream of this.adopted) {
      // The driver must not see the handle of a destroyed stream: it may crash, or take it for another stream.
      if (!stream.closed && !stream.owned && !this.isLasting(stream)) stream.abandon()
    }
    this.adopted.length = 0
  }

  /** Whether no session destroys the stream: the driver's default streams, and the pool's own. */
  private isLasting(stream: Stream): boolean {
    return stream.handle <= CU_STREAM_PER_THREAD || stream === this.pool.defaultStream
  }

  protected override instead(): number {
    return 0
  }
}
