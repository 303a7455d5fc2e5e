// An arena in memory that NCCL knows as one window. All ranks make it together, and allocate alike, so that the same
// buffer has the same offset on all. The window is made once: an allocation never calls NCCL, since that would wait for
// the other ranks.

import { type ByteSize, bytesOf } from '../core/base/byte-size.js'
import { PoolError } from '../core/base/errors.js'
import type { Stream } from '../core/order/stream.js'
import { ArenaPool } from '../core/pool/arena/arena-pool.js'
import { MOST_ALIGNMENT_BYTES } from '../core/pool/backing/backing.js'
import type { DeviceBuffer } from '../core/pool/buffer.js'
import { checkAlignment } from '../core/pool/caching/alignment.js'
import type { PlainPool } from '../core/pool/driver-owned/plain-pool.js'
import { type AllocateOptions, isOptions } from '../core/pool/long-form.js'
import type { Collectives } from './collectives.js'
import { WINDOW_SYMMETRIC } from './constants.js'
import { isGrouping } from './group.js'
import type { JoinedRank } from './joined-rank.js'
import type { MeetingPlace } from './meeting.js'
import { Cell } from './nccl.js'

/** The communicator of an arena. */
interface Owner extends Pick<Collectives, 'device' | 'ranks' | 'allGather'> {
  /** those that are closed with the communicator */
  readonly arenas: Set<SymmetricArena>
  readonly pools: Set<PlainPool>
  finished(): Promise<void>
}

/** The least alignment of a buffer in a window, which NCCL 2.30 asks for in memory of several mappings. */
const ALIGNMENT = 4096

/** Memory that all ranks of a communicator have at the same offsets. Made by `communicator.createSymmetricArena()`. */
export class SymmetricArena extends ArenaPool {
  /** of the offsets and sizes of all allocations and resets so far, in order */
  private digest = 0

  /** Use `communicator.createSymmetricArena()`. */
  constructor(
    private readonly communicator: Owner,
    bytes: number,
    private readonly debug: boolean,
  ) {
    const { defaultStream } = communicator.device
    super(defaultStream.clocks, defaultStream, { bytes, backing: 'registrable' })
  }

  /**
   * As `communicator.createSymmetricArena` does. After a failure the memory stays until the communicator is aborted,
   * since NCCL may have it.
   * @internal
   */
  static async create(
    communicator: Owner,
    joined: JoinedRank,
    meeting: MeetingPlace,
    bytes: number,
    debug: boolean,
    timeoutMs: number,
  ): Promise<SymmetricArena> {
    const call = 'createSymmetricArena'
    const arena = new SymmetricArena(communicator, bytes, debug)
    communicator.arenas.add(arena)
    const { nccl, handle } = joined
    const [{ ptr, bytes: segmentBytes }] = arena.segments()
    const window = new Cell()
    const register = () => nccl.ncclCommWindowRegister(handle, ptr, segmentBytes, window, WINDOW_SYMMETRIC)
    try {
      await meeting.call(call, register, { timeoutMs })
    } catch (error) {
      if (joined.isWell) arena.close()
      throw error
    }
    if (window.value === 0) {
      arena.close()
      throw new PoolError(`${call}: NCCL has no windows between these devices; use register(pool)`, 'ERR_NOT_SUPPORTED')
    }
    const leaving = () => {
      joined.whileWell(() => {
        joined.check('close', nccl.ncclCommWindowDeregister(joined.handle, window.value))
      })
    }
    arena.observeSegments({ ready: () => {}, leaving })
    return arena
  }

  override allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    const buffer = super.allocate(bytes, ...aligned(stream, alignment))
    if (this.debug) this.note(buffer.ptr, buffer.byteLength)
    return buffer
  }

  override tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    const buffer = super.tryAllocate(bytes, ...aligned(stream, alignment))
    if (this.debug && buffer !== null) this.note(buffer.ptr, buffer.byteLength)
    return buffer
  }

  override close(): ReturnType<ArenaPool['close']> {
    const report = super.close()
    this.communicator.arenas.delete(this)
    return report
  }

  /**
   * Compares the offsets of all allocations so far with those of the other ranks, if the arena was made with `debug:
   * true`. All ranks call it; several ranks of one thread call it within `Communicator.group`, and await the results
   * behind it. Node goes on meanwhile. Rejects with PoolError that names the ranks that have allocated otherwise, and
   * with CommunicatorError when a rank does not come within `timeoutMs`.
   */
  compareOffsets(): Promise<void> {
    const compared = this.compare()
    if (isGrouping()) compared.catch(() => {}) // the group throws then, and the program may never await this
    return compared
  }

  private async compare(): Promise<void> {
    if (!this.debug) return
    const { device, ranks, pools } = this.communicator
    const pool = device.createPlainPool()
    pool.warnOnHeld = false
    pools.add(pool) // if a rank does not come, its close would wait for the work, until an abort ends that
    const own = pool.upload(Uint32Array.of(this.digest, this.stats().allocations))
    const all = pool.allocateArray(Uint32Array, 2 * ranks)
    this.communicator.allGather(own, all)
    await null // a group begins its calls first
    await this.communicator.finished() // after a failure NCCL may use the memory, so that its free would wait for ever
    const found = await all.read()
    pool.close()
    pools.delete(pool)
    const isOther = (rank: number) => found[2 * rank] !== found[0] || found[2 * rank + 1] !== found[1]
    const others = Array.from({ length: ranks }, (_, rank) => rank).filter(isOther)
    if (others.length === 0) return
    throw new PoolError(
      `compareOffsets: rank ${others.join(', ')} has allocated otherwise than rank 0, so that offsets differ; ` +
        'allocate the same sizes in the same order on all ranks',
    )
  }

  private note(ptr: number, bytes: number): void {
    const offset = ptr - this.segments()[0].ptr
    for (const word of [offset / ALIGNMENT, bytes >>> 0, bytes / 2 ** 32]) {
      this.digest = (Math.imul(this.digest ^ word, 16_777_619) >>> 0) + 1 // FNV-1, by words
    }
  }
}

/** The arguments of an allocation, aligned for a window. */
function aligned(
  stream: Stream | AllocateOptions | undefined,
  alignment: number | undefined,
): [stream: Stream | AllocateOptions | undefined, alignment?: number] {
  if (!isOptions(stream)) return [stream, alignmentOf(alignment)]
  if (alignment !== undefined) return [stream, alignment] // which is refused
  return [{ ...stream, alignment: alignmentOf(stream.alignment) }]
}

function alignmentOf(alignment: ByteSize = ALIGNMENT): number {
  const bytes = bytesOf(alignment, 'alignment', null)
  checkAlignment(bytes, MOST_ALIGNMENT_BYTES)
  return Math.max(bytes, ALIGNMENT)
}
